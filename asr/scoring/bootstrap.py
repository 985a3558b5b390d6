"""The bootstrap: how far an error rate, or a difference of two, would move by chance."""

from collections.abc import Iterator, Sequence

import numpy as np

from asr.scoring.error_rate import ErrorRate

RESAMPLES = 10_000
SEED = 0
BLOCK = 4_000_000  # numbers drawn at a time


def resampled_rates(
    systems: Sequence[Sequence[ErrorRate]], resamples: int = RESAMPLES, seed: int = SEED
) -> np.ndarray:
    """Compute each system's error rate on the same resampled test sets.

    systems:  (S, N): one ErrorRate per utterance of each system, of the same utterances
    returns   (S, resamples) float64; the same for the same seed
    """
    errors = np.array(
        [[utterance.errors for utterance in system] for system in systems], dtype=np.float64
    )  # (S, N)
    lengths = np.array([utterance.reference for utterance in systems[0]], dtype=np.float64)  # (N,)
    blocks = [
        errors[:, chosen].sum(axis=2) / lengths[chosen].sum(axis=1)
        for chosen in draws(len(lengths), resamples, seed)
    ]
    return np.concatenate(blocks, axis=1)


def draws(utterances: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Yield (block, N) indices until there are `resamples` rows, in blocks that fit into memory."""
    rng = np.random.default_rng(seed)
    rows = max(1, BLOCK // utterances)
    for begin in range(0, resamples, rows):
        yield rng.integers(utterances, size=(min(rows, resamples - begin), utterances))


def interval(values: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """Take the central `level` of resampled values: their 2.5th and 97.5th percentile."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
