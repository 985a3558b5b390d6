"""CTC alignment: the best path is that of brute force over all paths; torchaudio's forced_align is the second judge.

Padding (NaN, and labels of any kind) and company change nothing; what can't be aligned has no path.
"""

import itertools
import math

import pytest
import torch

from asr import imports
from asr.errors import UserError
from asr.search.alignment import align

CASES = [(1, 1), (3, 1), (3, 2), (5, 2), (6, 3), (7, 3), (4, 0), (2, 3), (7, 1)]  # T, U


def drawn(T, U, V=4, seed=0):
    """Random posteriors (T, V) and labels (U,), of which some neighbors are equal."""
    rng = torch.Generator().manual_seed(seed + 100 * T + U)
    log_probs = (3 * torch.randn(T, V, generator=rng)).log_softmax(-1)
    return log_probs, torch.randint(1, V, (U,), generator=rng)


def padded(pairs, V=4):
    """A batch with more frames and labels than any of them has."""
    T, U = (max(len(pair[n]) for pair in pairs) + 2 for n in (0, 1))
    log_probs, Y = torch.full((len(pairs), T, V), math.nan), torch.full((len(pairs), U), -1)
    for row, (p, y) in enumerate(pairs):
        log_probs[row, : len(p)], Y[row, : len(y)] = p, y
    lens = (torch.tensor([len(pair[n]) for pair in pairs]) for n in (0, 1))
    return log_probs, next(lens), Y, next(lens)


def path_of(starts, ends, labels, T):
    path = [0] * T
    for start, end, label in zip(starts.tolist(), ends.tolist(), labels.tolist(), strict=False):
        path[start:end] = [label] * (end - start)
    return path


@pytest.mark.parametrize("seed", range(3))
def test_the_path_is_the_best_of_all_paths_alone_and_in_company(seed):
    pairs = [drawn(T, U, seed=seed) for T, U in CASES]
    found = align(*padded(pairs))
    for row, (log_probs, Y) in enumerate(pairs):
        T, scores = len(log_probs), {}
        for path in itertools.product(range(4), repeat=T):
            if [y for y, _ in itertools.groupby(path) if y] == Y.tolist():
                scores[path] = sum(log_probs[t, y].double().item() for t, y in enumerate(path))
        alone = align(*padded([(log_probs, Y)]))
        for one, n in ((found, row), (alone, 0)):
            starts, ends = one.starts[n, : len(Y)], one.ends[n, : len(Y)]
            if not scores:
                assert one.score[n] == -math.inf and not starts.any() and not ends.any()
                continue
            best = max(scores, key=scores.__getitem__)
            assert one.score[n].item() == pytest.approx(scores[best], abs=1e-9)
            assert path_of(starts, ends, Y, T) == list(best) and (starts < ends).all()
            assert not one.starts[n, len(Y) :].any() and not one.ends[n, len(Y) :].any()


def test_forced_align_finds_the_same_paths():
    try:
        functional = imports.torchaudio("torchaudio.functional")
    except UserError as error:
        pytest.skip(str(error))
    pairs = [drawn(T, U, V=20) for T, U in ((80, 20), (200, 50), (33, 16))]
    found = align(*padded(pairs, V=20))
    for row, (log_probs, Y) in enumerate(pairs):
        path, scores = functional.forced_align(log_probs[None], Y[None].int(), blank=0)
        assert path_of(found.starts[row], found.ends[row], Y, len(log_probs)) == path[0].tolist()
        assert found.score[row].item() == pytest.approx(scores.sum().item(), rel=1e-5)
