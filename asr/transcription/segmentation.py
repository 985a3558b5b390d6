"""Cut a long recording into pieces that a model can search: at pauses, where it has any.

Energy decides what is a pause. Its threshold follows the recording: between the quietest and the
loudest tenth of the minute around. A piece is a stretch of speech between pauses with a little of the
silence around it, and no longer than the model knows. What isn't above the background of the piece
alone counts as silence there: where background noise begins or ends at once, as behind a noise gate, a
model hears a consonant. A piece whose spectrum keeps its shape is noise,
and left out; one that sounds like music is doubtful (`nonspeech.py`).
Speech without a pause is cut where it is quietest, and the next piece begins earlier (`overlap`), so
that the word at the cut is whole in one of the two.
"""

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from asr.audio import load as audio
from asr.device import in_threads
from asr.transcription.nonspeech import SHORTEST as JUDGED
from asr.transcription.nonspeech import Spectra
from asr.transcription.silero import Silero, speech

HOP = 0.01  # seconds of an energy frame
READ = 64.0  # seconds that are read at once: a multiple of what all three statistics take together
TOGETHER = 4  # blocks that threads may measure at once; more would only take memory
RATE = 16_000  # Hz, if their frames don't have whole numbers of samples at the model's rate
BLOCK = 60.0  # seconds whose quiet and loud parts make the threshold
SMOOTH = 5  # frames of the mean that takes single clicks and closures out
SHARE = 0.2  # of the way from quiet to loud, in decibels, below which it is silent
CONTRAST = 6.0  # decibels between quiet and loud; with less, nothing is told apart
SILENT = -90.0  # decibels of full scale: digital silence, and dither
PAUSE = 0.4  # seconds of silence that end a stretch of speech
MARGIN = 0.14  # seconds of silence that belong to a piece at its ends
NETWORK_MARGIN = 0.3  # the same for Silero's network, which finds faint beginnings and ends late
CONTEXT = 0.5  # seconds of silence around its speech that are searched with a piece, at most; more changes nothing
SHORTEST = 0.1  # seconds of speech; less is a click
NEAR = 15.0  # seconds before and after a piece, within which others are its company
COMPANY = 0.5  # share of doubtful seconds in it with which the piece is doubtful, too
OVERLAP = 2.0  # seconds that pieces share where no pause is found
Made = TypeVar("Made")


@dataclass(frozen=True)
class Piece:
    """A stretch to search; seconds from the recording's beginning.

    overlap   seconds that it shares with the piece before
    doubtful  whether it sounds like music
    before    seconds of silence before it that are searched with it
    after     seconds of silence after it that are; two pieces may share theirs
    """

    start: float
    end: float
    overlap: float = 0.0
    doubtful: bool = False
    before: float = 0.0
    after: float = 0.0


def segment(
    path: str,
    rate: int,
    start: float,
    duration: float,
    channel: int | None,
    longest: float,
    vad: str = "energy",
    context: float = 0.0,
    together: int = 1,
) -> Generator[float, None, list[Piece]]:
    """Cut a part of a sound file into pieces of at most `longest` seconds, in order; silence between them is left out.

    The file is read block by block; the seconds of each are yielded. `finish` gives what is returned.
    vad       "energy", or "silero" for Silero's network
    context   seconds of silence around its speech that are searched with a piece
    together  blocks that are read at once, each in a thread; the network hears one after another
    raises    UserError if it can't be read, or the network isn't installed
    """
    part = start, duration, channel
    if vad == "silero":
        levels, heard = yield from _by_network(path, Silero(rate), *part)
        pieces = cut(levels, longest, heard=heard, context=context)
    else:
        rate = RATE if rate % 1000 else rate
        levels, spectra = yield from _by_energy(path, rate, *part, together)
        pieces = cut(levels, longest, spectra=spectra, context=context)
    return [_within(piece, start, duration) for piece in pieces]


def _by_energy(
    path: str, rate: int, start: float, duration: float, channel: int | None, together: int
) -> Generator[float, None, tuple[np.ndarray, Spectra]]:
    """Measure the levels, (N,), and the spectra of a part of a sound file, some blocks at a time."""
    spans, found = _spans(start, duration), dict[int, tuple[np.ndarray, Spectra]]()

    def measure(n: int) -> None:
        waveform = audio.load(path, rate, *spans[n], channel)
        found[n] = _levels(waveform, round(HOP * rate)), Spectra.of(waveform, rate)

    for first in range(0, len(spans), together):
        some = range(len(spans))[first : first + together]
        in_threads(measure, some)
        yield from [READ] * len(some)
    levels, spectra = zip(*(found[n] for n in range(len(spans))), strict=True)
    return np.concatenate(levels), Spectra.join(spectra)


