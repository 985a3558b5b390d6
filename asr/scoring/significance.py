"""The bootstrap: how far an error rate, or a difference of two, would move by chance (Bisani and Ney, ICASSP 2004)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from asr.scoring.error_rate import ErrorRate, total

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


@dataclass(frozen=True)
class Difference:
    """Error rate of the first system minus the second's: below 0, the first is better.

    value, low, high:  the difference and its 95 % interval
    p:                 two-sided: how often chance alone would put the difference as far on the
                       other side of 0
    """

    value: float
    low: float
    high: float
    p: float


def compare(
    first: Sequence[ErrorRate],
    second: Sequence[ErrorRate],
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Difference:
    """Compare two systems on the same utterances.

    first, second:  one ErrorRate per utterance, in the same order
    raises          ValueError if their references differ in length
    """
    if [utterance.reference for utterance in first] != [
        utterance.reference for utterance in second
    ]:
        raise ValueError("the two systems were not scored on the same references")
    rates = resampled_rates([first, second], resamples, seed)
    differences = rates[0] - rates[1]
    tail = min((differences >= 0).sum(), (differences <= 0).sum())
    p = min(1.0, 2 * (int(tail) + 1) / (resamples + 1))
    return Difference(total(first).rate - total(second).rate, *interval(differences), p)
