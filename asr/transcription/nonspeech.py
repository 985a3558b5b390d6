"""Tell noise and music from speech by their spectra, whatever the model.

Noise, of any color and however it swells, has a spectrum whose shape stays; that of speech changes with
each sound. The notes of music hold their partials in place, while the pitch of a voice glides
(Seyerlehner et al., "Automatic music detection in television productions", 2007, call that continuous
frequency activation). Both statistics are means over the frames of a piece.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

HOP = 0.016  # seconds between spectra
WINDOW = 0.064  # seconds of one: bins are 15.6 Hz apart
BINS = 200  # up to 3.1 kHz
LOWEST = 10  # bin: 156 Hz; below are hum and rumble
BANDS = 12  # of about equal width in pitch
AROUND = 10  # bins on each side whose mean a partial stands out from
LAG = 8  # frames, 128 ms, after which a note is still there
MEAN = 4  # frames whose mean power makes a shape
FLOOR = 1e-9  # power added to each bin, far below any microphone's noise
RANGE = 60.0  # decibels below the loudest that a shape has
JUDGED = 5.0  # seconds that are judged together
SHORTEST = 0.4  # seconds; less isn't left out as noise
# chosen on mini's dev sentences with and without noise, AN4's training recordings, synthesized noise and music
CHANGE = 1.8  # decibels; noise has 1.2 to 1.4, speech 2 or more, even 10 dB above noise
HELD = 0.25  # correlation; music has 0.3 or more, real speech up to 0.24, synthesized speech up to 0.34


class Spectra(NamedTuple):
    """What is kept of a stretch of sound.

    shapes   (N / MEAN, BANDS): levels of bands, decibels
    held     (N,): correlation of a frame's partials with those LAG frames later
    """

    shapes: np.ndarray
    held: np.ndarray

    @staticmethod
    def of(waveform: np.ndarray, rate: int) -> "Spectra":
        """Analyze a waveform, (samples,) at `rate` Hz."""
        size, hop = round(WINDOW * rate), round(HOP * rate)
        count = -(-len(waveform) // (MEAN * hop)) * MEAN  # N
        padded = np.pad(waveform, (0, (count - 1) * hop + size - len(waveform)))
        frames = sliding_window_view(padded, size)[::hop] * np.hanning(size).astype(np.float32)
        power = np.square(np.abs(np.fft.rfft(frames)[:, LOWEST:BINS])) + FLOOR  # (N, bins)
        return Spectra(_shapes(power).astype(np.float32), _held(power).astype(np.float32))

    @staticmethod
    def join(parts: Sequence["Spectra"]) -> "Spectra":
        """Put stretches one after another; all but the last have a multiple of MEAN frames."""
        shapes, held = zip(*parts, strict=True)
        return Spectra(np.concatenate(shapes), np.concatenate(held))

    def is_noise(self, start: float, end: float) -> bool:
        """Tell whether there is nothing but noise from `start` to `end`, in seconds."""
        parts = self._parts(start, end)
        return end - start >= SHORTEST and all(change(part.shapes) < CHANGE for part in parts)

    def is_doubtful(self, start: float, end: float) -> bool:
        """Tell whether there may be nothing but music or noise from `start` to `end`, in seconds."""
        parts = self._parts(start, end)
        return all(part.held.mean() > HELD or change(part.shapes) < CHANGE for part in parts)

    def _parts(self, start: float, end: float) -> "list[Spectra]":
        """Cut out parts of some seconds."""
        times = np.linspace(start, end, max(1, round((end - start) / JUDGED)) + 1)
        frames = [round(time / HOP) for time in times]
        return [
            Spectra(
                self.shapes[first // MEAN : max(first // MEAN + 1, last // MEAN)],
                self.held[first : max(first + 1, last - LAG)],
            )
            for first, last in itertools.pairwise(frames)
        ]


def change(shapes: np.ndarray) -> float:
    """How much the shape of a spectrum changes, whatever its level: (N, BANDS) → decibels.

    It is the standard deviation of what neither the frame nor the band explains.
    """
    shapes = np.maximum(shapes, shapes.max() - RANGE)
    rest = shapes - shapes.mean(0) - shapes.mean(1, keepdims=True) + shapes.mean()
    return float(rest.std())


def _shapes(power: np.ndarray) -> np.ndarray:
    edges = np.geomspace(LOWEST, BINS, BANDS + 1).round().astype(int) - LOWEST
    bands = np.add.reduceat(power, edges[:-1], axis=1) / np.diff(edges)  # (N, BANDS)
    return 10 * np.log10(bands.reshape(-1, MEAN, BANDS).mean(1))


def _held(power: np.ndarray) -> np.ndarray:
    level = np.log(power)
    sums = np.cumsum(np.pad(level, ((0, 0), (AROUND + 1, AROUND)), "edge"), 1)
    width = 2 * AROUND + 1
    partials = level - (sums[:, width:] - sums[:, :-width]) / width  # (N, bins)
    partials /= np.linalg.norm(partials, axis=1, keepdims=True) + 1e-9
    return np.pad((partials[:-LAG] * partials[LAG:]).sum(1), (0, LAG))
