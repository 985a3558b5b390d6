"""What training checks before it starts: manifests tell the truth, lengths are in bounds, CTC can align.

`find_...` look through all and return the faults of one kind; `check_...` refuse the data if there
are any.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from asr.audio.headers import read_headers
from asr.audio.load import AudioInfo
from asr.data.columns import Ragged
from asr.data.manifest import Utterance
from asr.errors import UserError, refuse, shorten
from asr.text.tokenizer import Tokenizer, describe_character

TOLERANCE = 1e-3  # seconds between a manifest's duration and its file's
AUDIO_FIX = "run asr-prepare again"
ALIGN_FIX = (
    "check their texts, leave them out (min_seconds, max_tokens), "
    "or use larger tokens, less subsampling or speed"
)


@dataclass(frozen=True)
class Fault:
    """What is wrong with one example: its place among those that were looked at, from 0, and what it is, in words."""

    place: int
    says: str


def check_audio(cuts: Sequence, manifest: object = "manifest", progress: bool = False) -> None:
    """See that each utterance's sound file is there, whole, and as long and as fast as the manifest says.

    cuts:      Utterances or lhotse cuts
    manifest:  where they come from, for the message
    progress:  show a bar on stderr
    raises     UserError that counts the faulty ones and says of the first: id, got, expected
    """
    headers = read_headers([Utterance.of_cut(cut).path for cut in cuts], progress)
    found = [*find_unreadable(headers), *find_disagreeing(map(Utterance.of_cut, cuts), headers)]
    faults = [
        f"{cuts[fault.place].id}: {fault.says}"
        for fault in sorted(found, key=lambda fault: fault.place)
    ]
    refuse(faults, f"utterances of {manifest} that disagree with their sound files", AUDIO_FIX)


def find_unreadable(headers: Sequence[AudioInfo | UserError | None]) -> list[Fault]:
    """Find the sound files that are absent, damaged or no sound; headers: of `read_headers`."""
    return [
        Fault(place, str(header))
        for place, header in enumerate(headers)
        if isinstance(header, UserError)
    ]


def find_disagreeing(
    utterances: Iterable[Utterance], headers: Sequence[AudioInfo | UserError | None]
) -> list[Fault]:
    """Find the utterances whose sound file can be read, but has another rate or length than the manifest says.

    A recording in an archive, which has no header here, is taken to be what the manifest says of
    it.
    """
    pairs = enumerate(zip(utterances, headers, strict=True))
    own = (
        (place, u, header or AudioInfo(u.rate, u.samples, u.channels))
        for place, (u, header) in pairs
    )
    says = [
        (place, disagreement(u, header))
        for place, u, header in own
        if isinstance(header, AudioInfo)
    ]
    return [Fault(place, words) for place, words in says if words]


def disagreement(utterance: Utterance, header: AudioInfo) -> str | None:
    """Say how a manifest's line and its file's header disagree; None if they agree."""
    if header.rate != utterance.rate:
        return f"{utterance.path} has {header.rate} Hz, the manifest says {utterance.rate} Hz"
    if header.channels != utterance.channels:
        return f"{utterance.path} has {header.channels} channels, the manifest says {utterance.channels}"
    allowed = max(TOLERANCE, 1.5 / header.rate)
    stated, end = utterance.samples / utterance.rate, utterance.start + utterance.duration
    if abs(header.duration - stated) > allowed:
        return f"{utterance.path} has {header.duration:.3f} s, the manifest says {stated:.3f} s"
    if utterance.start < 0 or utterance.duration <= 0 or end > header.duration + allowed:
        where = f"the manifest asks for {utterance.start:.3f} to {end:.3f} s"
        return f"{utterance.path} has {header.duration:.3f} s, {where}"
    return None


def find_empty(texts: Sequence[str]) -> list[Fault]:
    """Find the texts without a word."""
    return [Fault(place, "has no words") for place, text in enumerate(texts) if not text.strip()]


def find_unknown(texts: Sequence[str], tokenizer: Tokenizer) -> list[Fault]:
    """Find the texts with characters outside the tokenizer's vocabulary."""
    unknown = (
        (place, text, dict.fromkeys(tokenizer.unknown(text))) for place, text in enumerate(texts)
    )
    return [
        Fault(place, f"{', '.join(map(describe_character, characters))} of {text!r}")
        for place, text, characters in unknown
        if characters
    ]


def find_repeated(ids: Sequence[str]) -> list[Fault]:
    """Find the ids that stood there before; the first of each is none of them."""
    first: dict[str, int] = {}
    return [
        Fault(place, "appears earlier")
        for place, name in enumerate(ids)
        if first.setdefault(name, place) != place
    ]


def find_shared(values: Sequence[str | None], others: Iterable[str | None]) -> list[Fault]:
    """Find the values, such as speakers, that stand among the others too; None and empty ones are no values."""
    known = set(others) - {None, ""}
    return [Fault(place, value) for place, value in enumerate(values) if value and value in known]


