"""What an effect on a waveform is, and what effects share.

Waveforms are (S,) float32, S samples. Nothing is clipped: a sum may leave [-1, 1], which features
take as it is, and clipping would distort. Kaldi's wav-reverberate and lhotse don't clip either.
"""

import os
from typing import Protocol

import numpy as np
import torch

from asr.audio import load as audio
from asr.config import Settings
from asr.data import manifest as manifests
from asr.data.validate import check_audio
from asr.errors import UserError
from asr.seeding import uniforms, utterance_seed


class Effect(Protocol):
    """One effect, which its settings make once by their method `effect`, called for each utterance."""

    def __call__(self, waveform: np.ndarray, rate: int, seed: int) -> np.ndarray:
        """Change a waveform (S,) float32 at `rate` Hz, or return it as it is; nothing but `seed` decides by chance."""


def draw(seed: int, effect: str, n: int) -> list[float]:
    """Draw n uniform numbers in [0, 1) for one effect on one utterance."""
    return uniforms(torch.tensor([utterance_seed(seed, effect)]), n)[0].tolist()


def between(low: float, high: float, u: float) -> float:
    """Return the point between two numbers at u of 0 .. 1."""
    return low + (high - low) * u


def ordered(settings: Settings, low: str, high: str) -> Settings:
    """Refuse a range whose lower end is above the higher."""
    least, most = getattr(settings, low), getattr(settings, high)
    if least > most:
        raise ValueError(f"{low}: got {least:g}, expected {high} ({most:g}) or less")
    return settings


def power(waveform: np.ndarray) -> float:
    """Return the mean square."""
    return float(np.mean(np.square(waveform, dtype=np.float64)))


class Recordings:
    """Where N recordings stand; kept in arrays, for every worker holds them.

    paths:   (N,) bytes
    starts, durations:  (N,) float64, seconds
    channels:  (N,) int16, the channel that the manifest asks for; -1 where it asks for none
    """

    def __init__(self, manifest: str | os.PathLike):
        """Read a manifest and look at the header of each of its sound files.

        raises   UserError if there is no manifest, it is damaged or empty, or disagrees with a
                 sound file
        """
        utterances = list(manifests.read(manifest))
        if not utterances:
            raise UserError(
                f"{manifest}: holds no recording; `asr-prepare folder SOUNDS OUT` makes a manifest"
            )
        check_audio(utterances, manifest)
        self.paths = np.array([os.fsencode(u.path) for u in utterances])
        self.starts = np.array([u.start for u in utterances])
        self.durations = np.array([u.duration for u in utterances])
        self.channels = np.array(
            [-1 if u.channel is None else u.channel for u in utterances], np.int16
        )

    def __len__(self) -> int:
        return len(self.paths)

    def load(self, n: int, rate: int) -> np.ndarray:
        """Read recording n whole, the channel asked for or the first, at `rate` Hz: (samples,) float32."""
        return self._read(n, rate, 0.0, float(self.durations[n]), channel=0)

    def stretch(self, n: int, rate: int, samples: int, place: float) -> np.ndarray:
        """Read a stretch of recording n, repeated where the recording is shorter.

        samples:  of the stretch, at `rate` Hz
        place:    in [0, 1), where the stretch begins among all places where it fits
        returns   (samples,) float32, of the channel asked for, or the mean of all
        """
        whole = float(self.durations[n])
        # one more, against the roundings of times and resampling
        wanted = min(whole, (samples + 1) / rate)
        return np.resize(self._read(n, rate, place * (whole - wanted), wanted), samples)

    def _read(
        self, n: int, rate: int, skip: float, duration: float, channel: int | None = None
    ) -> np.ndarray:
        path, start = os.fsdecode(self.paths[n]), float(self.starts[n])
        channel = channel if self.channels[n] < 0 else int(self.channels[n])
        # its scale doesn't matter
        return audio.load(path, rate, start + skip, duration, channel, clip=False)
