"""What a split holds, counted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from asr.data.manifest import Utterance


@dataclass(frozen=True)
class Statistics:
    """The size of one split; durations in seconds."""

    utterances: int
    hours: float
    speakers: int
    words: int
    distinct_words: int
    characters: int
    shortest: float
    longest: float
    mean: float

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
        )


def table(splits: Mapping[str, Statistics]) -> str:
    """Lay out the splits for the terminal, one a line."""
    head = ("split", "utterances", "hours", "speakers", "words", "distinct", "characters", "seconds min/mean/max")
    rows = [head, *(row(name, numbers) for name, numbers in splits.items())]
    widths = [max(len(line[column]) for line in rows) for column in range(len(head))]
    return "\n".join("  ".join(cells(line, widths)).rstrip() for line in rows)


def row(name: str, s: Statistics) -> tuple[str, ...]:
    """Write one split's numbers."""
    seconds = f"{s.shortest:.2f} / {s.mean:.2f} / {s.longest:.2f}"
    counts = (s.words, s.distinct_words, s.characters)
    return (name, f"{s.utterances:,}", f"{s.hours:.2f}", str(s.speakers or "-"), *(f"{n:,}" for n in counts), seconds)


def cells(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Pad a row: names to the left, numbers to the right."""
    return [line[0].ljust(widths[0]), *(text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=True))]
