"""The room in which speech is spoken.

S samples of a waveform, R of a room's impulse response.
"""

import numpy as np
from pydantic import Field

from asr.config import Settings
from asr.data.augmentation.effect import Recordings, draw, power


class ReverberationSettings(Settings):
    """Impulse responses of rooms."""

    manifest: (
        str  # of sound files, as `asr-prepare folder RIRS_NOISES/simulated_rirs data/rirs` makes it
    )
    probability: float = Field(0.3, ge=0, le=1)

    def effect(self) -> "Reverberation":
        """Make the effect."""
        return Reverberation(self)


class Reverberation:
    """Put the speaker into a room."""

    def __init__(self, settings: ReverberationSettings):
        self.settings, self.responses = settings, Recordings(settings.manifest)

    def __call__(self, waveform: np.ndarray, rate: int, seed: int) -> np.ndarray:
        """Draw whether to put the speaker into a room, and which."""
        chance, which = draw(seed, "reverberation", 2)
        if chance >= self.settings.probability:
            return waveform
        return reverberate(waveform, self.responses.load(int(which * len(self.responses)), rate))


def reverberate(waveform: np.ndarray, response: np.ndarray) -> np.ndarray:
    """Convolve with the impulse response of a room, as Kaldi's `wav-reverberate --shift-output` does.

    response:  (R,) float32, at the waveform's rate
    returns    (S,) float32: the response's peak, which is the direct path, stands at time 0, so
               that the speech stays where it was; what comes after S is cut off; the power is the
               waveform's. Silence stays silence, and a silent response changes nothing

    Kaldi and lhotse look for the greatest value; here it is the greatest magnitude, for a recorded
    response may be upside down.
    """
    peak = int(np.abs(response).argmax())
    reverberant = convolve(waveform, response)[peak : peak + len(waveform)]  # (S,)
    before, after = power(waveform), power(reverberant)
    if not before or not after:
        return waveform
    return (reverberant * np.sqrt(before / after)).astype(np.float32)


def convolve(waveform: np.ndarray, response: np.ndarray) -> np.ndarray:
    """Convolve by Fourier transforms of blocks whose tails overlap: (S,), (R,) → (S + R - 1,).

    Blocks stay in the processor's cache: 10 s with a response of 0.5 s take a third of one long
    transform's time.
    """
    size = 2 ** max(10, (4 * len(response)).bit_length())  # of a transform
    tail = len(response) - 1
    step = size - tail
    blocks = np.zeros((-(-len(waveform) // step), step), np.float32)  # (N, step)
    blocks.reshape(-1)[: len(waveform)] = waveform
    parts = np.fft.irfft(np.fft.rfft(blocks, size) * np.fft.rfft(response, size), size)  # (N, size)
    full = np.zeros((len(blocks) + 1, step), parts.dtype)
    full[:-1] = parts[:, :step]
    full[1:, :tail] += parts[:, step:]
    return full.reshape(-1)[: len(waveform) + tail]
