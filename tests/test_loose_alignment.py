"""Alignment with stars and skips: the path is the best of all paths, which brute force lists state by state.

Without stars and skips, torchaudio's forced_align is the second judge. Losses of all sizes need several floors.
"""

import math

import numpy as np
import pytest
import torch

from asr import imports
from asr.errors import UserError
from asr.search.loose_alignment import Skip, align_loosely


def best_of_all(rows, labels, slots, skips):
    """The best score and its states (kind, u, frames), by listing every path."""
    (_, T), U, best = rows.shape, len(labels), (-math.inf, None)

    def go(t, u, parted, score, states):
        nonlocal best
        if (t, u) == (T, U) and score > best[0]:
            best = score, states
        for skip in skips:
            if skip.first == u:
                go(t, skip.end, True, score - skip.cost, [*states, ("skip", u, skip.end)])
        for end in range(t + 1, T + 1):
            if not states or states[-1][0] != "slot":
                go(end, u, True, score + rows[slots[u], t:end].sum(), [*states, ("slot", t, end)])
            if u < U and (parted or labels[u] != labels[u - 1]):
                more = [*states, ("label", u, (t, end))]
                go(end, u + 1, False, score + rows[labels[u], t:end].sum(), more)

    go(0, 0, True, 0.0, [])
    return best


def drawn(seed):
    """Rows, labels with equal neighbors, two kinds of slots, and skips that overlap and follow one another."""
    rng = np.random.default_rng(seed)
    T, U = int(rng.integers(1, 6)), int(rng.integers(0, 5))
    rows = -np.abs(rng.normal(size=(4, T)) * rng.choice([1, 20, 300])).astype(np.float32)
    firsts = rng.integers(0, max(1, U), rng.integers(0, 4) if U else 0)
    skips = [Skip(a, int(rng.integers(a + 1, U + 1)), rng.exponential(20)) for a in firsts.tolist()]
    return rows, rng.integers(2, 4, U), rng.integers(0, 2, U + 1), skips


@pytest.mark.parametrize("part", range(4))
def test_the_path_is_the_best_of_all(part):
    found = 0
    for seed in range(100 * part, 100 * part + 100):
        rows, labels, slots, skips = drawn(seed)
        score, states = best_of_all(rows.astype(np.float64), labels, slots, skips)
        path = align_loosely(rows, labels, slots, skips)
        if states is None:
            assert path is None
            continue
        assert path.score == pytest.approx(score, abs=1e-5)
        times = {u: span for kind, u, span in states if kind == "label"}
        got = {u: (path.starts[u], path.ends[u]) for u in range(len(labels)) if not path.skipped[u]}
        assert got == times and (path.starts[path.skipped] == path.ends[path.skipped]).all()
        found += 1
    assert found > 70


def test_forced_align_finds_the_same_path_where_nothing_is_loose():
    try:
        functional = imports.torchaudio("torchaudio.functional")
    except UserError as error:
        pytest.skip(str(error))
    rng = torch.Generator().manual_seed(1)
    for T, U in ((400, 120), (900, 200), (61, 30)):  # blocks of 10 labels and more
        log_probs = (3 * torch.randn(T, 20, generator=rng)).log_softmax(-1)
        Y = torch.randint(1, 20, (U,), generator=rng)
        expected, scores = functional.forced_align(log_probs[None], Y[None].int(), blank=0)
        path = align_loosely(log_probs.T.contiguous().numpy(), Y.numpy(), np.zeros(U + 1, int))
        frames = np.zeros(T, int)
        for start, end, label in zip(path.starts, path.ends, Y.tolist(), strict=True):
            frames[start:end] = label
        assert frames.tolist() == expected[0].tolist()
        assert path.score == pytest.approx(scores.sum().item(), rel=1e-5)


def test_a_gap_on_either_side_moves_nothing_else():
    """300 labels, 20 of them unspoken, and 40 frames that nobody has written: the rest is where it is without."""
    rng, U = np.random.default_rng(0), 300
    labels = rng.integers(2, 30, U)
    slots, skips = np.full(U + 1, 1), [Skip(u, u + 5, 25.0) for u in range(0, U, 5)]

    def rows_of(spoken):
        rows = np.full((30, 2 * len(spoken)), -9.0, np.float32)
        rows[spoken, np.arange(0, 2 * len(spoken), 2)] = rows[0, 1::2] = 0.0
        rows[1] = np.maximum(rows[0], -1.5)
        return rows

    whole = align_loosely(rows_of(labels), labels, slots, skips)
    assert not whole.skipped.any() and (whole.starts == 2 * np.arange(U)).all()
    spoken = np.concatenate([labels[:100], labels[120:200], rng.integers(2, 30, 20), labels[200:]])
    path = align_loosely(rows_of(spoken), labels, slots, skips)
    assert path.skipped.nonzero()[0].tolist() == [*range(100, 120)]
    assert (path.starts[:100] == whole.starts[:100]).all()
    assert (path.starts[120:200] == whole.starts[120:200] - 40).all()
    assert (path.starts[200:] == whole.starts[200:]).all()
