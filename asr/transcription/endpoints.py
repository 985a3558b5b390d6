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
SILENT = 0.8  # least posterior of the blank in a silent frame
KEPT = 0.3  # seconds of silence that a segment keeps behind its last token
AHEAD = 0.3  # seconds of silence with which the next one begins


@dataclass(frozen=True)
class EndpointOptions:
    """When a segment of a stream ends, in seconds."""

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

    def __post_init__(self):
        check(self)


class Endpoint(NamedTuple):
    """The segment's frames are those before `end`; the next one begins with frame `next`."""

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


def between(spans: Sequence[Span], frames: int, frame_seconds: float) -> Endpoint | None:
    """Cut a segment that is too long in the widest gap of its second half, else in the last one; None if it has none.

    spans    of its words or its tokens, in seconds from its beginning. What has no token yet, at the
             end, belongs to the next segment
    frames   T
    """
    seconds, gaps = frames * frame_seconds, list(itertools.pairwise(spans))
    late = [(b[0] - a[1], (a[1] + b[0]) / 2) for a, b in gaps if b[0] >= seconds / 2]
    if late:
        _, at = max(late)
    elif not spans or seconds - spans[-1][1] >= KEPT + AHEAD:
        at = seconds - AHEAD
    else:
        at = (gaps[-1][0][1] + gaps[-1][1][0]) / 2 if gaps else spans[0][0] - AHEAD
    cut = min(frames, round(at / frame_seconds))
    return Endpoint(cut, cut) if cut > 0 else None
