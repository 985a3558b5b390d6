"""Tell noise and music from speech by their spectra, whatever the model.

Noise, of any color and however it swells, has a spectrum whose shape stays; that of speech changes with
each sound. The notes of music hold their partials in place, while the pitch of a voice glides
(Seyerlehner et al., "Automatic music detection in television productions", 2007, call that continuous
frequency activation). Both statistics are means over the frames of a piece. A hum is noise above its
own partials; clicks have their energy within some milliseconds.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.functional import normalize, pad

HOP = 0.016  # seconds between spectra
WINDOW = 0.064  # seconds of one: bins are 15.6 Hz apart
BINS = 200  # up to 3.1 kHz
LOWEST = 10  # bin: 156 Hz; below are hum and rumble
BANDS = 12  # of about equal width in pitch
AROUND = 10  # bins on each side whose mean a partial stands out from
LAG = 8  # frames, 128 ms, after which a note is still there
MEAN = 4  # frames whose mean power makes a shape
UPPER = 4  # bands from there on, 420 Hz, are above a hum
PEAK = 0.004  # seconds of a click
NEAR = 20.0  # decibels below a part's loudest frames; what is fainter says nothing of clicks
FLOOR = 1e-9  # power added to each bin, far below any microphone's noise
RANGE = 60.0  # decibels below the loudest that a shape has
CACHED = 512  # frames that are analyzed at once: they stay in the processor's cache
JUDGED = 5.0  # seconds that are judged together
SHORTEST = 0.4  # seconds; less isn't left out as noise
# chosen on mini's dev sentences with and without noise, AN4's training recordings, synthesized noise and music
CHANGE = 1.8  # decibels; noise has 1.2 to 1.4, speech 2 or more, even 10 dB above noise
HUM = 1.4  # decibels, the same above a hum, where swelling hums have 1.25 at most
PEAKED = 8.5  # decibels; clicks have 9 or more, speech up to 7.5
HELD = 0.25  # correlation; music has 0.3 or more, real speech up to 0.24, synthesized speech up to 0.34


class Spectra(NamedTuple):
    """What is kept of a stretch of sound.

    shapes   (N / MEAN, BANDS): levels of bands, decibels
    held     (N,): correlation of a frame's partials with those LAG frames later
    peaks    (N / MEAN, 2): the level of MEAN hops, and how far its loudest PEAK rises above it, decibels
    """

    shapes: np.ndarray
    held: np.ndarray
    peaks: np.ndarray

    @staticmethod
    def of(waveform: np.ndarray, rate: int) -> "Spectra":
        """Analyze a waveform, (samples,) at `rate` Hz."""
        size, hop = round(WINDOW * rate), round(HOP * rate)
        count = -(-len(waveform) // (MEAN * hop)) * MEAN  # N
        padded = np.pad(waveform, (0, (count - 1) * hop + size - len(waveform)))
        frames = torch.from_numpy(padded).unfold(0, size, hop)  # (N, samples)
        shapes = np.empty((count // MEAN, BANDS), np.float32)
        held = np.zeros(count, np.float32)
        for first in range(0, count, CACHED):
            power = _power(frames[first : first + CACHED + LAG])  # (n, bins)
            own, same = _shapes(power[:CACHED].numpy()), _held(power).numpy()
            shapes[first // MEAN : first // MEAN + len(own)] = own
            held[first : first + len(same)] = same
        peaks = _peaks(padded[: count * hop].reshape(count // MEAN, MEAN * hop), round(PEAK * rate))
        return Spectra(shapes, held, peaks)

    @staticmethod
    def join(parts: Sequence["Spectra"]) -> "Spectra":
        """Put stretches one after another; all but the last have a multiple of MEAN frames."""
        return Spectra(*(np.concatenate(each) for each in zip(*parts, strict=True)))

    def is_noise(self, start: float, end: float) -> bool:
        """Tell whether there is nothing but noise or a hum from `start` to `end`, in seconds."""
        parts = self._parts(start, end)
        return end - start >= SHORTEST and all(
            change(part.shapes) < CHANGE or change(part.shapes[:, UPPER:]) < HUM for part in parts
        )

    def is_doubtful(self, start: float, end: float) -> bool:
        """Tell whether there may be nothing but music, noise or clicks from `start` to `end`, in seconds."""
        return all(
            part.held.mean() > HELD or change(part.shapes) < CHANGE or peaked(part.peaks) > PEAKED
            for part in self._parts(start, end)
        )

    def _parts(self, start: float, end: float) -> "list[Spectra]":
        """Cut out parts of some seconds."""
        times = np.linspace(start, end, max(1, round((end - start) / JUDGED)) + 1)
        frames = [round(time / HOP) for time in times]
        made = []
        for first, last in itertools.pairwise(frames):
            coarse = slice(first // MEAN, max(first // MEAN + 1, last // MEAN))
            held = self.held[first : max(first + 1, last - LAG)]
            made.append(Spectra(self.shapes[coarse], held, self.peaks[coarse]))
        return made


def change(shapes: np.ndarray) -> float:
    """How much the shape of a spectrum changes, whatever its level: (N, BANDS) → decibels.

    It is the standard deviation of what neither the frame nor the band explains.
    """
    shapes = np.maximum(shapes, shapes.max() - RANGE)
    rest = shapes - shapes.mean(0) - shapes.mean(1, keepdims=True) + shapes.mean()
    return float(rest.std())


def peaked(peaks: np.ndarray) -> float:
    """How far peaks rise above the level in half of the loud frames: (N, 2) → decibels."""
    return float(np.median(peaks[peaks[:, 0] > peaks[:, 0].max() - NEAR, 1]))


def _power(frames: torch.Tensor) -> torch.Tensor:
    """The power of frames in the bins that are looked at: (n, samples) → (n, bins)."""
    window = torch.from_numpy(np.hanning(frames.size(1)).astype(np.float32))
    spectra = torch.fft.rfft(frames * window)[:, LOWEST:BINS]
    return spectra.real.square() + spectra.imag.square() + FLOOR


def _peaks(frames: np.ndarray, size: int) -> np.ndarray:
    """The level of frames, and how far their loudest part of `size` samples rises above it, (N, 2) decibels."""
    parts = frames[:, : frames.shape[1] // size * size].reshape(len(frames), -1, size)
    power = np.einsum("nps,nps->np", parts, parts, dtype=np.float64) / size + 1e-12
    mean = power.mean(1)
    peaks = 10 * np.log10(np.stack([mean, power.max(1) / mean], 1))
    return peaks.astype(np.float32)


def _shapes(power: np.ndarray) -> np.ndarray:
    """The levels of bands: (n, bins) → (n / MEAN, BANDS) decibels."""
    edges = np.geomspace(LOWEST, BINS, BANDS + 1).round().astype(int) - LOWEST
    bands = np.add.reduceat(power, edges[:-1], axis=1) / np.diff(edges)  # (n, BANDS)
    return 10 * np.log10(bands.reshape(-1, MEAN, BANDS).mean(1))


def _held(power: torch.Tensor) -> torch.Tensor:
    """The correlation of frames' partials with those LAG frames later: (n, bins) → (n - LAG,)."""
    level = power.log()
    edged = pad(level[:, None], (AROUND + 1, AROUND), "replicate")[:, 0]
    sums, width = edged.cumsum(1), 2 * AROUND + 1
    partials = normalize(level - (sums[:, width:] - sums[:, :-width]) / width)  # (n, bins)
    return (partials[:-LAG] * partials[LAG:]).sum(1)
