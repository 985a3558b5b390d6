"""The description of a path: its kind and facts, as text and as JSON."""

import unicodedata
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """The description of a path.

    path   as given
    kind   in a few words, such as "tokenizer"
    facts  name → JSON value; None is left out of the text
    """

    path: str
    kind: str
    facts: dict[str, object]

    def text(self) -> str:
        """Format it for a terminal, without control characters from strangers."""
        known = {
            name.replace("_", " "): formatted(value)
            for name, value in self.facts.items()
            if value not in (None, "")
        }
        width = max(map(len, known), default=0)
        return "\n".join(
            [
                f"{printable(self.path)}: {self.kind}",
                *(f"  {name:{width}}  {value}" for name, value in known.items()),
            ]
        )

    def as_json(self) -> dict:
        """Return everything as plain values."""
        return {
            "path": self.path.encode("utf-8", "backslashreplace").decode(),
            "kind": self.kind,
            **self.facts,
        }


def formatted(value: object) -> str:
    """Format a fact: large numbers with thousands separators, lists with commas."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 100_000 else str(value)
    if isinstance(value, list):
        return ", ".join(map(formatted, value))
    if isinstance(value, dict):
        return ", ".join(
            f"{printable(str(name))} {formatted(part)}" for name, part in value.items()
        )
    return printable(f"{value:.4g}" if isinstance(value, float) else str(value))


def printable(text: str) -> str:
    r"""Escape characters that control a terminal or can't be shown.

    >>> printable("a\x1b[2J")
    'a\\x1b[2J'
    """
    shown = (
        c if unicodedata.category(c)[0] != "C" else c.encode("unicode_escape").decode()
        for c in text
    )
    return "".join(shown)
