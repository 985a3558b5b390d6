"""What the page shows: alignments with times, the most frequent errors, and the error rate of groups of utterances."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from asr.data.manifest import Utterance
from asr.scoring.error_rate import ErrorRate, Pair, alignments, split, total
from asr.scoring.significance import interval, resampled_rates
from asr.text.normalize import normalize
from asr.transcript import Transcript, Word

RESAMPLES = 1000  # of the interval of a group
ENOUGH = 5  # utterances that an interval takes
GROUPS = 8


@dataclass(frozen=True)
class Reading:
    """What one system made of an utterance.

    rate    its counts
    pairs   (reference, hypothesis) units in order; None where one has none
    words   of the hypothesis, with times and confidences; empty if unknown
    places  by pair: the index of its word; None for deletions and where words are unknown
    """

    rate: ErrorRate
    pairs: Sequence[Pair]
    words: Sequence[Word] = ()
    places: Sequence[int | None] = ()

    def outcomes(self) -> list[tuple[float, bool]]:
        """List each word's confidence and whether all of its units are right; without unknown confidences."""
        right = dict.fromkeys(range(len(self.words)), True)
        for (reference, hypothesis), place in zip(self.pairs, self.places, strict=True):
            if place is not None and reference != hypothesis:
                right[place] = False
        confidences = [(word.confidence, right[n]) for n, word in enumerate(self.words)]
        return [(known, is_right) for known, is_right in confidences if known == known]

    @property
    def confidence(self) -> float | None:
        """Mean confidence of its words; None if unknown."""
        known = [confidence for confidence, _ in self.outcomes()]
        return sum(known) / len(known) if known else None


@dataclass(frozen=True)
class Exhibit:
    """One utterance of the test set.

    recording  its line of the manifest; None if the references are no manifest
    start      seconds into the recording
    duration   seconds; 0 if unknown
    readings   one per system
    """

    id: str
    recording: Utterance | None
    start: float
    duration: float
    readings: tuple[Reading, ...]

    @property
    def errors(self) -> int:
        """Errors of the system that makes more."""
        return max(reading.rate.errors for reading in self.readings)


@dataclass(frozen=True)
class Slice:
    """Utterances that have something in common.

    utterances  their number
    rates       per system: error rate, and the bounds of its 95 % interval, None for few utterances
    """

    label: str
    utterances: int
    rates: list[tuple[float, tuple[float, float] | None]]


def exhibits(
    texts: Mapping[str, Mapping[str, str]],
    unit: str,
    recordings: Mapping[str, Utterance],
    systems: Sequence[Mapping[str, Transcript]],
    rewrite: Callable[[str], str] = str,
) -> list[Exhibit]:
    """Align all utterances.

    texts       of a Report
    recordings  id → line of the manifest, as far as known
    systems     id → transcript of each system, as far as known
    rewrite     what the texts were rewritten by before they were compared
    """
    references, *hypotheses = texts.values()
    read = [
        readings(references, each, unit, known, rewrite)
        for each, known in zip(hypotheses, systems, strict=True)
    ]
    found = []
    for id, *each in zip(references, *read, strict=True):
        of = recordings.get(id) or systems[0].get(id)
        start, duration = (of.start, of.duration) if of else (0.0, 0.0)
        found.append(Exhibit(id, recordings.get(id), start, duration, tuple(each)))
    return found


def readings(
    references: Mapping[str, str],
    hypotheses: Mapping[str, str],
    unit: str,
    known: Mapping[str, Transcript],
    rewrite: Callable[[str], str],
) -> list[Reading]:
    """Align one system's hypotheses, in the references' order."""
    texts = [hypotheses[id] for id in references]
    found = []
    for id, pairs in zip(
        references, alignments(list(references.values()), texts, unit), strict=True
    ):
        segments = known[id].segments if id in known else ()
        words = [word for segment in segments for word in segment.words]
        units = [hypothesis for _, hypothesis in pairs if hypothesis is not None]
        places = iter(located(units, [rewrite(normalize(word.text)) for word in words], unit))
        rows = [None if hypothesis is None else next(places) for _, hypothesis in pairs]
        known_words = words if any(row is not None for row in rows) else ()
        found.append(Reading(count(pairs), pairs, known_words, rows))
    return found


def count(pairs: Iterable[Pair]) -> ErrorRate:
    """Count the pairs of an alignment."""
    kinds = Counter((r is None, h is None, r == h) for r, h in pairs)
    return ErrorRate(
        hits=kinds[False, False, True],
        substitutions=kinds[False, False, False],
        deletions=kinds[False, True, False],
        insertions=kinds[True, False, False],
    )


