"""Noise beside the speech."""

import numpy as np
from pydantic import Field, model_validator

from asr.config import Settings
from asr.data.augmentation.effect import Recordings, between, draw, ordered, power


class NoiseSettings(Settings):
    """Noises, and signal-to-noise ratios, uniform in dB."""

    manifest: str  # of sound files, as `asr-prepare folder musan/noise data/noise` makes it
    min_snr_db: float = 5.0
    max_snr_db: float = 20.0
    probability: float = Field(0.5, ge=0, le=1)

    @model_validator(mode="after")
    def _ordered(self):
        return ordered(self, "min_snr_db", "max_snr_db")

    def effect(self) -> "Noise":
        """Make the effect."""
        return Noise(self)


class Noise:
    """Add a stretch of a noise."""

    def __init__(self, settings: NoiseSettings):
        self.settings, self.recordings = settings, Recordings(settings.manifest)

    def __call__(self, waveform: np.ndarray, rate: int, seed: int) -> np.ndarray:
        """Draw whether to add noise, which, from where on, and how loud."""
        (chance, which, place, ratio), settings = draw(seed, "noise", 4), self.settings
        if chance >= settings.probability:
            return waveform
        noise = self.recordings.stretch(
            int(which * len(self.recordings)), rate, len(waveform), place
        )
        return add_noise(waveform, noise, between(settings.min_snr_db, settings.max_snr_db, ratio))


def add_noise(waveform: np.ndarray, noise: np.ndarray, snr_db: float) -> np.ndarray:
    """Add noise at a signal-to-noise ratio, the ratio of the mean powers over the whole utterance, as in lhotse.

    noise:    (S,) float32
    snr_db:   10 log10 (power of the speech / power of the noise)
    returns   (S,) float32; the waveform itself where either is silent, for then there is no ratio
    """
    speech_power, noise_power = power(waveform), power(noise)
    if not speech_power or not noise_power:
        return waveform
    scale = np.sqrt(speech_power / noise_power) * 10 ** (-snr_db / 20)
    return (waveform + scale * noise.astype(np.float64)).astype(np.float32)
