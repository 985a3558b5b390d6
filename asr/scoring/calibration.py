"""Calibration: do words of confidence 0.8 turn out right 80 % of the time?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

BINS = 15


@dataclass(frozen=True)
class Bin:
    """Words of similar confidence.

    count       words
    confidence  their mean confidence
    accuracy    the part of them that is right
    """

    count: int
    confidence: float
    accuracy: float


def reliability(
    confidences: Sequence[float], correct: Sequence[bool], bins: int = BINS
) -> list[Bin]:
    """Sort words by confidence and cut them into bins of equal count (up to one).

    Bins of equal count resolve the confidences that occur, where bins of equal width would be
    nearly empty (Nguyen and O'Connor, EMNLP 2015). Words of the same confidence count as right to
    the part of them that is, so the words' order doesn't matter where a bin ends among them.

    confidences:  one per word, 0 to 1
    correct:      whether each word is right
    bins:         1 or more; fewer words than that get a bin each
    returns       bins from low to high confidence, none empty
    raises        ValueError if there are no words, their numbers differ, or a confidence is not in
                  0 to 1
    """
    given, right = np.asarray(confidences, np.float64), np.asarray(correct, np.float64)
    if given.ndim != 1 or given.shape != right.shape or not len(given):
        raise ValueError(f"expected as many of both, got {given.shape} and {right.shape}")
    if not ((given >= 0) & (given <= 1)).all():  # NaN isn't either
        raise ValueError("expected confidences of 0 to 1")
    values, which, counts = np.unique(given, return_inverse=True, return_counts=True)
    right = (np.bincount(which, right) / counts)[which]  # equal among equals
    order = np.argsort(given)
    return [
        Bin(len(part), float(given[part].mean()), float(right[part].mean()))
        for part in np.array_split(order, min(bins, len(order)))
    ]


def expected_calibration_error(
    confidences: Sequence[float], correct: Sequence[bool], bins: int = BINS
) -> float:
    """Average how far confidence and accuracy are apart, over bins weighted by their words.

    Naeini et al., AAAI 2015, with bins of equal count; arguments and errors as `reliability`.

    >>> round(expected_calibration_error([0.5, 0.5, 0.9, 0.9], [True, False, True, False], 2), 3)
    0.2
    """
    parts = reliability(confidences, correct, bins)
    gaps = sum(part.count * abs(part.confidence - part.accuracy) for part in parts)
    return gaps / len(confidences)
