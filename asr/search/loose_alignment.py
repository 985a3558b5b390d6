"""Exact CTC alignment of a long recording with a text that isn't quite what was spoken.

The path goes through slot 0, label 0, slot 1, label 1, …, slot U. A slot is CTC's blank, or a star,
which takes in frames of speech that the text doesn't have. A skip leaves out labels that weren't
spoken, at a cost. As in `asr.search.alignment`, a step is a label, not a frame: how long a label or
slot stays follows from running sums and a running maximum.

All emissions are ≤ 0: how far a label lies below a frame's best. So a path's score never rises, and
what has fallen below a floor can't become better again. A search with a floor that finds a path has
found the best of all paths; without one it is repeated with a deeper floor. Labels then need few
frames each. Scores are kept at every √U-th label, and what lies between is computed again when the
path is followed back. So memory grows with T √U at worst.

T encoder frames, R rows of emissions, U labels. Boundary t lies before frame t, 0 ≤ t ≤ T.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

FIRST_FLOOR = -64.0  # natural logarithms that the first search may lose
ROUNDING = 1e-6  # of scores that are computed again above another floor


class Skip(NamedTuple):
    """Labels first ≤ u < end may be left out at a cost ≥ 0. It parts their neighbors as a blank does."""

    first: int
    end: int
    cost: float


class LooseAlignment(NamedTuple):
    """The best path.

    starts, ends  (U,) int64: label u emits at the frames starts ≤ t < ends; a label that is left out
                  has both where the path leaves it out
    skipped       (U,) bool
    score         sum of its emissions, minus the costs of its skips
    """

    starts: np.ndarray
    ends: np.ndarray
    skipped: np.ndarray
    score: float


class _Scores(NamedTuple):
    """Scores at the boundaries first ≤ t < first + len(values); −∞ elsewhere."""

    first: int
    values: np.ndarray  # (n,) float64

    def at(self, t: int) -> float:
        n = t - self.first
        return float(self.values[n]) if 0 <= n < len(self.values) else -math.inf

    def minus(self, cost: float) -> "_Scores":
        return _Scores(self.first, self.values - cost)


NOWHERE = _Scores(0, np.empty(0))
BEGIN = _Scores(0, np.zeros(1))


class _Step(NamedTuple):
    """Scores of paths that have all labels before u.

    labeled  that end with label u − 1
    jumped   that end with a skip of it
    resting  that end in slot u; a skip counts as being there
    """

    labeled: _Scores
    jumped: _Scores
    resting: _Scores


def align_loosely(
    rows: np.ndarray, labels: np.ndarray, slots: np.ndarray, skips: Sequence[Skip] = ()
) -> LooseAlignment | None:
    """Find the best path through known labels, with a Viterbi algorithm; None where there is no path.

    rows:    (R, T) float ≤ 0, finite, what each kind of emission loses at each frame
    labels:  (U,) int, the row of each label; equal neighbors need a frame of a slot between them
    slots:   (U + 1,) int, the row of each slot
    skips:   stretches of labels that may be left out, of which any number may follow one another
    """
    worst = sum(skip.cost for skip in skips) - float(rows.min(0).sum(dtype=np.float64))
    floor = FIRST_FLOOR
    while True:
        trellis = _Trellis(rows, labels, slots, skips, floor)
        if trellis.sweep():
            return trellis.path()
        if floor < -worst:
            return None
        floor *= min(max(1.5, trellis.U / max(1, trellis.reached)), 8.0)  # if losses are even


class _Trellis:
    """Scores above a floor, at boundaries up to T.

    reached  labels that paths got past
    """

    def __init__(
        self,
        rows: np.ndarray,
        labels: np.ndarray,
        slots: np.ndarray,
        skips: Sequence[Skip],
        floor: float,
    ):
        self.rows, self.floor, self.T, self.U = rows, floor, rows.shape[1], len(labels)
        self.labels, self.slots = labels.tolist(), slots.tolist()
        self.arriving: dict[int, list[Skip]] = {}
        self.farthest: dict[int, int] = {}  # slot where skips begin → where the last of them ends
        for skip in skips:
            self.arriving.setdefault(skip.end, []).append(skip)
            self.farthest[skip.first] = max(skip.end, self.farthest.get(skip.first, 0))
        self.every, self.reached = max(1, math.isqrt(self.U)), 0
        self.kept: list[tuple[_Scores, dict[int, _Scores]]] = []
        self.block: tuple[int, list[_Step]] = (-1, [])

    def sweep(self) -> bool:
        """Search forward, and keep the scores at every √U-th label; whether a path is left at the end."""
        labeled, open = NOWHERE, dict[int, _Scores]()
        for first in range(0, self.U + 1, self.every):
            self.kept.append((labeled, dict(open)))
            for step in self._steps(first, labeled, open):
                if not any(len(scores.values) for scores in (*step, *open.values())):
                    return False
                self.reached += 1
            labeled = self._next(first + self.every - 1, step)
        return max(step.labeled.at(self.T), step.resting.at(self.T)) >= self.floor

    def _steps(self, first: int, labeled: _Scores, open: dict[int, _Scores]) -> Iterator[_Step]:
        """Search through a block of labels; `open` has the scores of slots from which skips lead on."""
        for u in range(first, min(first + self.every, self.U + 1)):
            jumped = BEGIN if u == 0 else NOWHERE
            for skip in self.arriving.get(u, ()):
                jumped = _best(jumped, open[skip.first].minus(skip.cost))
            jumped = self._above(jumped)
            rested = self._stay(_best(labeled, jumped), self.rows[self.slots[u]])
            step = _Step(labeled, jumped, _best(jumped, rested))
            for slot in [slot for slot in open if self.farthest[slot] <= u]:
                del open[slot]
            if u in self.farthest:
                open[u] = _best(step.labeled, step.resting)
            yield step
            labeled = self._next(u, step)

    def _next(self, u: int, step: _Step) -> _Scores:
        """Scores of paths that end with label u."""
        if u >= self.U:
            return NOWHERE
        return self._stay(self._entering(u, step), self.rows[self.labels[u]])

    def _entering(self, u: int, step: _Step) -> _Scores:
        """Scores of paths that may emit label u next."""
        if u and self.labels[u] == self.labels[u - 1]:
            return step.resting
        return _best(step.labeled, step.resting)

    def _stay(self, entering: _Scores, row: np.ndarray) -> _Scores:
        """Best scores after one frame of a row or more, as far as they lie above the floor."""
        first, values = entering
        values = values[: max(0, self.T - first)]
        if not len(values):
            return NOWHERE
        end = first + len(values)
        sums = _sums(row[first:end])
        parts, size = [_maxima(_gains(values, sums)) + sums], 16
        while (score := parts[-1][-1]) >= self.floor and end < self.T:  # it can only stay
            parts.append(score + _sums(row[end : end + size]))
            end, size = end + size, 2 * size
        return self._above(_Scores(first + 1, np.concatenate(parts) if parts[1:] else parts[0]))

    def _above(self, scores: _Scores) -> _Scores:
        """Leave out what lies below the floor at both ends."""
        high = scores.values >= self.floor
        if not len(high) or not high[begin := int(high.argmax())]:
            return NOWHERE
        end = len(high) - int(high[::-1].argmax())
        return _Scores(scores.first + begin, scores.values[begin:end])

    def path(self) -> LooseAlignment:
        """Follow the best path back from its end."""
        starts, ends = np.zeros((2, self.U), dtype=np.int64)
        skipped = np.zeros(self.U, dtype=bool)
        u, t, step = self.U, self.T, self._at(self.U)
        resting = step.resting.at(t) >= step.labeled.at(t)
        score = max(step.resting.at(t), step.labeled.at(t))
        while u or t:
            step = self._at(u)
            # the rest of the path can't be below, nor beyond
            self.floor = (step.resting if resting else step.labeled).at(t) - ROUNDING
            self.T = t
            if not resting:  # label u − 1 ends at t
                u, step = u - 1, self._at(u - 1)
                entering = self._entering(u, step)
                starts[u], ends[u] = _entry(entering, self.rows[self.labels[u]], t), t
                t = int(starts[u])
                resting = step.resting.at(t) >= entering.at(t)
            elif step.jumped.at(t) >= step.resting.at(t):
                first, resting = self._departure(u, t)
                starts[first:u] = ends[first:u] = t
                skipped[first:u], u = True, first
            else:  # frames of slot u end at t
                t = _entry(_best(step.labeled, step.jumped), self.rows[self.slots[u]], t)
                resting = step.jumped.at(t) >= step.labeled.at(t)
        return LooseAlignment(starts, ends, skipped, score)

    def _departure(self, u: int, t: int) -> tuple[int, bool]:
        """Slot from which the best skip to slot u at boundary t leads, and whether the path rests there."""
        found = []
        for skip in self.arriving[u]:
            step = self._at(skip.first)
            resting, labeled = step.resting.at(t), step.labeled.at(t)
            found.append((max(resting, labeled) - skip.cost, skip.first, resting >= labeled))
        _, first, resting = max(found)
        return first, resting

    def _at(self, u: int) -> _Step:
        """Scores at a label, of the block that was last computed again."""
        number = u // self.every
        if self.block[0] != number:
            labeled, open = self.kept[number]
            self.block = number, list(self._steps(number * self.every, labeled, dict(open)))
        return self.block[1][u % self.every]


def _sums(row: np.ndarray) -> np.ndarray:
    """Running sums, (n,) float64; PyTorch's take a quarter of NumPy's time, and so do its maxima."""
    return torch.from_numpy(row).cumsum(0, dtype=torch.double).numpy()


def _maxima(values: np.ndarray) -> np.ndarray:
    """Running maxima, (n,)."""
    return torch.from_numpy(values).cummax(0)[0].numpy()


def _gains(values: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Entering scores without the sum of the emissions before, (n,) each; sums include a boundary's own frame."""
    gains = values.copy()
    gains[1:] -= sums[: len(values) - 1]
    return gains


def _entry(entering: _Scores, row: np.ndarray, t: int) -> int:
    """Boundary at which the best path enters what it is in until boundary t."""
    values = entering.values[: t - entering.first]
    sums = _sums(row[entering.first :][: len(values)])
    return entering.first + int(_gains(values, sums).argmax())


def _best(one: _Scores, other: _Scores) -> _Scores:
    """The greater of two scores at every boundary."""
    if not len(one.values) or not len(other.values):
        return one if len(one.values) else other
    first = min(one.first, other.first)
    end = max(one.first + len(one.values), other.first + len(other.values))
    values = np.full(end - first, -math.inf)
    values[one.first - first :][: len(one.values)] = one.values
    part = values[other.first - first :][: len(other.values)]
    np.maximum(part, other.values, out=part)
    return _Scores(first, values)
