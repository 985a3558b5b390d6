"""Character tokenizer: every character of the training texts is a token, including the space."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from asr.errors import UserError
from asr.text.normalize import normalize
from asr.text.tokenizer import (
    AGAIN,
    DESCRIPTION,
    check_description,
    check_symbols,
    save_description,
    unknown_character,
)


class Characters:
    """Tokens are characters; id 0 is the blank, then the characters in code point order, then <sos/eos>."""

    files = ()

    def __init__(self, characters: Sequence[str]):
        self.characters = list(characters)
        self._ids = {character: n for n, character in enumerate(self.characters, start=1)}

    @classmethod
    def train(cls, texts: Iterable[str], size: int | None = None) -> "Characters":
        """Collect the characters of the texts; they determine the size."""
        if size is not None:
            raise UserError(
                f"tokenizer: got size {size}, but the texts determine the number of characters; omit it"
            )
        characters: set[str] = set()
        for text in texts:
            characters.update(normalize(text))
        return cls(sorted(characters))

    @property
    def vocabulary(self) -> int:
        """The number of ids: blank, characters, <sos/eos>."""
        return len(self.characters) + 2

    def encode(self, text: str, where: str = "text") -> list[int]:
        """Turn text into ids; UserError naming `where` for a character outside the vocabulary."""
        text = normalize(text)
        try:
            return [self._ids[character] for character in text]
        except KeyError as error:
            raise unknown_character(where, text, error.args[0]) from None

    def unknown(self, text: str) -> list[str]:
        """List the characters that aren't tokens, in order, each as often as it occurs."""
        return [character for character in normalize(text) if character not in self._ids]

    def decode(self, ids: Iterable[int]) -> str:
        """Turn ids into text."""
        return normalize(
            "".join(self.characters[n - 1] for n in ids if 0 < n <= len(self.characters))
        )

    def symbols(self) -> list[str]:
        """List one printable name per id, ▁ for the space."""
        return ["<blank>", *("▁" if c == " " else c for c in self.characters), "<sos/eos>"]

    @property
    def content(self) -> bytes:
        """Return what defines the tokens, for a digest."""
        return "".join(self.characters).encode()

    def save(self, folder: Path) -> None:
        """Write tokenizer.json."""
        save_description(
            folder, {"kind": "characters", "characters": self.characters}, self.content
        )

    @classmethod
    def load(cls, folder: Path, description: dict) -> "Characters":
        """Read the characters in tokenizer.json."""
        path, characters = folder / DESCRIPTION, description.get("characters")
        check_description(path, description, {"characters"})
        if (
            not isinstance(characters, list)
            or not characters
            or any(not isinstance(c, str) or len(c) != 1 for c in characters)
        ):
            raise UserError(f"{path}: damaged, its characters are not a list of single characters")
        check_symbols(path, characters)
        if "\u2581" in characters:
            raise UserError(
                f"{path}: has the character '\u2581' (U+2581), the space in tokens' names; {AGAIN}"
            )
        if twice := [c for c, count in Counter(characters).items() if count > 1]:
            raise UserError(
                f"{path}: damaged, it has the character {twice[0]!r} more than once; {AGAIN}"
            )
        return cls(characters)