def located(units: Sequence[str], words: Sequence[str], unit: str) -> list[int | None]:
    """Find the word that each unit of a hypothesis is part of; None for all if the words aren't its text.

    >>> located(["我", "用", "IPHONE"], ["我用", "IPHONE"], "mixed")
    [0, 0, 1]
    >>> located(["GO", "ON"], ["GO", "OFF"], "word")
    [None, None]
    """
    parts: list[tuple[str, int | None]] = []
    for n, word in enumerate(words):
        if unit == "char":
            parts += [(" ", None)] if parts else []
            parts += [(character, n) for character in word]
        else:
            parts += [(part, n) for part in split(word, unit)]
    same = [part for part, _ in parts] == list(units)
    return [place for _, place in parts] if same else [None] * len(units)


def frequent(shown: Iterable[Exhibit], most: int) -> dict[str, list[tuple[Pair, list[int]]]]:
    """Count the substitutions, deletions and insertions of each system, and keep the most frequent of each kind.

    returns  by kind: pairs and their number by system; those first that are most in all systems
    """
    counted: dict[Pair, Counter] = {}
    for each in shown:
        for system, reading in enumerate(each.readings):
            for pair in reading.pairs:
                if pair[0] != pair[1]:
                    counted.setdefault(pair, Counter())[system] += 1
        systems = range(len(each.readings))
    found: dict[str, list] = {"substitutions": [], "deletions": [], "insertions": []}
    for pair, counts in sorted(counted.items(), key=lambda x: (-x[1].total(), str(x[0]))):
        kind = "insertions" if pair[0] is None else "deletions" if pair[1] is None else ""
        found[kind or "substitutions"].append((pair, [counts[system] for system in systems]))
    return {kind: pairs[:most] for kind, pairs in found.items()}


def group(label: str, members: Sequence[Exhibit]) -> Slice:
    """Add the counts of some utterances, by system."""
    systems = list(zip(*([r.rate for r in member.readings] for member in members), strict=True))
    bounds: list = [None] * len(systems)
    if len(members) >= ENOUGH:
        bounds = [interval(rates) for rates in resampled_rates(systems, RESAMPLES)]
    rates = [(total(rates).rate, low) for rates, low in zip(systems, bounds, strict=True)]
    return Slice(label, len(members), rates)


def by_speaker(shown: Sequence[Exhibit]) -> list[Slice]:
    """Group utterances by their speaker, the worst first; nothing if fewer than two speakers are known."""
    speakers: dict[str, list[Exhibit]] = {}
    for each in shown:
        if each.recording and each.recording.speaker:
            speakers.setdefault(each.recording.speaker, []).append(each)
    groups = [group(speaker, members) for speaker, members in speakers.items()]
    return sorted(groups, key=lambda g: -g.rates[0][0]) if len(groups) > 1 else []


def by_value(
    shown: Sequence[Exhibit],
    value: Callable[[Exhibit], float | None],
    form: str,
    groups: int = GROUPS,
) -> list[Slice]:
    """Group utterances by a number, into groups of about equal count; equal numbers stay together.

    value    the number of an utterance; None leaves it out
    form     how to write the number
    returns  from low to high; nothing if all numbers are the same, or none is known
    """
    known = [(number, each) for each in shown if (number := value(each)) is not None]
    numbers = np.array([number for number, _ in known])
    if len(set(numbers)) < 2:
        return []
    edges = np.unique(np.quantile(numbers, np.arange(1, groups) / groups, method="higher"))
    members: dict[int, list[tuple[float, Exhibit]]] = {}
    for pair, place in zip(known, np.searchsorted(edges, numbers, "right"), strict=True):
        members.setdefault(int(place), []).append(pair)
    return [
        group(span([number for number, _ in part], form), [each for _, each in part])
        for _, part in sorted(members.items())
    ]


def span(numbers: Sequence[float], form: str) -> str:
    """Write the least and the largest number."""
    low, high = format(min(numbers), form), format(max(numbers), form)
    return low if low == high else f"{low} – {high}"


def length(each: Exhibit) -> int:
    """Units of the reference."""
    return each.readings[0].rate.reference


def speed(each: Exhibit) -> float | None:
    """Reference units per second; None if the duration is unknown."""
    return length(each) / each.duration if each.duration > 0 else None


def confidence(each: Exhibit) -> float | None:
    """Mean confidence of the first system's words; None if unknown."""
    return each.readings[0].confidence
