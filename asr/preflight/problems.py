"""Faults of the data: each kind with its count, its first examples and its fix."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np

from asr.audio.headers import read_headers
from asr.data import manifest, texts
from asr.data.columns import Ragged, Table
from asr.data.manifest import Utterance, listed
from asr.data.parallel import join, sides
from asr.data.texts import Text, gather
from asr.data.validate import (
    ALIGN_FIX,
    AUDIO_FIX,
    Fault,
    Limits,
    find_disagreeing,
    find_empty,
    find_outside,
    find_repeated,
    find_shared,
    find_unalignable,
    find_unknown,
    find_unreadable,
)
from asr.errors import UserError, shorten
from asr.models.recognizer import Recognizer
from asr.text.normalize import normalize
from asr.text.tokenizer import UNKNOWN_FIX, Tokenizer, describe_character
from asr.training.settings import DataSettings, PairDataSettings, TextDataSettings

SHOWN = 3  # examples of a problem
LINES = 1_000_000  # checked of a text
SHARED_FIX = {
    "ids": "give each recording to one set alone",
    "speakers": "give each speaker to one set alone, or read the error rate as that of known speakers",
    "texts": "take them out of one set, or read the error rate as that of known texts",
}


@dataclass(frozen=True)
class DataSet:
    """A data set as its file states it, in columns.

    role        train, dev, or test
    path        of its file; of several, all their paths
    files       of each example
    lines       number of each example's line in its file
    ids         of utterances; empty in a plain text
    utterances  of a manifest; empty in a plain text
    """

    role: str
    path: str
    files: list[str]
    lines: list[int]
    texts: list[str]
    ids: list[str] = field(default_factory=list)
    utterances: list[Utterance] = field(default_factory=list)

    def select(self, places: Iterable[int]) -> "DataSet":
        """Keep the examples at some places."""
        places = list(places)
        columns: list[Any] = [self.files, self.lines, self.texts, self.ids, self.utterances]
        files, lines, texts, ids, utterances = (
            [column[n] for n in places] if column else [] for column in columns
        )
        return DataSet(self.role, self.path, files, lines, texts, ids, utterances)

    def where(self, place: int) -> str:
        """Name the file and line of an example."""
        return f"{self.files[place]}:{self.lines[place]}"

    @property
    def stops(self) -> bool:
        """Whether training refuses its faults."""
        return self.role != "test"

    @property
    def message(self) -> str:
        """Its size in words."""
        words = sum(len(text.split()) for text in self.texts)
        if not self.utterances:
            return f"{len(self.lines):,} lines, {words:,} words"
        hours = sum(u.duration for u in self.utterances) / 3600
        speakers = len({u.speaker for u in self.utterances} - {None})
        return f"{len(self.lines):,} utterances, {hours:,.2f} hours, {speakers or 'unknown'} speakers, {words:,} words"


@dataclass(frozen=True)
class Problem:
    """One kind of fault of one data set, or of the settings.

    stops     whether training refuses it
    role      train, dev, test or settings
    what      description
    fix       empty if `what` has it
    count     of faults, among `of` examples; of = 0: nothing to count
    examples  the first faults, one line each
    """

    stops: bool
    role: str
    what: str
    fix: str = ""
    count: int = 1
    of: int = 0
    examples: tuple[str, ...] = ()

    @classmethod
    def of_faults(
        cls, source: DataSet, faults: Sequence[Fault], what: str, fix: str, stops: bool
    ) -> list["Problem"]:
        """Make a problem of faults; none if there are none."""
        names = [f"{name}: " for name in source.ids] or [""] * len(source.lines)
        examples = tuple(
            f"{source.where(f.place)}: {names[f.place]}{f.says}" for f in faults[:SHOWN]
        )
        return (
            [cls(stops, source.role, what, fix, len(faults), len(source.lines), examples)]
            if faults
            else []
        )


Kind = tuple[DataSet, list[Fault], str, str]  # where, the faults, their description, the fix


@dataclass(frozen=True)
class Look:
    """The findings in one data set; `usable` is what training can use of it, None if nothing."""

    source: DataSet
    problems: list[Problem]
    usable: Any


def look_at_speech(
    role: str, paths: str | Sequence[str], data: DataSettings, model: Recognizer, progress: bool
) -> Look:
    """Check manifests as training does: all texts, and the recordings and alignments within the limits.

    returns   with `usable` a pair: utterances, and the token ids of their texts
    """
    source, problems = read_manifests(role, listed(paths))
    unknown = unknown_characters(source, model.tokenizer)
    labels = encode_known(source, unknown[1], model.tokenizer)
    limits = (
        Limits(data.min_seconds, data.max_seconds, data.max_tokens) if source.stops else Limits()
    )
    outside = find_outside(
        [u.duration for u in source.utterances], [len(y) for y in labels], limits
    )
    within = without(range(len(labels)), outside)
    kept = source.select(within)
    kept_labels = Ragged.of_ids((labels[n] for n in within), model.tokenizer.vocabulary)
    speeds = data.speeds if role == "train" else [1.0]
    kinds = [
        *kinds_of_text(source),
        unknown,
        *kinds_of_audio(kept, kept_labels, model, speeds, progress),
    ]
    problems += [
        problem for kind in kinds for problem in Problem.of_faults(*kind, stops=source.stops)
    ]
    sizes = [
        f"{u.duration:.2f} s, {len(y)} tokens"
        for u, y in zip(source.utterances, labels, strict=True)
    ]
    problems += left_out(source, outside, sizes)
    if source.lines and not within:
        problems.append(
            Problem(True, role, f"{source.path}: the length limits leave no utterance; widen them")
        )
    bad = {part.where(fault.place) for part, faults, *_ in kinds for fault in faults}
    good = [n for n in range(len(kept.lines)) if kept.where(n) not in bad]
    usable = (
        Table.of(kept.utterances[n] for n in good),
        kept_labels.select(np.array(good, dtype=np.int64)),
    )
    return Look(source, problems, usable if good else None)


def kinds_of_text(source: DataSet) -> list[Kind]:
    """Check the lines of a manifest by themselves."""
    return [
        (source, find_empty(source.texts), "empty texts", "transcribe them, or take them out"),
        (source, find_repeated(source.ids), "repeated ids", "give each its own"),
    ]


def kinds_of_audio(
    kept: DataSet, labels: Ragged, model: Recognizer, speeds: Sequence[float], progress: bool
) -> list[Kind]:
    """Check the recordings within the limits; a test set needs no alignment."""
    headers = read_headers([u.path for u in kept.utterances], progress)
    durations = [u.duration for u in kept.utterances]
    unaligned = find_unalignable(durations, labels, model.encoder_frames, model.sample_rate, speeds)
    return [
        (
            kept,
            find_unreadable(headers),
            "missing or unreadable sound files",
            f"restore them, or {AUDIO_FIX}",
        ),
        (
            kept,
            find_disagreeing(kept.utterances, headers),
            "other lengths or rates than their sound files",
            AUDIO_FIX,
        ),
        (kept, unaligned if kept.stops else [], "too short for CTC to align", ALIGN_FIX),
    ]


def look_at_pairs(
    role: str,
    paths: str | Sequence[str],
    data: PairDataSettings,
    tokenizers: Sequence[Tokenizer],
) -> Look:
    """Check a translator's sentences, those of the source and of the target, and that their lines belong together.

    returns   with the source of `Look` the target's texts, by which a set shares something with
              another
    """
    looks = [
        look_at_text(role, path, data, tokenizer, column)
        for (path, column), tokenizer in zip(sides(paths), tokenizers, strict=True)
    ]
    # both columns of one table may have the same problem
    problems = list(dict.fromkeys(problem for look in looks for problem in look.problems))
    usable = None
    if all(look.usable for look in looks) and not any(problem.stops for problem in problems):
        try:
            usable = join(*(look.usable for look in looks))
        except UserError as error:
            problems.append(Problem(role != "test", role, str(error)))
    return Look(looks[1].source, problems, usable)


def look_at_text(
    role: str,
    path: str,
    data: TextDataSettings | PairDataSettings,
    tokenizer: Tokenizer,
    column: int | None = None,
) -> Look:
    """Check a language model's text, or one side of a translator's."""
    source, problems = read_text(role, path, column)
    unknown, empty = unknown_characters(source, tokenizer), find_empty(source.texts)
    counts = [len(y) for y in encode_known(source, unknown[1], tokenizer)]
    # of dev and test nothing is left out
    limits = Limits(max_tokens=data.max_tokens if role == "train" else None)
    problems += Problem.of_faults(*unknown, stops=source.stops)
    problems += Problem.of_faults(source, empty, "empty lines", "they are skipped", stops=False)
    outside = find_outside([0.0] * len(counts), counts, limits)
    problems += left_out(source, outside, [f"{count} tokens" for count in counts])
    good = source.select(without(range(len(counts)), unknown[1]))
    lines = zip(good.lines, good.texts, strict=True)
    try:
        usable = gather(
            path,
            (Text(f"{path}:{line}", line, text) for line, text in lines),
            tokenizer,
            limits.max_tokens,
        )
        unusable = [source.lines[fault.place] for fault in unknown[1]]
        usable = replace(usable, long=[*usable.long, *unusable])  # left out, not missing: `join`
    except UserError as error:
        problems += [Problem(True, role, str(error))] * (not problems)
        usable = None
    return Look(source, problems, usable)


def read_manifests(role: str, paths: Sequence[str]) -> tuple[DataSet, list[Problem]]:
    """Read each manifest up to its first fatal error."""
    read, problems = [], []
    for path in paths:
        lines, fatal = as_far_as_possible(role, manifest.numbered(path))
        read += [(path, line, utterance) for line, utterance in lines]
        problems += fatal
    broken = [error for *_, error in read if isinstance(error, UserError)]
    if broken:
        what, examples = "lines that are not utterances", tuple(map(str, broken[:SHOWN]))
        problems.append(
            Problem(True, role, what, "run asr-prepare again", len(broken), len(read), examples)
        )
    good, name = [part for part in read if isinstance(part[-1], Utterance)], ", ".join(paths)
    if not good and not problems:
        problems.append(
            Problem(True, role, f"{name}: has no utterances; asr-prepare makes manifests")
        )
    utterances = [u for *_, u in good]
    columns = [u.text for u in utterances], [u.id for u in utterances], utterances
    return DataSet(
        role, name, [path for path, *_ in good], [line for _, line, _ in good], *columns
    ), problems


def read_text(role: str, path: str, column: int | None = None) -> tuple[DataSet, list[Problem]]:
    """Read a text up to its first error, and at most LINES lines of it."""
    read, problems = as_far_as_possible(role, islice(texts.read(path, column), LINES + 1))
    if len(read) > LINES:
        read.pop()
        problems.append(
            Problem(
                False,
                role,
                f"only the first {LINES:,} lines of {path} were checked and counted",
            )
        )
    return DataSet(
        role, path, [path] * len(read), [text.line for text in read], [text.text for text in read]
    ), problems


def as_far_as_possible(role: str, items: Iterable) -> tuple[list, list[Problem]]:
    """Take items up to the first error, which becomes a problem."""
    taken: list = []
    try:
        for item in items:
            taken.append(item)
    except UserError as error:
        return taken, [Problem(True, role, str(error))]
    return taken, []


def without(places: Iterable[int], faults: Iterable[Fault]) -> list[int]:
    """Return the places without a fault."""
    bad = {fault.place for fault in faults}
    return [place for place in places if place not in bad]


def encode_known(
    source: DataSet, unknown: Iterable[Fault], tokenizer: Tokenizer
) -> list[list[int]]:
    """Tokenize all texts without their unknown characters, so that other faults show too."""
    known = list(source.texts)
    for fault in unknown:
        characters = set(tokenizer.unknown(known[fault.place]))
        known[fault.place] = "".join(
            c for c in normalize(known[fault.place]) if c not in characters
        )
    return [tokenizer.encode(text) for text in known]


def unknown_characters(source: DataSet, tokenizer: Tokenizer) -> Kind:
    """Find the texts with unknown characters; count these, the most frequent first."""
    faults = find_unknown(source.texts, tokenizer)
    counts = Counter(c for fault in faults for c in tokenizer.unknown(source.texts[fault.place]))
    named = [f"{describe_character(c)} ×{n}" for c, n in counts.most_common()]
    return (
        source,
        faults,
        f"texts with characters outside the vocabulary: {shorten(named, 10)}",
        UNKNOWN_FIX,
    )


def left_out(source: DataSet, outside: Sequence[Fault], sizes: Sequence[str]) -> list[Problem]:
    """List what each limit leaves out of training; sizes: of all examples, in words."""
    fix, problems = "they are left out; widen the limit to keep them", []
    for reason in dict.fromkeys(fault.says for fault in outside):
        faults = [
            Fault(fault.place, sizes[fault.place]) for fault in outside if fault.says == reason
        ]
        problems += Problem.of_faults(source, faults, reason, fix, stops=False)
    return problems


def shared(one: DataSet, other: DataSet) -> list[Problem]:
    """List what two data sets share, as problems of the second: ids, speakers (each counted once), texts."""
    columns: dict[str, tuple[Sequence[str | None], Sequence[str | None]]] = {
        "ids": (one.ids, other.ids),
        "speakers": ([u.speaker for u in one.utterances], [u.speaker for u in other.utterances]),
        "texts": (
            [normalize(text) for text in one.texts],
            [normalize(text) for text in other.texts],
        ),
    }
    problems = []
    for name, (known, values) in columns.items():
        places = list(firsts(values).values()) if name == "speakers" else list(range(len(values)))
        first, found = firsts(known), find_shared([values[n] for n in places], known)
        faults = [Fault(f.place, f"{f.says!r} is in {one.where(first[f.says])}") for f in found]
        what = f"{name} shared with {one.path if one.role == 'test' else one.role}"
        problems += Problem.of_faults(
            other.select(places), faults, what, SHARED_FIX[name], stops=False
        )
    return problems


def firsts(values: Sequence[str | None]) -> dict[str | None, int]:
    """Map each value to its first place."""
    places: dict[str | None, int] = {}
    for place, value in enumerate(values):
        places.setdefault(value, place)
    return places
