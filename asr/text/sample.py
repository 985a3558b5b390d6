"""A random sample of texts that are too many to be held."""

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
        """The characters that no text of the sample holds."""
        return self.characters.difference(*self.texts)


def draw(texts: Iterable[str], most: int, seed: int = 0) -> Sample:
    """Draw `most` of the texts, each as likely as any other; all if there are no more. The same seed draws the same.

    It is Vitter's algorithm R (1985): text n takes a random place of the sample with probability most / n.
    """
    kept, characters, rng = [], set(), random.Random(seed)
    for n, text in enumerate(texts):
        characters.update(text)
        if n < most:
            kept.append((n, text))
        elif (place := rng.randrange(n + 1)) < most:
            kept[place] = (n, text)
    return Sample([text for _, text in sorted(kept)], characters)
