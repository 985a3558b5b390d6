"""Where the segments of a stream end: the three rules of the field (Kaldi's online endpoints), from CTC's blanks.

A frame is silent where CTC is sure of the blank and no token follows. A segment ends
- after silence, once something was recognized;
- after a longer silence, if nothing was recognized: it is forgotten;
- when it is as long as the model knows: where no word is cut, and within one word between two tokens.

The next segment begins before the last moments of the silence, in which a word may have begun that
CTC hasn't emitted yet.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from asr.options import check, option

if TYPE_CHECKING:  # a command shows its help without
    import numpy as np

Span = tuple[float, float]  # seconds
Frames = tuple[int, int]  # of the encoder, first ≤ t < end
SILENT = 0.8  # least posterior of the blank in a silent frame
KEPT = 0.3  # seconds of silence that a segment keeps behind its last token
AHEAD = 0.3  # seconds of silence with which the next one begins
FINALS_IN = ("chunks", "whole")


@dataclass(frozen=True)
class EndpointOptions:
    """When a segment of a stream ends, in seconds; and what is searched then."""

    end_silence: float = option(1.0, "seconds of silence that end a segment", least=KEPT + AHEAD)
    no_speech: float = option(
        2.4,
        "seconds of silence without a word after which a segment is discarded",
        least=KEPT + AHEAD,
    )
    longest: float = option(
        20.0,
        "seconds after which speech without a pause is cut between two words; less, if the longest "
        "training recording is shorter",
        least=1,
        most=600,
    )
    finals: str = option(
        "chunks",
        "what final results are searched in: chunks, as the encoder read them, or the whole segment, "
        "which it reads again (as accurate as a file; for models trained with whole utterances, too)",
        choices=FINALS_IN,
    )

    def __post_init__(self):
        check(self)


class Endpoint(NamedTuple):
    """The segment's encoder frames are those before `end`; the next one begins with the samples of frame `next`.

    After a cut, `end` may be the later one: CTC may emit a word's last token when the word is over.
    """

    end: int
    next: int


def after_silence(
    silent: np.ndarray, spoken: int, frame_seconds: float, options: EndpointOptions
) -> Endpoint | None:
    """Decide whether a segment has ended in silence.

    silent   (T,) bool
    spoken   frames up to the last token, which a search may find where CTC is sure of the blank; 0 if
             nothing was recognized
    """
    T, (heard,) = len(silent), (~silent).nonzero()
    last = max(spoken, int(heard[-1]) + 1 if len(heard) else 0)
    enough = options.end_silence if spoken else options.no_speech
    if (T - last) * frame_seconds < enough:
        return None
    end = last + round(KEPT / frame_seconds)
    return Endpoint(end, max(end, T - round(AHEAD / frame_seconds)))


def between(
    spans: Sequence[Span], emitted: Sequence[Frames], frames: int, frame_seconds: float
) -> Endpoint | None:
    """Cut a segment that is too long in the widest gap of its second half, else in the last one; None if it has none.

    spans    of its words or its tokens, in seconds from its beginning. What has no token yet, at the
             end, belongs to the next segment
    emitted  where CTC emits each of them; words of one token have the same frames
    frames   T
    """
    seconds = frames * frame_seconds
    gaps = [
        (b[0] - a[1], (a[1] + b[0]) / 2, n)
        for n, (a, b) in enumerate(itertools.pairwise(spans), 1)
        if emitted[n - 1][1] <= emitted[n][0]
    ]
    late = [gap for gap in gaps if spans[gap[2]][0] >= seconds / 2]
    if late:
        _, at, kept = max(late)
    elif not spans or seconds - spans[-1][1] >= KEPT + AHEAD:
        at, kept = seconds - AHEAD, len(spans)
    else:
        _, at, kept = gaps[-1] if gaps else (0, spans[0][0] - AHEAD, 0)
    cut = min(frames, round(at / frame_seconds))
    return Endpoint(_end(cut, kept, emitted, frames), cut) if cut > 0 else None


def _end(cut: int, kept: int, emitted: Sequence[Frames], frames: int) -> int:
    """Find the frame nearest to a cut that parts what CTC emits of the words before it from the others."""
    least = emitted[kept - 1][1] if kept else 1
    most = emitted[kept][0] if kept < len(emitted) else frames
    return max(least, min(cut, most))
