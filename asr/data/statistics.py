"""What a split holds, counted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from asr.data.manifest import Utterance

EDGES = (1, 2, 5, 10, 15, 20, 25, 30)  # seconds, between the classes of a histogram


@dataclass(frozen=True)
class Statistics:
    """The size of one split; durations in seconds.

    histogram   utterances shorter than each of EDGES, but not than the one before; and the others
    """

    utterances: int
    hours: float
    speakers: int
    words: int
    distinct_words: int
    characters: int
    shortest: float
    longest: float
    mean: float
    histogram: tuple[int, ...]

    @classmethod
    def of(cls, utterances: Sequence[Utterance]) -> "Statistics":
        """Count a split. Words stand between spaces; characters are counted without spaces, over all texts."""
        durations = [utterance.duration for utterance in utterances]
        words = [word for utterance in utterances for word in utterance.text.split()]
        return cls(
            utterances=len(utterances),
            hours=sum(durations) / 3600,
            speakers=len({u.speaker for u in utterances} - {None}),
            words=len(words),
            distinct_words=len(set(words)),
            characters=sum(map(len, words)),
            shortest=min(durations),
            longest=max(durations),
            mean=sum(durations) / len(durations),
            histogram=tuple(np.bincount(np.searchsorted(EDGES, durations, "right"), minlength=len(EDGES) + 1).tolist()),
        )


def table(splits: Mapping[str, Statistics]) -> str:
    """Lay out the splits for the terminal, one a line."""
    head = ("split", "utterances", "hours", "speakers", "words", "distinct", "characters", "seconds min/mean/max")
    return aligned([head, *(row(name, numbers) for name, numbers in splits.items())])


def histograms(splits: Mapping[str, Statistics]) -> str:
    """Lay out the durations, one split a line: per cent of the utterances by seconds."""
    head = ("% by seconds", *(f"<{edge}" for edge in EDGES), f"{EDGES[-1]}+")
    return aligned([head, *((name, *shares(numbers)) for name, numbers in splits.items())])


def shares(s: Statistics) -> list[str]:
    """Write one split's histogram; what is little shows, too."""
    percent = [100 * count / s.utterances for count in s.histogram]
    return [f"{share:.1f}" if share >= 0.05 else "<0.1" if share else "-" for share in percent]


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Lay out rows of as many columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cells(line, widths)).rstrip() for line in rows)


def row(name: str, s: Statistics) -> tuple[str, ...]:
    """Write one split's numbers."""
    seconds = f"{s.shortest:.2f} / {s.mean:.2f} / {s.longest:.2f}"
    counts = (s.words, s.distinct_words, s.characters)
    return (name, f"{s.utterances:,}", f"{s.hours:.2f}", str(s.speakers or "-"), *(f"{n:,}" for n in counts), seconds)


def cells(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Pad a row: names to the left, numbers to the right."""
    return [line[0].ljust(widths[0]), *(text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=True))]
