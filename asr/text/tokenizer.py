"""Text ↔ token ids: one interface for all kinds of tokenizers.

Id 0 is the CTC blank and never stands for text. The last id, vocabulary - 1, is the shared
start/end symbol. The description, tokenizer.json, holds the SHA-256 of the tokens, so that damage
is noticed.
"""

import hashlib
import json
import os
import unicodedata
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import ClassVar, Protocol

from asr.errors import UserError
from asr.files import read_bytes, write_text
from asr.text.bpe_dropout import BPEDropout

KINDS = {  # kind: module and class, imported on first use
    "characters": "asr.text.characters:Characters",
    "bpe": "asr.text.bpe:BPE",
}
DESCRIPTION = "tokenizer.json"
MOST_BYTES = 50_000_000  # of each file; a sentencepiece model with 250,000 pieces has 5 MB
MISSING = "no tokenizer here; asr-tokenizer makes one"
AGAIN = "make it again with asr-tokenizer"
UNKNOWN_FIX = "train the tokenizer on this text, too, or remove it"


class Tokenizer(Protocol):
    """What training, search and the model folder need from a tokenizer.

    A tokenizer whose tokens are made by merges also has `dropout(p) -> BPEDropout`.
    """

    files: ClassVar[tuple[str, ...]]  # files that `save` writes beside tokenizer.json

    @classmethod
    def train(cls, texts: Iterable[str], size: int | None) -> "Tokenizer":
        """Make a tokenizer from texts; raise UserError if the size or the texts don't fit."""

    @classmethod
    def load(cls, folder: Path, description: dict) -> "Tokenizer":
        """Read the files in a folder; `description` is what tokenizer.json holds beside the kind and the digest.

        raises   UserError if a file is missing or damaged
        """

    @property
    def vocabulary(self) -> int:
        """The number of ids, with blank and start/end symbol."""

    def encode(self, text: str, where: str = "text") -> list[int]:
        """Turn text into ids in 1 .. vocabulary - 2.

        raises   UserError naming `where` (an utterance) and the character that has no token
        """

    def unknown(self, text: str) -> list[str]:
        """List the characters of a text that have no token, in order, each as often as it occurs."""

    def decode(self, ids: Iterable[int]) -> str:
        """Turn ids into text, without blank and start/end symbol."""

    def symbols(self) -> list[str]:
        """List one printable name per id."""

    @property
    def content(self) -> bytes:
        """Return what defines the tokens, for a digest."""

    def save(self, folder: Path) -> None:
        """Write all files that `load` needs into a folder."""


def kind_of(name: object, where: str | Path = "tokenizer") -> type[Tokenizer]:
    """Import the class of a kind of tokenizer.

    raises   UserError if there is no such kind
    """
    if not isinstance(name, str) or name not in KINDS:
        raise UserError(f"{where}: got kind {name!r}, expected one of {', '.join(KINDS)}")
    module, cls = KINDS[name].split(":")
    return getattr(import_module(module), cls)


def names_of_files(kind: object = None) -> tuple[str, ...]:
    """Name the files that a kind of tokenizer consists of, tokenizer.json first; of all kinds without one."""
    kinds = KINDS if kind is None else {kind} & KINDS.keys()
    return (DESCRIPTION, *(name for one in kinds for name in kind_of(one).files))


def paths_of(folder: str | Path) -> list[str]:
    """List the files of the tokenizer in a folder, for stamps; tokenizer.json alone if that can't be read."""
    try:
        kind = json.loads(read_bytes(Path(folder) / DESCRIPTION, MISSING, MOST_BYTES)).get(
            "kind", ""
        )
    except (UserError, ValueError, AttributeError, RecursionError):
        kind = ""
    return [os.path.join(folder, name) for name in names_of_files(kind)]


def dropout(tokenizer: Tokenizer, p: float) -> BPEDropout:
    """Return the encoding that leaves out merges with probability p.

    raises   UserError if the tokens aren't made by merges
    """
    if not hasattr(tokenizer, "dropout"):
        raise UserError(
            f"data.bpe_dropout: got {p:g}, expected 0: this tokenizer merges nothing; use bpe"
        )
    return tokenizer.dropout(p)


