"""Character tokenizer: every character of the training texts is a token, the space included."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from asr.errors import UserError
from asr.text.normalise import normalise
from asr.text.tokenizer import save_description, unknown_character


class Characters:
    """Tokens are characters; id 0 is the blank, then the characters in code point order, then <sos/eos>."""

    def __init__(self, characters: Sequence[str]):
        self.characters = list(characters)
        self._ids = {character: n for n, character in enumerate(self.characters, start=1)}

    @classmethod
    def train(cls, texts: Iterable[str]) -> "Characters":
        """Collect the characters of the texts."""
        characters = set()
        for text in texts:
            characters.update(normalise(text))
        return cls(sorted(characters))

    @property
    def vocabulary(self) -> int:
        """Number of ids: blank, characters, <sos/eos>."""
        return len(self.characters) + 2

    def encode(self, text: str, where: str = "text") -> list[int]:
        """Turn text into ids; UserError naming `where` for a character outside the vocabulary."""
        text = normalise(text)
        try:
            return [self._ids[character] for character in text]
        except KeyError as error:
            raise unknown_character(where, text, error.args[0]) from None

    def unknown(self, text: str) -> list[str]:
        """List the characters that are no token, in order, each as often as it stands there."""
        return [character for character in normalise(text) if character not in self._ids]

    def decode(self, ids: Iterable[int]) -> str:
        """Turn ids into text."""
        return normalise("".join(self.characters[n - 1] for n in ids if 0 < n <= len(self.characters)))

    def dropout(self, p: float):
        """Refuse: there are no merges."""
        raise UserError(
            f"data.bpe_dropout: got {p:g}, expected 0: this tokenizer is of characters, which nothing merges; use bpe"
        )

    def symbols(self) -> list[str]:
        """One printable name an id, ▁ for the space."""
        return ["<blank>", *("▁" if c == " " else c for c in self.characters), "<sos/eos>"]

    def save(self, folder: Path) -> None:
        """Write tokenizer.json."""
        save_description(folder, {"kind": "characters", "characters": self.characters})

    @classmethod
    def load(cls, description: dict, path: Path) -> "Characters":
        """Read the content of tokenizer.json."""
        characters = description.get("characters")
        if not isinstance(characters, list) or any(not isinstance(c, str) or len(c) != 1 for c in characters):
            raise UserError(f"{path}: damaged, its characters are not a list of single characters")
        return cls(characters)
