"""Effects on a waveform: the room it is spoken in, noise beside it, its volume.

S samples; waveforms are (S,) float32. Nothing is clipped: a sum may leave [-1, 1], which features take as it is, and
clipping would be a distortion that nobody asked for. Kaldi's wav-reverberate and lhotse don't clip either.
"""

import numpy as np


def reverberate(waveform: np.ndarray, response: np.ndarray) -> np.ndarray:
    """Convolve with the impulse response of a room, as Kaldi's `wav-reverberate --shift-output` does.

    response:  (R,) float32, at the waveform's rate
    returns    (S,) float32: the response's peak, which is the direct path, stands at time 0, so that the speech stays
               where it was; what comes after S is cut off; the power is the waveform's. Silence stays silence, and a
               silent response changes nothing

    Kaldi and lhotse look for the greatest value; here it is the greatest magnitude, for a recorded response may be
    upside down.
    """
    peak = int(np.abs(response).argmax())
    reverberant = convolve(waveform, response)[peak : peak + len(waveform)]  # (S,)
    before, after = power(waveform), power(reverberant)
    if not before or not after:
        return waveform
    return (reverberant * np.sqrt(before / after)).astype(np.float32)


def convolve(waveform: np.ndarray, response: np.ndarray) -> np.ndarray:
    """Convolve by Fourier transforms of blocks whose tails overlap: (S,), (R,) → (S + R - 1,).

    Blocks stay in the processor's cache: 10 s with a response of 0.5 s take a third of one long transform's time.
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


def amplify(waveform: np.ndarray, gain_db: float) -> np.ndarray:
    """Multiply by a gain of so many decibels."""
    return (waveform * 10 ** (gain_db / 20)).astype(np.float32)


def power(waveform: np.ndarray) -> float:
    """Mean square."""
    return float(np.mean(np.square(waveform, dtype=np.float64)))
