"""Count the contents of a split."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from asr.data.manifest import Utterance

EDGES = (1, 2, 5, 10, 15, 20, 25, 30)  # edges of the histogram, in seconds


@dataclass(frozen=True)
class Statistics:
    """The size of one split; durations in seconds.

    histogram   utterances between consecutive EDGES, shorter and longer ones included
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
        """Count a split. Words are separated by spaces; characters are counted without spaces, in all texts."""
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
            histogram=tuple(
                np.bincount(
                    np.searchsorted(EDGES, durations, "right"), minlength=len(EDGES) + 1
                ).tolist()
            ),
        )


def table(splits: Mapping[str, Statistics]) -> str:
    """Format the splits for the terminal, one per line."""
    head = (
        "split",
        "utterances",
        "hours",
        "speakers",
        "words",
        "distinct",
        "characters",
        "seconds min/mean/max",
    )
    return aligned([head, *(row(name, numbers) for name, numbers in splits.items())])


def histograms(splits: Mapping[str, Statistics]) -> str:
    """Format the durations, one split per line: percent of the utterances by seconds."""
    head = ("% by seconds", *(f"<{edge}" for edge in EDGES), f"{EDGES[-1]}+")
    return aligned([head, *((name, *shares(numbers)) for name, numbers in splits.items())])


def shares(s: Statistics) -> list[str]:
    """Format one split's histogram; even small shares show."""
    percent = [100 * count / s.utterances for count in s.histogram]
    return [f"{share:.1f}" if share >= 0.05 else "<0.1" if share else "-" for share in percent]


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Align rows with the same number of columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cells(line, widths)).rstrip() for line in rows)


def row(name: str, s: Statistics) -> tuple[str, ...]:
    """Format one split's numbers."""
    seconds = f"{s.shortest:.2f} / {s.mean:.2f} / {s.longest:.2f}"
    counts = (s.words, s.distinct_words, s.characters)
    return (
        name,
        f"{s.utterances:,}",
        f"{s.hours:.2f}",
        str(s.speakers or "-"),
        *(f"{n:,}" for n in counts),
        seconds,
    )


def cells(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Pad a row: names left-aligned, numbers right-aligned."""
    return [
        line[0].ljust(widths[0]),
        *(text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=True)),
    ]