def sos_eos(tokenizer: Tokenizer) -> int:
    """Return the id of the shared start/end symbol."""
    return tokenizer.vocabulary - 1


def unknown_character(where: str, text: str, character: str) -> UserError:
    """Make the error for a character outside the vocabulary."""
    named = describe_character(character)
    return UserError(
        f"{where}: character {named} of {text!r} is not in the tokenizer's vocabulary; {UNKNOWN_FIX}"
    )


def describe_character(character: str) -> str:
    """Describe a character, even one that can't be seen.

    >>> describe_character("é")
    "'é' (U+00E9)"
    """
    return f"{character!r} (U+{ord(character):04X})"


def train(kind: str, texts: Iterable[str], size: int | None = None) -> Tokenizer:
    """Make a tokenizer from training texts, which are read once; only a sample is held in memory.

    kind     one of KINDS
    size     size of the vocabulary, for kinds that need it, such as "bpe"
    raises   UserError if the kind is unknown, there is no text, or the size doesn't fit
    """
    made = kind_of(kind).train(texts, size)
    if made.vocabulary == 2:  # blank and start/end symbol
        raise no_text()
    if strange := impossible(made.symbols()):
        raise UserError(
            f"tokenizer: the texts have the token {strange[0]!r}, which no text can have; remove it"
        )
    return made


def load(folder: str | Path, checked: bool = True) -> Tokenizer:
    """Load the tokenizer that `save` wrote into a folder.

    checked  False accepts a wrong digest
    raises   UserError if the folder holds no tokenizer, or a damaged one
    """
    path = Path(folder) / DESCRIPTION
    content = read_bytes(path, MISSING, MOST_BYTES)
    try:
        description = dict(json.loads(content))
        kind, digest = description.pop("kind"), description.pop("sha256", None)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UserError(f"{path}: damaged, not the description of a tokenizer; {AGAIN}") from None
    loaded = kind_of(kind, path).load(Path(folder), description)
    if checked and digest not in (None, sha256(loaded.content)):
        raise UserError(
            f"{path}: its tokens aren't those that were written (by their SHA-256); copy the folder again, or if they "
            f"were changed on purpose: asr-info --accept {folder}"
        )
    return loaded


def accept(folder: str | Path) -> list[str]:
    """Accept a tokenizer's files as they are now: write a new digest.

    returns  names of the files that differed from the old digest
    raises   UserError if the folder holds no tokenizer, or one that can't be read
    """
    path = Path(folder) / DESCRIPTION
    loaded, before = load(folder, checked=False), path.read_bytes()
    if json.loads(before).get("sha256") == sha256(loaded.content):
        return []
    loaded.save(Path(folder))
    return [DESCRIPTION]


def sha256(content: bytes) -> str:
    """Compute the digest of a tokenizer's tokens."""
    return hashlib.sha256(content).hexdigest()


def check_description(path: Path, description: dict, known: set[str]) -> None:
    """Refuse entries of tokenizer.json that its kind of tokenizer doesn't know."""
    if strange := sorted(set(description) - known):
        raise UserError(
            f"{path}: damaged, it holds {strange[0]!r}, which belongs to no tokenizer; {AGAIN}"
        )


def check_symbols(path: Path, symbols: Iterable[str]) -> None:
    """Refuse tokens that no text can have.

    raises   UserError that names the file and the token
    """
    if strange := impossible(symbols):
        raise UserError(
            f"{path}: damaged, it has the token {strange[0]!r}, which no text can have; {AGAIN}"
        )


def impossible(symbols: Iterable[str]) -> list[str]:
    """Tokens with control characters or halves of surrogate pairs, which would break an output, or with nothing."""
    return [
        s
        for s in symbols
        if not s or any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in s)
    ]


def no_text() -> UserError:
    """The error of training texts without a word."""
    return UserError("tokenizer: got no text to train on")


def save_description(folder: Path, description: dict, content: bytes) -> None:
    """Write tokenizer.json, with the digest of what the tokens are."""
    description = description | {"sha256": sha256(content)}
    write_text(
        Path(folder) / DESCRIPTION, json.dumps(description, ensure_ascii=False, indent=0) + "\n"
    )
