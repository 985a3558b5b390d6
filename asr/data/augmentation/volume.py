"""The volume of a recording."""

import numpy as np
from pydantic import Field, model_validator

from asr.config import Settings
from asr.data.augmentation.effect import between, draw, ordered


class VolumeSettings(Settings):
    """Gains, uniform in dB."""

    min_gain_db: float = -10.0
    max_gain_db: float = 6.0
    probability: float = Field(1.0, ge=0, le=1)

    @model_validator(mode="after")
    def _ordered(self):
        return ordered(self, "min_gain_db", "max_gain_db")

    def effect(self) -> "Volume":
        """Make the effect."""
        return Volume(self)


class Volume:
    """Multiply by a gain."""

    def __init__(self, settings: VolumeSettings):
        self.settings = settings

    def __call__(self, waveform: np.ndarray, rate: int, seed: int) -> np.ndarray:
        """Draw whether to change the volume, and the gain."""
        (chance, gain), settings = draw(seed, "volume", 2), self.settings
        if chance >= settings.probability:
            return waveform
        return amplify(waveform, between(settings.min_gain_db, settings.max_gain_db, gain))


def amplify(waveform: np.ndarray, gain_db: float) -> np.ndarray:
    """Multiply by a gain in decibels."""
    return (waveform * 10 ** (gain_db / 20)).astype(np.float32)
