"""Text ↔ token ids, one interface for characters and BPE.

Id 0 is the CTC blank and never stands for text; the last id, vocabulary - 1, is the shared start/end symbol.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from asr.errors import UserError
from asr.files import write_text
from asr.text.bpe_dropout import BPEDropout

BLANK = 0
DESCRIPTION = "tokenizer.json"
UNKNOWN_FIX = "train the tokenizer on this text too, or take it out"


class Tokenizer(Protocol):
    """What training, search and the model folder need of a tokenizer."""

    @property
    def vocabulary(self) -> int:
        """Number of ids, blank and start/end symbol included."""

    def encode(self, text: str, where: str = "text") -> list[int]:
        """Turn text into ids in 1 .. vocabulary - 2.

        raises   UserError naming `where` (an utterance) and the character that has no token
        """

    def unknown(self, text: str) -> list[str]:
        """List the characters of a text that have no token, in order, each as often as it stands there."""

    def decode(self, ids: Iterable[int]) -> str:
        """Turn ids into text; blank and start/end symbol are left out."""

    def dropout(self, p: float) -> BPEDropout:
        """The encoding that leaves out merges with probability p.

        raises   UserError if the tokens aren't made by merges
        """

    def symbols(self) -> list[str]:
        """One printable name an id."""

    def save(self, folder: Path) -> None:
        """Write all files that `load` needs into a folder."""


def sos_eos(tokenizer: Tokenizer) -> int:
    """Id of the shared start/end symbol."""
    return tokenizer.vocabulary - 1


def unknown_character(where: str, text: str, character: str) -> UserError:
    """The error of a character outside the vocabulary."""
    named = describe_character(character)
    return UserError(f"{where}: character {named} of {text!r} is not in the tokenizer's vocabulary; {UNKNOWN_FIX}")


def describe_character(character: str) -> str:
    """Write a character so that it can be told even where it can't be seen.

    >>> describe_character("é")
    "'é' (U+00E9)"
    """
    return f"{character!r} (U+{ord(character):04X})"


def train(kind: str, texts: Iterable[str], size: int | None = None) -> Tokenizer:
    """Make a tokenizer from training texts, which are read once and not held in memory, but for a sample.

    kind     "characters", or "bpe" with a vocabulary of `size` ids
    raises   UserError if the kind is unknown, there is no text, or the size doesn't fit
    """
    if kind == "characters":
        if size is not None:
            raise UserError(
                f"tokenizer: got size {size} of characters, which are as many as the texts have; leave it away"
            )
        from asr.text.characters import Characters

        made = Characters.train(texts)
        if not made.characters:
            raise no_text()
        return made
    if kind == "bpe":
        from asr.text.bpe import BPE

        return BPE.train(texts, size)
    raise UserError(f"tokenizer: got kind {kind!r}, expected 'characters' or 'bpe'")


def load(folder: str | Path) -> Tokenizer:
    """Load the tokenizer that `save` wrote into a folder.

    raises   UserError if the folder holds none, or a damaged one
    """
    path = Path(folder) / DESCRIPTION
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
        kind = description["kind"]
    except OSError:
        raise UserError(f"{path}: no tokenizer here; asr-tokenizer makes one") from None
    except (ValueError, KeyError, TypeError):
        raise UserError(
            f"{path}: damaged, not the description of a tokenizer; make it again with asr-tokenizer"
        ) from None
    if kind == "characters":
        from asr.text.characters import Characters

        return Characters.load(description, path)
    if kind == "bpe":
        from asr.text.bpe import BPE

        return BPE.load(Path(folder))
    raise UserError(f"{path}: got kind {kind!r}, expected 'characters' or 'bpe'")


def no_text() -> UserError:
    """The error of training texts without a word."""
    return UserError("tokenizer: got no text to train on")


def save_description(folder: Path, description: dict) -> None:
    """Write tokenizer.json."""
    write_text(Path(folder) / DESCRIPTION, json.dumps(description, ensure_ascii=False, indent=0) + "\n")
