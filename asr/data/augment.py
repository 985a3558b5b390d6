"""Augmentation of training waveforms: reverberation, noise and volume, drawn by the utterance's seed."""

import numpy as np
import torch
from pydantic import Field, model_validator

from asr.config import Settings
from asr.data.effects import add_noise, amplify, reverberate
from asr.data.recordings import Recordings
from asr.features.noise import uniforms, utterance_seed


class VolumeSettings(Settings):
    """Gains, uniform in dB."""

    min_gain_db: float = -10.0
    max_gain_db: float = 6.0
    probability: float = Field(1.0, ge=0, le=1)

    @model_validator(mode="after")
    def _ordered(self):
        return ordered(self, "min_gain_db", "max_gain_db")


class NoiseSettings(Settings):
    """Noises, and signal-to-noise ratios, uniform in dB."""

    manifest: str  # of sound files, as `asr-prepare folder musan/noise data/noise` makes it
    min_snr_db: float = 5.0
    max_snr_db: float = 20.0
    probability: float = Field(0.5, ge=0, le=1)

    @model_validator(mode="after")
    def _ordered(self):
        return ordered(self, "min_snr_db", "max_snr_db")


class ReverberationSettings(Settings):
    """Impulse responses of rooms."""

    manifest: str  # of sound files, as `asr-prepare folder RIRS_NOISES/simulated_rirs data/rirs` makes it
    probability: float = Field(0.3, ge=0, le=1)


class AugmentSettings(Settings):
    """What is done to a training waveform after the perturbation of its speed; an effect that is absent is not."""

    reverberation: ReverberationSettings | None = None
    noise: NoiseSettings | None = None
    volume: VolumeSettings | None = None


def ordered(settings: Settings, low: str, high: str) -> Settings:
    """Refuse a range whose lower end is above the higher."""
    least, most = getattr(settings, low), getattr(settings, high)
    if least > most:
        raise ValueError(f"{low}: got {least:g}, expected {high} ({most:g}) or less")
    return settings


class Augment:
    """Put an utterance into a room, beside noise, at another volume.

    In this order, in which sound travels, and which Kaldi's wav-reverberate and ESPnet keep: a speaker's speed is no
    property of the room, so speed perturbation comes before; the noise's recording has a room of its own already; the
    signal-to-noise ratio is that of the reverberant speech; the volume is the microphone's, for speech and noise.

    Each effect draws from a seed of its own, so that switching one on changes no other.
    """

    def __init__(self, settings: AugmentSettings):
        """Read the manifests and the headers of their sound files; UserError if there is a fault in them."""
        self.settings = settings
        self.responses = Recordings(settings.reverberation.manifest) if settings.reverberation else None
        self.noises = Recordings(settings.noise.manifest) if settings.noise else None

    def __call__(self, waveform: np.ndarray, rate: int, seed: int) -> np.ndarray:
        """Augment one utterance.

        waveform:  (samples,) float32 at `rate` Hz
        seed:      of (seed, epoch, utterance id)
        returns    (samples,) float32, not clipped to [-1, 1]
        raises     UserError if a recording of noise or an impulse response has become unreadable
        """
        if self.settings.reverberation:
            waveform = self._reverberate(waveform, rate, draw(seed, "reverberation", 2))
        if self.settings.noise:
            waveform = self._add_noise(waveform, rate, draw(seed, "noise", 4))
        if self.settings.volume:
            waveform = self._amplify(waveform, draw(seed, "volume", 2))
        return waveform

    def _reverberate(self, waveform: np.ndarray, rate: int, u: list[float]) -> np.ndarray:
        chance, which = u
        if chance >= self.settings.reverberation.probability:
            return waveform
        return reverberate(waveform, self.responses.load(int(which * len(self.responses)), rate))

    def _add_noise(self, waveform: np.ndarray, rate: int, u: list[float]) -> np.ndarray:
        (chance, which, place, ratio), settings = u, self.settings.noise
        if chance >= settings.probability:
            return waveform
        noise = self.noises.stretch(int(which * len(self.noises)), rate, len(waveform), place)
        return add_noise(waveform, noise, between(settings.min_snr_db, settings.max_snr_db, ratio))

    def _amplify(self, waveform: np.ndarray, u: list[float]) -> np.ndarray:
        (chance, gain), settings = u, self.settings.volume
        if chance >= settings.probability:
            return waveform
        return amplify(waveform, between(settings.min_gain_db, settings.max_gain_db, gain))


def draw(seed: int, effect: str, n: int) -> list[float]:
    """n uniform numbers in [0, 1) of an utterance's effect."""
    return uniforms(torch.tensor([utterance_seed(seed, effect)]), n)[0].tolist()


def between(low: float, high: float, u: float) -> float:
    """The point at u of 0 .. 1 between two numbers."""
    return low + (high - low) * u
