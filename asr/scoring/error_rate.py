"""The error rate as a value: counts that add, and a ratio that is never averaged."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import zip_longest
from operator import add
from typing import Any

from asr.text.units import units

Pair = tuple[str | None, str | None]


@dataclass(frozen=True)
class ErrorRate:
    """Edit counts of hypotheses against references, in words, characters or mixed units.

    >>> ErrorRate(hits=3, substitutions=1, deletions=0, insertions=1) + ErrorRate(2, 0, 2, 0)
    ErrorRate(hits=5, substitutions=1, deletions=2, insertions=1)
    """

    hits: int
    substitutions: int
    deletions: int
    insertions: int

    def __post_init__(self):
        counts = (self.hits, self.substitutions, self.deletions, self.insertions)
        if any(not isinstance(count, int) or count < 0 for count in counts):
            raise ValueError(f"expected counts of 0 or more, got {counts}")

    @property
    def errors(self) -> int:
        """Substitutions, deletions and insertions."""
        return self.substitutions + self.deletions + self.insertions

    @property
    def reference(self) -> int:
        """Units of the reference."""
        return self.hits + self.substitutions + self.deletions

    @property
    def rate(self) -> float:
        """Errors per reference unit, 0.05 for 5 %; may exceed 1."""
        if not self.reference:
            raise ValueError("the reference is empty: there is no error rate")
        return self.errors / self.reference

    def __add__(self, other: "ErrorRate") -> "ErrorRate":
        return ErrorRate(
            self.hits + other.hits,
            self.substitutions + other.substitutions,
            self.deletions + other.deletions,
            self.insertions + other.insertions,
        )

    def __radd__(self, other: int) -> "ErrorRate":
        """Let `sum` begin with its 0."""
        return self if other == 0 else NotImplemented


def total(rates: Iterable[ErrorRate]) -> ErrorRate:
    """Add error rates, one or more."""
    return reduce(add, rates)


def error_rates(references: Sequence[str], hypotheses: Sequence[str], unit: str) -> list[ErrorRate]:
    """Align each hypothesis with its reference by jiwer.

    references:  texts, none empty
    hypotheses:  texts, may be empty
    unit:        "word": split at whitespace; "char": characters, spaces between words count as such
                 (jiwer's way; Han text has none); "mixed": characters of scripts without spaces,
                 and words (`asr.text.units`)
    returns      one ErrorRate per utterance
    """
    if not references:
        return []
    found = _process(references, hypotheses, unit)
    return [
        of_alignment(*pair)
        for pair in zip(found.alignments, map(len, found.references), strict=True)
    ]


def alignments(references: Sequence[str], hypotheses: Sequence[str], unit: str) -> list[list[Pair]]:
    """Pair units of each reference with those of its hypothesis; arguments as `error_rates`.

    returns      per utterance: (reference, hypothesis) units in order; None where one has none

    >>> alignments(["GO ON UP"], ["GO IN UP THERE"], "word")
    [[('GO', 'GO'), ('ON', 'IN'), ('UP', 'UP'), (None, 'THERE')]]
    """
    if not references:
        return []
    found = _process(references, hypotheses, unit)
    return [
        [
            pair
            for chunk in chunks
            for pair in zip_longest(
                reference[chunk.ref_start_idx : chunk.ref_end_idx],
                hypothesis[chunk.hyp_start_idx : chunk.hyp_end_idx],
            )
        ]
        for chunks, reference, hypothesis in zip(
            found.alignments, found.references, found.hypotheses, strict=True
        )
    ]


def _process(references: Sequence[str], hypotheses: Sequence[str], unit: str) -> Any:
    """Return jiwer's alignments, with the units that they align."""
    import jiwer

    process: Callable = jiwer.process_characters if unit == "char" else jiwer.process_words
    return process(
        *([" ".join(split(text, unit)) for text in texts] for texts in (references, hypotheses))
    )


def split(text: str, unit: str) -> list[str]:
    """Cut a text into what jiwer's units are made of: words; mixed units for "mixed"."""
    return units(text) if unit == "mixed" else text.split()


def of_alignment(chunks: Sequence, length: int) -> ErrorRate:
    """Count one utterance's jiwer alignment; it has to cover the `length` reference units."""
    counts = {"equal": 0, "substitute": 0, "delete": 0, "insert": 0}
    for chunk in chunks:
        reference, hypothesis = (
            chunk.ref_end_idx - chunk.ref_start_idx,
            chunk.hyp_end_idx - chunk.hyp_start_idx,
        )
        counts[chunk.type] += max(reference, hypothesis)
    rate = ErrorRate(counts["equal"], counts["substitute"], counts["delete"], counts["insert"])
    if rate.reference != length:
        raise ValueError(
            f"expected hits + substitutions + deletions = {length} reference units, got {rate}"
        )
    return rate
