"""Where the segments of a stream end: the three rules of the field (Kaldi's online endpoints), from CTC's blanks.

A frame is silent where CTC is sure of the blank. A segment ends
- after silence, once something was recognized;
- after a longer silence, if nothing was recognized: it is forgotten;
- when it is as long as the model knows: between two words, so that neither is cut.

The next segment begins before the last moments of the silence, in which a word may have begun that
CTC hasn't emitted yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from asr.options import check, option
from asr.transcript import Word

if TYPE_CHECKING:  # a command shows its help without
    import numpy as np

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
    silent: np.ndarray, spoken: bool, frame_seconds: float, options: EndpointOptions
) -> Endpoint | None:
    """Decide whether a segment has ended in silence.

    silent   (T,) bool
    spoken   whether something was recognized
    """
    T, (heard,) = len(silent), (~silent).nonzero()
    last = int(heard[-1]) + 1 if len(heard) else 0
    enough = options.end_silence if spoken else options.no_speech
    if (T - last) * frame_seconds < enough:
        return None
    end = last + round(KEPT / frame_seconds)
    return Endpoint(end, max(end, T - round(AHEAD / frame_seconds)))


def between_words(words: Sequence[Word], frames: int, frame_seconds: float) -> Endpoint:
    """Cut a segment that is too long in the widest gap between two words of its second half.

    words    of the segment, in seconds from its beginning; without any two it is cut at its end
    frames   T
    """
    half = frames * frame_seconds / 2
    gaps = [
        (after.start - before.end, (before.end + after.start) / 2)
        for before, after in zip(words, words[1:], strict=False)
        if after.start >= half
    ]
    if not gaps:
        return Endpoint(frames, frames)
    _, middle = max(gaps)
    cut = min(frames, max(1, round(middle / frame_seconds)))
    return Endpoint(cut, cut)
