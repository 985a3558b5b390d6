"""Augmentation of training waveforms: reverberation, noise and volume, drawn by the utterance's seed.

A new effect is one file here, with its settings and its class, and one field of AugmentSettings.
"""

import numpy as np

from asr.config import Settings
from asr.data.augmentation.noise import NoiseSettings
from asr.data.augmentation.reverberation import ReverberationSettings
from asr.data.augmentation.volume import VolumeSettings
from asr.errors import UserError


class AugmentSettings(Settings):
    """What is done to a training waveform after its speed is perturbed; an effect that is absent is not.

    The order is that in which sound travels, as in Kaldi's wav-reverberate and ESPnet. The
    recording of a noise has a room of its own, so the signal-to-noise ratio is that of the
    reverberant speech. The microphone's volume is that of both.
    """

    reverberation: ReverberationSettings | None = None
    noise: NoiseSettings | None = None
    volume: VolumeSettings | None = None


class Augment:
    """Apply the effects that the settings name, each drawn from a seed of its own.

    So switching one effect on changes no other. A speaker's speed is no property of the room, so
    the perturbation of speed comes before.
    """

    def __init__(self, settings: AugmentSettings):
        """Read the manifests and the headers of their sound files; UserError if there is a fault in them."""
        chosen = (getattr(settings, name) for name in type(settings).model_fields)
        self.effects = [one.effect() for one in chosen if one is not None]

    def __call__(self, waveform: np.ndarray, rate: int, seed: int) -> np.ndarray:
        """Augment one utterance.

        waveform:  (samples,) float32 at `rate` Hz
        seed:      of (seed, epoch, utterance id)
        returns    (samples,) float32, not clipped to [-1, 1]
        raises     UserError if a recording of noise or an impulse response has become unreadable, or an
                   effect returns something else than finite samples
        """
        for effect in self.effects:
            waveform = checked(effect(waveform, rate, seed), type(effect).__name__)
        return waveform


def checked(waveform: np.ndarray, effect: str) -> np.ndarray:
    """Return what an effect made, as float32; UserError if that isn't a waveform of finite values."""
    made = np.asarray(waveform, dtype=np.float32)
    if made.ndim != 1 or not made.size or not np.isfinite(made).all():
        got = f"shape {made.shape}" + (" with NaN or infinity" if made.size else "")
        raise UserError(
            f"data.augment: {effect} returned {got}, expected (samples,) of finite values"
        )
    return made
