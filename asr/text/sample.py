"""Draw a random sample of texts that don't all fit in memory."""

import random
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """Some texts, in their order, and every character of all texts."""

    texts: list[str]
    characters: set[str]

    @property
    def missing(self) -> set[str]:
        """List the characters that are in no text of the sample."""
        return self.characters.difference(*self.texts)


def draw(texts: Iterable[str], most: int, seed: int = 0) -> Sample:
    """Draw up to `most` texts, each with the same probability. The same seed draws the same texts.

    This is Vitter's algorithm R (1985): text n replaces a random text of the sample with
    probability most / n.
    """
    kept: list[tuple[int, str]] = []
    characters: set[str] = set()
    rng = random.Random(seed)
    for n, text in enumerate(texts):
        characters.update(text)
        if n < most:
            kept.append((n, text))
        elif (place := rng.randrange(n + 1)) < most:
            kept[place] = (n, text)
    return Sample([text for _, text in sorted(kept)], characters)