def _by_network(
    path: str, network: Silero, start: float, duration: float, channel: int | None
) -> Generator[float, None, tuple[np.ndarray, np.ndarray]]:
    """Measure the levels, (N,), of a part of a sound file, and which frames are speech, (N,) bool, block by block."""
    levels, chances = [], []
    for span in _spans(start, duration):
        waveform = audio.load(path, network.rate, *span, channel)
        levels.append(_levels(waveform, round(HOP * network.rate)))
        chances.append(network(waveform))
        yield READ
    level = np.concatenate(levels)
    return level, speech(np.concatenate(chances), len(level), HOP)


def finish(work: Generator[object, None, Made]) -> Made:
    """Do all that a generator does; return what it returns."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value


def _within(piece: Piece, start: float, duration: float) -> Piece:
    """Count a piece's times from the file's beginning, whose frames may reach beyond the part of it."""
    end = min(piece.end, duration)
    after = min(piece.after, duration - end)
    return replace(piece, start=start + piece.start, end=start + end, after=after)


def edges(
    path: str, rate: int, start: float, duration: float, channel: int | None
) -> tuple[float, float] | None:
    """Measure the silence before and after the speech of a part of a sound file, in seconds; None: nothing is said.

    raises   UserError if it can't be read
    """
    rate = RATE if rate % 1000 else rate
    blocks = (audio.load(path, rate, *span, channel) for span in _spans(start, duration))
    levels = [_levels(waveform, round(HOP * rate)) for waveform in blocks]
    smooth = _smooth(np.concatenate(levels))
    found = _stretches(smooth > _threshold(smooth))
    return (found[0][0] * HOP, (len(smooth) - found[-1][1]) * HOP) if found else None


def _spans(start: float, duration: float) -> list[tuple[float, float]]:
    """Divide a part of a sound file into blocks: the start and duration of each, in seconds."""
    count = max(1, math.ceil(duration / READ - 1e-4))  # a rest of some samples says nothing
    begins = [start + n * READ for n in range(count)]
    return [(begin, min(READ, start + duration - begin)) for begin in begins]


def _levels(waveform: np.ndarray, size: int) -> np.ndarray:
    """The energy of frames of `size` samples, in decibels of full scale."""
    frames = np.resize(waveform, (-(-len(waveform) // size), size))
    power = np.einsum("ns,ns->n", frames, frames, dtype=np.float64) / size
    return 10 * np.log10(power + 1e-12)


def cut(
    levels: np.ndarray,
    longest: float,
    heard: np.ndarray | None = None,
    spectra: Spectra | None = None,
    context: float = 0.0,
) -> list[Piece]:
    """Cut a recording by the levels of its frames, (N,) decibels.

    heard    (N,) bool: the frames with speech; None: tell by the levels
    spectra  of the recording, to leave out noise and doubt music
    context  seconds of silence around its speech that are searched with a piece
    """
    smooth = _smooth(levels)
    loud = smooth > _threshold(smooth) if heard is None else heard
    pieces: list[Piece] = []
    for stretch in _stretches(loud):
        follows = False  # a piece of the same stretch
        for first, end, shared in _parts(smooth, *stretch, round(longest / HOP)):
            span = first * HOP, end * HOP
            if kept := not (spectra and spectra.is_noise(*span)):
                doubtful = bool(spectra and spectra.is_doubtful(*span))
                overlap = shared * HOP if follows else 0.0
                if heard is None:
                    sides = not overlap, end == stretch[1]
                    span = _trimmed(smooth, first, end, sides, spectra)
                pieces.append(Piece(*span, overlap, doubtful))
            follows = kept
    margin = MARGIN if heard is None else NETWORK_MARGIN
    return _widened(_doubted(pieces), len(levels) * HOP, longest, margin, context)


def _doubted(pieces: list[Piece]) -> list[Piece]:
    """Doubt pieces among doubtful ones, too: a bar of drums, or a note too short to be judged."""
    starts, ends = (
        np.array([getattr(piece, side) for piece in pieces]) for side in ("start", "end")
    )
    doubtful = np.array([piece.doubtful for piece in pieces])
    made = []
    for piece in pieces:
        near = (ends > piece.start - NEAR) & (starts < piece.end + NEAR)
        seconds = (ends - starts)[near]
        share = seconds[doubtful[near]].sum() / seconds.sum()
        made.append(replace(piece, doubtful=piece.doubtful or bool(share > COMPANY)))
    return made


def _parts(smooth: np.ndarray, at: int, end: int, most: int) -> Iterator[tuple[int, int, int]]:
    """Yield parts of a stretch, of `most` frames at most: first, end, and frames shared with the one before."""
    shared = 0
    while end - at > most:
        half = at + most // 2
        split = half + int(smooth[half : at + most].argmin())
        yield at, split, shared
        shared = min(round(OVERLAP / HOP), (split - at) // 2)
        at = split - shared
    yield at, end, shared


def _trimmed(
    smooth: np.ndarray, first: int, end: int, sides: tuple[bool, bool], spectra: Spectra | None
) -> tuple[float, float]:
    """Where a piece rises above its own background, in seconds; sides: whether its start and its end may move.

    Its background is its faintest level alone, since clean speech has faint sounds, too. What is long
    enough to be judged is left out only if it is noise: someone may speak more quietly there.
    """

    def silent(a: int, b: int) -> bool:
        seconds = (b - a) * HOP
        return seconds < JUDGED or bool(spectra and spectra.is_noise(a * HOP, b * HOP))

    own = smooth[first:end]
    floor = own[SMOOTH:-SMOOTH].min(initial=own.max())  # the ends' means reach beyond it
    loud = first + np.flatnonzero(own > floor + CONTRAST)
    start, last = (loud[0], loud[-1] + 1) if len(loud) else (first, end)
    start = start if sides[0] and silent(first, start) else first
    last = last if sides[1] and silent(last, end) else end
    return float(start) * HOP, float(last) * HOP


def _smooth(levels: np.ndarray) -> np.ndarray:
    """The means of some levels in a row, (N,)."""
    repeated = np.pad(levels, SMOOTH // 2, "edge")
    return np.convolve(repeated, np.full(SMOOTH, 1 / SMOOTH), "valid")


def _threshold(smooth: np.ndarray) -> np.ndarray:
    """The level below which each frame is silent, (N,)."""
    size = round(BLOCK / HOP)
    limits = []
    for begin in range(0, len(smooth), size):
        around = smooth[max(0, begin - size // 2) : begin + size * 3 // 2]
        limits.append(np.full(min(size, len(smooth) - begin), _limit(around)))
    return np.concatenate(limits)


def _limit(levels: np.ndarray) -> float:
    """The level between the quiet and the loud ones."""
    quiet, loud = np.quantile(levels, (0.1, 0.95))
    quiet = max(quiet, SILENT)
    return quiet + SHARE * (loud - quiet) if loud - quiet > CONTRAST else SILENT


def _stretches(loud: np.ndarray) -> list[tuple[int, int]]:
    """Frames first ≤ n < end of the stretches of speech, with silences of less than PAUSE seconds within."""
    changes = np.flatnonzero(np.diff(loud.astype(np.int8), prepend=0, append=0))
    runs = changes.reshape(-1, 2)
    if not len(runs):
        return []
    apart = np.flatnonzero((runs[1:, 0] - runs[:-1, 1]) * HOP >= PAUSE)
    firsts, ends = runs[np.append(0, apart + 1), 0], runs[np.append(apart, len(runs) - 1), 1]
    return [
        (int(first), int(end))
        for first, end in zip(firsts, ends, strict=True)
        if (end - first) * HOP >= SHORTEST
    ]


def _widened(
    pieces: list[Piece], duration: float, longest: float, margin: float, context: float
) -> list[Piece]:
    """Give the pieces some of the silence around them, as far as they don't become too long.

    margin    seconds that belong to them
    context   seconds that are searched with them
    """
    made = []
    for n, piece in enumerate(pieces):
        earlier, later = n > 0, n + 1 < len(pieces)
        before = 0.0 if piece.overlap else piece.start - (pieces[n - 1].end if earlier else 0.0)
        after = max(0.0, (pieces[n + 1].start if later else duration) - piece.end)
        most = max(0.0, longest - (piece.end - piece.start)) / 2
        left, right = (
            min(margin, most, silent / (2 if shared else 1))
            for silent, shared in ((before, earlier), (after, later))
        )
        made.append(
            replace(
                piece,
                start=round(piece.start - left, 2),
                end=round(piece.end + right, 2),
                before=max(0.0, round(min(context, most, before) - left, 2)),
                after=max(0.0, round(min(context, most, after) - right, 2)),
            )
        )
    return made
