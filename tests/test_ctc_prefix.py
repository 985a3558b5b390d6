"""CTC prefix scores: against brute force over all alignments, and against the plain recursion frame by frame."""

import itertools
import math

import pytest
import torch
from scorers import check_walk
from searches import INF, FrameLoop, brute_force, ctc_function, ctc_scorer, log_probs, numbered
from small import each, near
from torch.testing import assert_close

from asr.search import ctc_prefix
from asr.search.ctc_prefix import CHUNK, FLOOR, CTCPrefixScorer


def scorer_of(V, full=False):
    return CTCPrefixScorer(lambda X: X, V - 1, full)


def read_all(X, X_lens, sequences):
    """Gains of all labels after every prefix of sequences (K, U), the same for each utterance: (U + 1, B, K, V)."""
    (B, _, V), K = X.shape, len(sequences)
    scorer, every = scorer_of(V), torch.arange(V).expand(B, K, -1)
    state = scorer.reorder(scorer.start(X, X_lens), torch.zeros(B, K, dtype=torch.long))
    gains = [scorer.score(state, every)]
    for y in torch.tensor(sequences).T:
        state = scorer.step(y.expand(B, K), scorer.reorder(state, torch.arange(K).expand(B, K)))
        gains.append(scorer.score(state, every))
    return torch.stack(gains)


@each("fill", [math.nan, 1e30, -INF, 0.0])
def test_scores_are_the_sums_over_all_alignments(fill):
    """With repeated labels, and sequences too long for most utterances; garbage behind their ends."""
    lens, sequences = [5, 1, 3, 4, 2], list(itertools.product([1, 2], repeat=4))
    X, X_lens = log_probs(lens, 4, 0, fill)
    gains = read_all(X, X_lens, sequences)
    assert not gains.isnan().any() and (gains <= 1e-6).all()
    for b, T in enumerate(lens):
        complete, prefix = brute_force(X[b, :T].double())
        for k, y in enumerate(sequences):
            for u in range(len(y) + 1):
                psi, labels = prefix.get(y[:u], -INF), [(*y[:u], c) for c in (1, 2)]
                sums = [prefix.get(g, -INF) for g in labels] + [complete.get(y[:u], -INF)]
                expected = [s - psi if psi > -INF else -INF for s in sums]
                near(gains[u, b, k, 1:].tolist(), expected, 1e-6)


@each("impossible", [0.0, 0.1])
def test_long_utterances_equal_the_frame_loop(impossible):
    """The sum of the gains of all labels and the end is the complete score."""
    lens, V = [800, 613], 6
    X, X_lens = log_probs(lens, V, 1, scale=4.0)
    generator = torch.Generator().manual_seed(3)
    X[torch.rand(X.shape, generator=generator) < impossible] = -INF
    if impossible:  # a label that is never possible, and a frame in which another is certain
        X[1, :, 2], X[0, 3], X[0, 3, 1] = -INF, -INF, 0.0
    y = torch.randint(1, V - 1, (60,), generator=generator)
    gains = read_all(X, X_lens, [y.tolist()])
    assert not gains.isnan().any()
    ends = torch.cat([y, torch.tensor([V - 1])])
    for b, T in enumerate(lens):
        loop = FrameLoop(X[b, :T].clamp(min=FLOOR).tolist())
        for u in (0, 1, 2, 30, 59, 60):
            g = tuple(y[:u].tolist())
            expected = [*(loop.prefix((*g, c)) for c in range(1, V - 1)), loop.complete(g)]
            got = gains[u, b, 0, 1:] + loop.prefix(g)
            near(got.tolist(), expected, 1e-6)
        total = gains[:, b, 0].gather(1, ends.unsqueeze(1)).sum()
        assert float(total) == pytest.approx(loop.complete(tuple(y.tolist())), abs=1e-6)


