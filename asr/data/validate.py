"""What training checks before it starts: manifests tell the truth, lengths are in bounds, CTC can align."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from asr.audio import AudioInfo
from asr.data.corpora.corpus import refuse
from asr.data.headers import read_headers
from asr.data.manifest import Utterance
from asr.errors import UserError, shorten

TOLERANCE = 1e-3  # seconds between a manifest's duration and its file's


def check_audio(cuts: Iterable, manifest: object = "manifest", progress: bool = False) -> None:
    """See that each utterance's sound file is there, whole, and as long and as fast as the manifest says.

    cuts:      Utterances or lhotse cuts
    manifest:  where they come from, for the message
    progress:  show a bar on stderr
    raises     UserError that counts the faulty ones and says of the first: id, got, expected
    """
    utterances = [Utterance.of_cut(cut) for cut in cuts]
    headers = read_headers([utterance.path for utterance in utterances], progress)
    faults = [disagreement(utterance, header) for utterance, header in zip(utterances, headers, strict=True)]
    faults = [fault for fault in faults if fault]
    refuse(faults, f"utterances of {manifest} that disagree with their sound files", "run asr-prepare again")


def disagreement(utterance: Utterance, header: AudioInfo | UserError) -> str | None:
    """Say how a manifest's line and its file's header disagree; None if they agree."""
    if isinstance(header, UserError):
        return f"{utterance.id}: {header}"
    if header.rate != utterance.rate:
        return f"{utterance.id}: {utterance.path} has {header.rate} Hz, the manifest says {utterance.rate} Hz"
    allowed = max(TOLERANCE, 1.5 / header.rate)
    said, end = utterance.samples / utterance.rate, utterance.start + utterance.duration
    if abs(header.duration - said) > allowed:
        return f"{utterance.id}: {utterance.path} has {header.duration:.3f} s, the manifest says {said:.3f} s"
    if utterance.start < 0 or utterance.duration <= 0 or end > header.duration + allowed:
        where = f"the manifest asks for {utterance.start:.3f} to {end:.3f} s"
        return f"{utterance.id}: {utterance.path} has {header.duration:.3f} s, {where}"
    return None


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

    kept:     places of the kept utterances, in order
    dropped:  id → reason
    """

    kept: list[int]
    dropped: dict[str, str]

    @property
    def message(self) -> str:
        """Count what was dropped, by reason, and name the first; empty if nothing was."""
        if not self.dropped:
            return ""
        groups = {reason: [] for reason in self.dropped.values()}
        for name, reason in self.dropped.items():
            groups[reason].append(name)
        parts = [f"{len(names)} {reason} ({shorten(names)})" for reason, names in groups.items()]
        return f"dropped {len(self.dropped)} of {len(self.kept) + len(self.dropped)} utterances: {'; '.join(parts)}"

    def lines(self) -> str:
        """List all that was dropped, `id<TAB>reason` a line, for a file."""
        return "".join(f"{name}\t{reason}\n" for name, reason in self.dropped.items())


def apply_limits(cuts: Sequence, limits: Limits, token_counts: Sequence[int]) -> Selection:
    """Find the utterances within the limits.

    cuts:          Utterances or lhotse cuts (id and duration count)
    token_counts:  of each
    raises         UserError if none is left
    """
    kept, dropped = [], {}
    for place, (cut, tokens) in enumerate(zip(cuts, token_counts, strict=True)):
        reason = limits.reason(cut.duration, tokens)
        if reason is None:
            kept.append(place)
        else:
            dropped[cut.id] = reason
    selection = Selection(kept, dropped)
    if not kept:
        raise UserError(f"the length limits leave no utterance: {selection.message or 'there was none'}; widen them")
    return selection


def check_alignable(
    ids: Sequence[str],
    durations: Sequence[float],
    labels: Sequence[Sequence[int]],
    frames_of: Callable[[int], int],
    rate: int,
    speeds: Sequence[float] = (1.0,),
) -> None:
    """See that CTC can align each utterance: a frame a token, and one for the blank between two equal ones.

    ids:        of the utterances
    durations:  seconds
    labels:     token ids of each
    frames_of:  samples at `rate` → encoder frames
    rate:       of the model, Hz
    speeds:     factors of speed perturbation; the fastest leaves the fewest frames
    raises      UserError that names the utterances, their frames, the frames needed, and the speed
    """
    fastest = max(speeds)
    faults = []
    for name, duration, tokens in zip(ids, durations, labels, strict=True):
        frames, needed = frames_of(int(duration * rate / fastest + 1e-6)), frames_needed(tokens)
        if frames < needed:
            faults.append(f"{name} ({frames} frames at speed {fastest:g}, {needed} needed for {len(tokens)} tokens)")
    refuse(
        faults,
        "utterances too short for CTC to align",
        "check their texts, leave them out (min_seconds, max_tokens), or use larger tokens, less subsampling or speed",
    )


def frames_needed(tokens: Sequence[int]) -> int:
    """Count the frames of the shortest CTC path: the tokens, and a blank between adjacent equal ones.

    >>> frames_needed([7, 7, 3])
    4
    """
    return len(tokens) + sum(a == b for a, b in zip(tokens, tokens[1:], strict=False))
