"""Make a recording of clean speech: silence around it, noise, level."""

import numpy as np
from synthesis.espeak import RATE


def recorded(rng, x):
    """Turn speech into a recording.

    rng      numpy.random.Generator, which alone decides
    x        (N,) float at 16 kHz
    returns  (M,) int16
    """
    x = noisy(rng, surround(rng, x))
    return np.round(x / np.abs(x).max() * 32767 * 10 ** (rng.uniform(-20, -1) / 20)).astype(
        np.int16
    )


def surround(rng, x):
    """Cut the silence at both ends (below -40 dB of the peak) and put 0.1 to 0.3 s in its place."""
    loud = np.flatnonzero(np.abs(x) > 0.01 * np.abs(x).max())
    x = x[max(0, loud[0] - RATE // 50) : loud[-1] + RATE // 50]
    return np.pad(x, rng.integers(RATE // 10, 3 * RATE // 10, 2))


def noisy(rng, x):
    """Add noise at 15 to 35 dB below the speech to a third of the recordings, a faint floor to the others."""
    kind = rng.choice([white, pink, hum, babble]) if rng.random() < 1 / 3 else None
    decibels = rng.uniform(15, 35) if kind else rng.uniform(45, 60)
    noise = (kind or white)(rng, x)
    return x + noise * np.sqrt(np.mean(x**2) / np.mean(noise**2)) * 10 ** (-decibels / 20)


def white(rng, x):
    """Return noise of the same power at all frequencies, as long as x."""
    return rng.standard_normal(len(x))


def pink(rng, x):
    """Return noise that loses 3 dB an octave above 40 Hz."""
    f = np.fft.rfftfreq(len(x), 1 / RATE)
    return np.fft.irfft(np.fft.rfft(white(rng, x)) / np.sqrt(np.maximum(f, 40)), len(x))


def hum(rng, x):
    """Return the hum of a mains of 50 or 60 Hz with its harmonics."""
    t, mains = np.arange(len(x)) / RATE, rng.choice([50, 60])
    return sum(
        rng.random() / k * np.sin(2 * np.pi * (mains * k * t + rng.random())) for k in range(1, 9)
    )


def babble(rng, x):
    """Return a crowd: the utterance itself backwards, eight times, shifted and slowed or hurried."""
    at = [np.arange(len(x)) * rng.uniform(0.8, 1.25) + rng.uniform(0, len(x)) for _ in range(8)]
    return sum(np.interp(t, np.arange(len(x)), x[::-1], period=len(x)) for t in at)