@dataclass(frozen=True)
class Limits:
    """Lengths that training accepts, the bounds included; None = any number of tokens."""

    min_seconds: float = 0.0
    max_seconds: float = math.inf
    max_tokens: int | None = None

    def __post_init__(self):
        if not 0 <= self.min_seconds <= self.max_seconds:
            got = f"{self.min_seconds:g} and {self.max_seconds:g}"
            raise UserError(f"min_seconds and max_seconds: expected 0 <= min <= max, got {got}")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise UserError(f"max_tokens: expected 1 or more, got {self.max_tokens}")

    def reason(self, seconds: float, tokens: int) -> str | None:
        """Say which limit an utterance breaks, None if none."""
        if seconds < self.min_seconds:
            return f"shorter than min_seconds={self.min_seconds:g}"
        if seconds > self.max_seconds:
            return f"longer than max_seconds={self.max_seconds:g}"
        if self.max_tokens is not None and tokens > self.max_tokens:
            return f"more tokens than max_tokens={self.max_tokens}"
        return None


@dataclass(frozen=True)
class Selection:
    """What limits keep and drop.

    kept:     (K,) int64, places of the kept utterances, in order
    dropped:  id → reason
    """

    kept: np.ndarray
    dropped: dict[str, str]

    @property
    def message(self) -> str:
        """Count what was dropped, by reason, and name the first; empty if nothing was."""
        if not self.dropped:
            return ""
        groups: dict[str, list[str]] = {reason: [] for reason in self.dropped.values()}
        for name, reason in self.dropped.items():
            groups[reason].append(name)
        parts = [f"{len(names)} {reason} ({shorten(names)})" for reason, names in groups.items()]
        return f"dropped {len(self.dropped)} of {len(self.kept) + len(self.dropped)} utterances: {'; '.join(parts)}"

    def lines(self) -> str:
        """List all that was dropped, `id<TAB>reason` a line, for a file."""
        return "".join(f"{name}\t{reason}\n" for name, reason in self.dropped.items())


def find_outside(
    durations: Sequence[float] | np.ndarray, token_counts: Sequence[int], limits: Limits
) -> list[Fault]:
    """Find the utterances outside the limits; a fault says which limit."""
    pairs = enumerate(zip(durations, token_counts, strict=True))
    reasons = ((place, limits.reason(seconds, tokens)) for place, (seconds, tokens) in pairs)
    return [Fault(place, reason) for place, reason in reasons if reason]


def apply_limits(
    ids: Sequence[str],
    durations: Sequence[float] | np.ndarray,
    token_counts: Sequence[int],
    limits: Limits,
) -> Selection:
    """Find the utterances within the limits.

    ids:           of the utterances
    durations:     seconds
    token_counts:  of each
    raises         UserError if none is left
    """
    outside = find_outside(durations, token_counts, limits)
    kept = np.delete(np.arange(len(ids)), [fault.place for fault in outside])
    selection = Selection(kept, {ids[fault.place]: fault.says for fault in outside})
    if not len(kept):
        raise UserError(
            f"the length limits leave no utterance: {selection.message or 'there was none'}; widen them"
        )
    return selection


def check_alignable(
    ids: Sequence[str],
    durations: Sequence[float] | np.ndarray,
    labels: Ragged,
    frames_of: Callable[[int], int],
    rate: int,
    speeds: Sequence[float] = (1.0,),
) -> None:
    """Check that CTC can align each utterance: one frame per token, and one for the blank between two equal ones.

    ids:        of the utterances
    durations:  seconds
    labels:     token ids of each
    frames_of:  samples at `rate` → encoder frames
    rate:       of the model, Hz
    speeds:     factors of speed perturbation; the fastest leaves the fewest frames
    raises      UserError that names the utterances, their frames, the frames needed, and the speed
    """
    faults = find_unalignable(durations, labels, frames_of, rate, speeds)
    names = [f"{ids[fault.place]} ({fault.says})" for fault in faults]
    refuse(names, "utterances too short for CTC to align", ALIGN_FIX)


def find_unalignable(
    durations: Sequence[float] | np.ndarray,
    labels: Ragged,
    frames_of: Callable[[int], int],
    rate: int,
    speeds: Sequence[float] = (1.0,),
) -> list[Fault]:
    """Find the utterances that CTC can't align at the fastest speed; see `check_alignable` for the arguments."""
    frames, needed, tokens = (
        fewest_frames(durations, frames_of, rate, speeds),
        frames_needed(labels),
        labels.lens,
    )
    return [
        Fault(
            n,
            f"{frames[n]} frames at speed {max(speeds):g}, {needed[n]} needed for {tokens[n]} tokens",
        )
        for n in np.flatnonzero(frames < needed).tolist()
    ]


def fewest_frames(
    durations: Sequence[float] | np.ndarray,
    frames_of: Callable[[int], int],
    rate: int,
    speeds: Sequence[float] = (1.0,),
) -> np.ndarray:
    """Count the encoder frames of utterances at the fastest speed, (N,) int64; see `check_alignable`."""
    samples = (np.asarray(durations) * rate / max(speeds) + 1e-6).astype(np.int64)
    lengths, places = np.unique(samples, return_inverse=True)
    return np.array([frames_of(n) for n in lengths.tolist()], dtype=np.int64)[places]


def frames_needed(labels: Ragged) -> np.ndarray:
    """Count the frames of each row's shortest CTC path: the tokens, and a blank between adjacent equal ones, (N,).

    >>> frames_needed(Ragged.of_ids([[7, 7, 3], []], vocabulary=9))
    array([4, 0])
    """
    # places of tokens like the one before
    equal = np.flatnonzero(labels.values[1:] == labels.values[:-1]) + 1
    rows = np.searchsorted(labels.offsets, equal, side="right") - 1
    rows = rows[labels.offsets[rows] < equal]  # without those that begin a row
    return labels.lens + np.bincount(rows, minlength=len(labels))
