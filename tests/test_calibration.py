"""Calibration: constructed bins, a plain loop over sorted words, and what holds of words drawn at their confidence.

Curves are compared with the one by which words were drawn, and with their neighbors by likelihood.
"""

import itertools
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from pytest import approx
from refusals import refused
from safetensors.torch import save_file

from asr import confidence
from asr.confidence import BetaCurve, Calibration
from asr.scoring.calibration import (
    Bin,
    Outcomes,
    cross_validated,
    expected_calibration_error,
    fit,
    outcomes,
    reliability,
)
from asr.transcript import Alternative, Segment, Transcript, Word

each = pytest.mark.parametrize
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
    low, high = Bin(3, approx(1.1 / 3), approx(2 / 3)), Bin(2, approx(0.85), 0.5)
    assert reliability(confidences, correct, 2) == [low, high]
    assert [part.count for part in reliability(confidences, correct)] == [1] * 5
    counts = [part.count for part in reliability(RNG.random(47), RNG.random(47) < 0.5)]
    assert counts == [4, 4] + [3] * 13


@each("bins", [1, 5, 15])
def test_agrees_with_the_definition(bins):
    confidences = RNG.random(600)
    correct = RNG.random(600) < confidences**2
    expected = plain(confidences, correct, bins)
    assert expected_calibration_error(confidences, correct, bins) == approx(expected)


def test_the_order_of_words_with_equal_confidence_does_not_matter():
    confidences = RNG.integers(0, 4, 500) / 3
    correct = RNG.random(500) < 0.6
    first = expected_calibration_error(confidences, correct)
    for _ in range(5):
        order = RNG.permutation(500)
        again = expected_calibration_error(confidences[order], correct[order])
        assert again == approx(first, abs=1e-12)


@each(
    "confidences,correct",
    [([], []), ([0.5], [True, False]), ([1.1], [True]), ([-0.1], [True]), ([np.nan], [True])],
)
def test_refused(confidences, correct):
    with pytest.raises(ValueError, match="expected"):
        expected_calibration_error(confidences, correct)


# curves


def drawn(curve, count=12000):
    """Words, four of an utterance, that are right as often as a curve says of their confidence."""
    given = RNG.beta(3, 1, count)
    right = RNG.random(count) < [curve(p) for p in given]
    return Outcomes(given, right, np.arange(count) // 4)


def loss(outcomes, curve):
    """Negative logarithm of the probability of what became of words."""
    chances = np.array([curve(p) for p in outcomes.confidences])
    return -np.log(np.where(outcomes.right, chances, 1 - chances)).sum()


@each("a,b,c", [(1, 1, 0), (0.4, 2, -0.5), (2, 0.3, 1.5), (3, 0, 1)])
def test_a_curve_is_found_again(a, b, c):
    truth = BetaCurve(a=a, b=b, c=c)
    words = drawn(truth, 40_000)  # with 12,000 it would depend on the draw
    found, after = fit(words), cross_validated(words)
    assert all(abs(found(p) - truth(p)) < 0.05 for p in np.linspace(0.1, 0.99, 50))
    assert after.error() < 0.03 and (a == 1 or after.error() < words.error() / 2)
    for name, by in itertools.product("abc", (-0.05, 0.05)):
        near = found.model_copy(update={name: getattr(found, name) + by})
        if min(near.a, near.b) >= 0:
            assert loss(words, near) > loss(words, found) - 0.01


def test_a_curve_never_falls_and_stays_within_0_and_1():
    words = drawn(BetaCurve(a=1, b=1, c=0))
    reverse = replace(words, right=~words.right)
    assert fit(reverse)(0.1) <= fit(reverse)(0.9) == approx(reverse.right.mean(), abs=0.02)
    for right in (True, False):  # of all, which no likelihood bounds
        curve = fit(Outcomes(np.full(20, 0.9), np.full(20, right), np.arange(20)))
        values = [curve(p) for p in (0.0, 1e-9, 0.3, 0.9, 1.0)]
        assert values == sorted(values) and values[0] >= 0 and values[-1] <= 1
        assert (curve(0.9) > 0.9) == right
    identity = BetaCurve(a=1.0, b=1.0, c=0.0)
    assert [identity(p) for p in (0.2, 0.999)] == approx([0.2, 0.999])
    assert math.isnan(identity(math.nan))


def test_words_are_not_calibrated_by_their_own_utterance():
    words = drawn(BetaCurve(a=1, b=2, c=-1), 400)
    own, before = words.utterances % 10 == 3, cross_validated(words).confidences
    after = cross_validated(replace(words, right=words.right ^ own)).confidences
    assert (after[own] == before[own]).all() and (after[~own] != before[~own]).all()


def transcript(name, text, confidences):
    words = tuple(map(Word, range(9), range(1, 10), text.split(), confidences))
    best = Alternative(text, [], 0.0, confidence=0.5)
    return Transcript(name, text, (Segment(0, 9, text, 0.5, words),), nbest=(best,))


def test_words_are_right_by_their_alignment():
    hypotheses = {"a": "GO ON UP", "b": "GO IN UP UP"} | {f"u{n}": "GO" for n in range(9)}
    references = dict.fromkeys(hypotheses, "GO") | {"a": "GO ON UP", "b": "GO ON UP"}
    found = [transcript(name, text, [0.9, 0.8, 0.7, 0.6]) for name, text in hypotheses.items()]
    words, texts = outcomes(found, references)
    assert words.right[:3].all() and words.right[3:7].tolist() in ([1, 0, 1, 0], [1, 0, 0, 1])
    assert words.confidences[:7].tolist() == [0.9, 0.8, 0.7, 0.9, 0.8, 0.7, 0.6]
    assert words.utterances[:8].tolist() == [0, 0, 0, 1, 1, 1, 1, 2]
    assert texts.right.tolist() == [True, False] + [True] * 9
    refused("got 9 utterances with confidences, expected 10", outcomes, found[:9], references)


def test_the_file_is_strict_and_of_its_weights(tmp_path, caplog):
    for name, digest in (("m", "one"), ("o", "other")):
        (tmp_path / name).mkdir()
        save_file({"x": torch.zeros(2)}, tmp_path / name / "model.safetensors", {"sha256": digest})
    curve, search = BetaCurve(a=1, b=2, c=-0.5), {"mode": "joint", "beam": 10, "ctc_weight": 0.3}
    kept = Calibration(weights="one", search=search, words=curve, utterances=curve)
    assert confidence.load(tmp_path / "m") is None and not caplog.text
    kept.save(tmp_path / "m")
    assert confidence.load(tmp_path / "m") == kept
    path = tmp_path / "m/calibration.yaml"
    shutil.copy(path, tmp_path / "o")
    assert confidence.load(tmp_path / "o") is None and "of other weights" in caplog.text
    path.write_text(path.read_text().replace("a: 1.0", "a: -1.0", 1))
    refused("calibration.yaml: words.a: got -1.0", confidence.load, tmp_path / "m")
    for content in ("", "\0" * 99, "w: {}\nwords: {}", "x: 1"):
        path.write_text(content)
        assert confidence.is_calibration(path) == (content != "x: 1")