def test_all_labels_are_told_apart_however_unlikely_the_hypothesis_is():
    """After 150 labels, each of e^-70 to e^-80, as hours of audio that the model makes nothing of have them."""
    X = -70 - 10 * torch.rand(1, 170, 6, generator=torch.Generator().manual_seed(5))
    scorer = scorer_of(6, full=True)
    state = scorer.start(X, torch.tensor([170]))
    for u in range(150):
        state = scorer.step(torch.tensor([[1 + u % 4]]), state)
    assert float(state.prefix) < -1e4
    exact = scorer.score(state, torch.arange(6).view(1, 1, -1))[..., 1:]
    assert exact.isfinite().all() and exact[..., :-1].std() > 0.1
    dense = scorer.score(state, None)[..., 1:]
    near(dense, exact, 0.01, check_dtype=False)


@each("full", [False, True])
def test_whatever_a_search_does_scores_are_those_of_the_frame_loop(full):
    X, X_lens = log_probs([17, 5, 12, 9, 16, 20], 5, 5)
    function = ctc_function(X.double(), X_lens)

    def expected(b, labels):
        return torch.tensor(function(b, labels), dtype=torch.double)

    beams = (1, 3, 3, 2, 4, 4, 1, 3)
    check_walk(ctc_scorer(5, full), numbered(X), X_lens, expected, beams, atol=1e-6, rtol=0)


@each("new, copied", [([9], False), ([5, 12], False), ([13], True), ([2, 3, 4], True)])
def test_who_comes_takes_the_place_of_who_left(new, copied):
    """Two have left of utterances of 12 frames and fewer. That scores stay right is shown above."""
    X, X_lens = log_probs([12, 9, 8, 6, *new], 6, 4)
    scorer = scorer_of(6)
    states = [scorer.start(X[n, : max(X_lens[n])], X_lens[n]) for n in (slice(4), slice(4, None))]
    place = states[0].emissions.data_ptr()
    states[0] = scorer.select(states[0], torch.tensor([3, 1]))
    merged = scorer.merge(*states)
    assert [x.r_n.size(2) for x in (*states, merged)] == [9, max(new), max(9, *new)]
    assert (merged.emissions.data_ptr() != place) is copied


def test_scores_of_all_labels_are_those_of_candidates():
    X, X_lens = log_probs([30, 17, 1], 40, 9)
    scorer, every = scorer_of(40, full=True), torch.arange(40).expand(3, 2, -1)
    state = scorer.reorder(scorer.start(X, X_lens), torch.zeros(3, 2, dtype=torch.long))
    for y in ([1, 2], [1, 7], [4, 7]):
        state = scorer.step(torch.tensor([y] * 3), state)
        exact = scorer.score(state, every)[..., 1:]
        likely = exact > -50  # below, float32 knows only that they are possible
        possible = ~likely & ~exact.isneginf()
        for low in (False, True):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=low):
                got = scorer.score(state, None)[..., 1:]
            assert_close(got[likely], exact[likely], atol=1e-3, rtol=1e-4)
            assert (got > -INF)[..., :-1][possible[..., :-1]].all()


def test_many_candidates_equal_few():
    V = 2 * CHUNK + 10
    X, X_lens = log_probs([9], V, 6)
    scorer, every = scorer_of(V), torch.arange(V).view(1, 1, -1)
    state = scorer.step(torch.tensor([[5]]), scorer.start(X, X_lens))
    few = torch.cat([scorer.score(state, c) for c in every.split(1, dim=2)], 2)
    near(scorer.score(state, every), few, 1e-12)


@each("most", [1, 200, 10**9])
def test_utterances_scored_in_parts_have_the_same_scores(most, monkeypatch):
    X, X_lens = log_probs([50, 31, 7, 1, 44], 6, 8)
    monkeypatch.setitem(ctc_prefix.MOST, "cpu", 50 * 4 * 6 * 2)  # two utterances' emissions
    expected = read_all(X, X_lens, [[1, 2, 2, 4], [1, 3, 3, 2]])
    monkeypatch.setitem(ctc_prefix.MOST, "cpu", most)
    assert torch.equal(read_all(X, X_lens, [[1, 2, 2, 4], [1, 3, 3, 2]]), expected)


def test_autocast_leaves_the_precision_alone():
    X, X_lens = log_probs([50, 31], 6, 8)
    expected = read_all(X, X_lens, [[1, 2, 2, 4]])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = read_all(X, X_lens, [[1, 2, 2, 4]])
    near(got, expected)
