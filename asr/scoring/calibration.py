"""Calibration: do words of confidence 0.8 turn out right 80 % of the time? And the curve that makes them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from asr.confidence import NEAREST, BetaCurve
from asr.errors import UserError
from asr.scoring.error_rate import alignments
from asr.text.normalize import normalize
from asr.text.units import units
from asr.transcript import Transcript

BINS, FOLDS = 15, 10
PRIOR = np.array([1.0, 1.0, 0.0])  # a, b and c of the curve that changes nothing
RIDGE = 0.01  # precision of the prior, so that a few words, or no wrong one, don't decide alone


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


@dataclass(frozen=True)
class Outcomes:
    """What became of words, or of utterances.

    confidences  (N,) float64, 0 to 1
    right        (N,) bool
    utterances   (N,) int64, of each the number of its utterance
    """

    confidences: np.ndarray
    right: np.ndarray
    utterances: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[tuple[float, bool, int]]) -> "Outcomes":
        """Gather those of known confidence."""
        known = [row for row in rows if not math.isnan(row[0])]
        return cls(
            *(np.array([row[n] for row in known], t) for n, t in enumerate((float, bool, int)))
        )

    def error(self) -> float:
        """Return the expected calibration error."""
        return expected_calibration_error(list(self.confidences), list(self.right))


@dataclass(frozen=True)
class Fit:
    """A curve, and the expected calibration error of `count` outcomes before it and, cross-validated, after."""

    curve: BetaCurve
    count: int
    before: float
    after: float


def fit_confidences(
    transcripts: Sequence[Transcript], references: Mapping[str, str]
) -> dict[str, Fit]:
    """Fit the raw confidences of "words" and "utterances" to what of them is right; raises as `outcomes`."""
    pairs = zip(("words", "utterances"), outcomes(transcripts, references), strict=True)
    return {
        name: Fit(fit(given), len(given.right), given.error(), cross_validated(given).error())
        for name, given in pairs
    }


def outcomes(
    transcripts: Sequence[Transcript], references: Mapping[str, str]
) -> tuple[Outcomes, Outcomes]:
    """See which words, and which whole texts, are right by an alignment with the references.

    transcripts  with words
    references   of the same ids
    raises       UserError if fewer than `FOLDS` utterances have words of known confidence
    """
    timed = [
        [word for segment in transcript.segments for word in segment.words]
        for transcript in transcripts
    ]
    spoken = [" ".join(normalize(word.text) for word in words) for words in timed]
    pairs = alignments([references[t.id] for t in transcripts], spoken, "mixed")
    words = Outcomes.of(
        [
            (word.confidence, is_right, n)
            for n, own, aligned in zip(count(), timed, pairs, strict=False)
            for word, is_right in zip(own, _right(aligned), strict=True)
        ]
    )
    texts = Outcomes.of(
        [
            (t.nbest[0].confidence, units(normalize(t.text)) == units(references[t.id]), n)
            for n, t in enumerate(transcripts)
            if t.nbest
        ]
    )
    for found in (words, texts):
        if (have := len(set(found.utterances.tolist()))) < FOLDS:
            raise UserError(f"got {have} utterances with confidences, expected {FOLDS} or more")
    return words, texts


def _right(pairs: Sequence[tuple[str | None, str | None]]) -> Iterator[bool]:
    """Tell of each unit of a hypothesis whether it is the reference's."""
    return (given == found for given, found in pairs if found is not None)


def fit(outcomes: Outcomes) -> BetaCurve:
    """Fit a curve: the most probable one, by Newton's method with a normal prior around no change."""
    p = np.clip(outcomes.confidences, NEAREST, 1 - NEAREST)
    X = np.stack([np.log(p), -np.log1p(-p), np.ones_like(p)], axis=1)  # (N, 3)
    free = np.ones(3, bool)
    while True:
        theta = _logistic(X, outcomes.right, free)
        falling = free & (theta < 0) & np.array([True, True, False])
        if not falling.any():
            return BetaCurve(**dict(zip("abc", theta.tolist(), strict=True)))
        free[np.where(falling, theta, 0).argmin()] = False  # and stays 0


def _logistic(X: np.ndarray, right: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Regress X (N, 3) on what is right (N,); what isn't free is 0."""
    X, prior = X[:, free], PRIOR[free]

    def loss(theta: np.ndarray) -> float:
        z = X @ theta
        return float(
            (np.logaddexp(0, z) - right * z).sum() + RIDGE / 2 * ((theta - prior) ** 2).sum()
        )

    theta = prior
    for _ in range(100):
        chance = (1 + np.tanh(X @ theta / 2)) / 2
        slope = X.T @ (chance - right) + RIDGE * (theta - prior)
        curvature = (X.T * (chance * (1 - chance))) @ X + RIDGE * np.eye(len(theta))
        step, before = np.linalg.solve(curvature, slope), loss(theta)
        while loss(theta - step) > before and abs(step).max() > 1e-9:
            step = step / 2
        theta = theta - step
        if abs(step).max() < 1e-9:
            break
    full = np.zeros(3)
    full[free] = theta
    return full


def cross_validated(outcomes: Outcomes) -> Outcomes:
    """Calibrate each of `FOLDS` parts by a curve of the others; words of an utterance stay together."""
    fold, calibrated = outcomes.utterances % FOLDS, np.empty_like(outcomes.confidences)
    for n in range(FOLDS):
        seen, own = fold != n, np.flatnonzero(fold == n)
        parts = outcomes.confidences[seen], outcomes.right[seen], outcomes.utterances[seen]
        curve = fit(Outcomes(*parts))
        calibrated[own] = [curve(p) for p in outcomes.confidences[own].tolist()]
    return Outcomes(calibrated, outcomes.right, outcomes.utterances)
