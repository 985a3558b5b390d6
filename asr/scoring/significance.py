"""Is a system better, or was it luck? The paired bootstrap of Bisani and Ney (ICASSP 2004)."""

from collections.abc import Sequence
from dataclasses import dataclass

from asr.scoring.bootstrap import RESAMPLES, SEED, interval, resampled_rates
from asr.scoring.error_rate import ErrorRate, total


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
