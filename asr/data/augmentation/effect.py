"""What an effect on a waveform is, and what effects share.

Waveforms are (S,) float32, S samples. Nothing is clipped: a sum may leave [-1, 1], which features
take as it is, and clipping would distort. Kaldi's wav-reverberate and lhotse don't clip either.
"""

from typing import Protocol

import numpy as np
import torch

from asr.config import Settings
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
