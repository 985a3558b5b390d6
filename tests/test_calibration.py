"""Calibration: constructed bins, a plain loop over sorted words, and what holds of words drawn at their confidence."""

import numpy as np
import pytest

from asr.scoring.calibration import Bin, expected_calibration_error, reliability

RNG = np.random.default_rng(3)


def plain(confidences, correct, bins):
    """ECE by the definition, of confidences that all differ."""
    words, gap = sorted(zip(confidences, correct, strict=True)), 0.0
    size = len(words) // bins
    for begin in range(0, len(words), size):
        part = words[begin : begin + size]
        gap += abs(sum(c for c, _ in part) - sum(r for _, r in part))
    return gap / len(words)


def test_bins_of_equal_count():
    confidences, correct = [0.9, 0.1, 0.7, 0.3, 0.8], [1, 0, 1, 1, 0]
    low, high = reliability(confidences, correct, 2)
    assert (low.count, high.count) == (3, 2)
    assert low == Bin(3, pytest.approx(1.1 / 3), pytest.approx(2 / 3))
    assert high == Bin(2, pytest.approx(0.85), 0.5)
    assert [part.count for part in reliability(confidences, correct)] == [1] * 5
    assert [part.count for part in reliability(RNG.random(47), RNG.random(47) < 0.5)] == (
        [4, 4] + [3] * 13
    )


@pytest.mark.parametrize("bins", [1, 5, 15])
def test_agrees_with_the_definition(bins):
    confidences = RNG.random(600)
    correct = RNG.random(600) < confidences**2
    expected = plain(confidences, correct, bins)
    assert expected_calibration_error(confidences, correct, bins) == pytest.approx(expected)


def test_the_order_of_words_with_equal_confidence_does_not_matter():
    confidences = RNG.integers(0, 4, 500) / 3
    correct = RNG.random(500) < 0.6
    first = expected_calibration_error(confidences, correct)
    for _ in range(5):
        order = RNG.permutation(500)
        assert expected_calibration_error(confidences[order], correct[order]) == pytest.approx(
            first, abs=1e-12
        )


def test_honest_confidences_have_none_and_others_what_they_are_off():
    confidences = RNG.uniform(0.2, 0.7, 60_000)
    draws = RNG.random(60_000)
    assert expected_calibration_error(confidences, draws < confidences) < 0.01
    off = expected_calibration_error(confidences, draws < confidences + 0.25)
    assert off == pytest.approx(0.25, abs=0.01)
    assert expected_calibration_error([1.0, 0.0], [True, False]) == 0
    assert expected_calibration_error([1.0, 0.0], [False, True]) == 1


@pytest.mark.parametrize(
    "confidences,correct",
    [([], []), ([0.5], [True, False]), ([1.1], [True]), ([-0.1], [True]), ([np.nan], [True])],
)
def test_refused(confidences, correct):
    with pytest.raises(ValueError, match="expected"):
        expected_calibration_error(confidences, correct)
