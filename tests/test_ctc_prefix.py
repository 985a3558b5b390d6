"""CTC prefix scores: against brute force over all alignments, and against the plain recursion frame by frame."""

import itertools
import math

import pytest
import torch
from searches import FrameLoop, log_add

from asr.search.ctc_prefix import CHUNK, FLOOR, CTCPrefixScorer

INF = math.inf


def collapse(path):
    return tuple(label for label, _ in itertools.groupby(path) if label != 0)


def brute_force(log_probs):
    """Of one utterance (T, V): ln P of all that alignments read, and ln ψ of all their prefixes."""
    complete, prefix = {}, {}
    for path in itertools.product(range(log_probs.size(1)), repeat=len(log_probs)):
        score = sum(float(log_probs[t, v]) for t, v in enumerate(path))
        labels = collapse(path)
        complete[labels] = log_add(complete.get(labels, -INF), score)
        for u in range(len(labels) + 1):
            prefix[labels[:u]] = log_add(prefix.get(labels[:u], -INF), score)
    return complete, prefix


def batch(lens, V, fill, seed, scale=2.0):
    """Random log-probabilities (B, T, V), garbage behind the lengths."""
    X = torch.randn(len(lens), max(lens), V, generator=torch.Generator().manual_seed(seed)) * scale
    X = X.log_softmax(-1)
    for row, T in zip(X, lens, strict=True):
        row[T:] = fill
    return X, torch.tensor(lens)


def read_all(X, X_lens, sequences):
    """Gains of every label after every prefix of the sequences (K, U), the same for each utterance: U × (B, K, V)."""
    scorer, (B, _, V), K = CTCPrefixScorer(lambda X: X, X.size(2) - 1), X.shape, len(sequences)
    candidates = torch.arange(V).expand(B, K, -1)
    state, gains = scorer.reorder(scorer.start(X, X_lens), torch.zeros(B, K, dtype=torch.long)), []
    for y in [*torch.tensor(sequences).view(K, -1).T, None]:
        gains.append(scorer.score(state, candidates))
        if y is not None:
            state = scorer.step(y.expand(B, K), scorer.reorder(state, torch.arange(K).expand(B, K)))
    return gains


@pytest.mark.parametrize("fill", [math.nan, 1e30, -INF, 0.0])
def test_scores_are_the_sums_over_all_alignments(fill):
    V, lens = 4, [5, 1, 3, 4, 2]
    sequences = list(
        itertools.product([1, 2], repeat=4)
    )  # with repeated labels, and too long for most utterances
    X, X_lens = batch(lens, V, fill, 0)
    gains = read_all(X, X_lens, sequences)
    for b, T in enumerate(lens):
        complete, prefix = brute_force(X[b, :T].double())
        for k, y in enumerate(sequences):
            for u in range(len(y) + 1):
                got, psi = gains[u][b, k], prefix.get(y[:u], -INF)
                assert not got.isnan().any() and (got <= 1e-6).all()
                labels = [prefix.get((*y[:u], c), -INF) for c in (1, 2)]
                expected = [
                    s - psi if psi > -INF else -INF for s in (*labels, complete.get(y[:u], -INF))
                ]
                torch.testing.assert_close(got[1:].tolist(), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("impossible", [0.0, 0.1])
def test_long_utterances_equal_the_frame_loop(impossible):
    lens, V = [800, 613], 6
    X, X_lens = batch(lens, V, math.nan, 1, scale=4.0)
    X[torch.rand(X.shape, generator=torch.Generator().manual_seed(3)) < impossible] = -INF
    y = torch.randint(1, V - 1, (60,), generator=torch.Generator().manual_seed(2)).tolist()
    gains = read_all(X, X_lens, [y])
    for b, T in enumerate(lens):
        loop = FrameLoop(X[b, :T].clamp(min=FLOOR).tolist())
        for u in (0, 1, 2, 30, 59, 60):
            g = tuple(y[:u])
            expected = [loop.prefix((*g, c)) for c in range(1, V - 1)] + [loop.complete(g)]
            got = gains[u][b, 0, 1:] + loop.prefix(g)
            torch.testing.assert_close(
                got, torch.tensor(expected, dtype=torch.float64), atol=1e-6, rtol=0
            )
        total = sum(
            gains[u][b, 0, c] for u, c in enumerate([*y, V - 1])
        )  # the gains' sum is the complete score
        assert float(total) == pytest.approx(loop.complete(tuple(y)), abs=1e-6)


def test_complete_scores_equal_ctc_loss():
    lens, V = [40, 9, 23], 30
    X, X_lens = batch(lens, V, math.nan, 3)
    y = [3, 3, 7, 1, 1, 1]
    gains = read_all(X, X_lens, [y])
    total = sum(gains[u][:, 0, c] for u, c in enumerate([*y, V - 1]))
    Y = torch.tensor([y]).expand(3, -1)
    loss = torch.nn.functional.ctc_loss(
        X.nan_to_num().double().transpose(0, 1),
        Y,
        X_lens,
        torch.full((3,), len(y)),
        reduction="none",
    )
    torch.testing.assert_close(total, -loss, atol=1e-6, rtol=0)


def test_all_labels_are_told_apart_however_unlikely_the_hypothesis_is():
    """After 150 labels, each of e^-70 to e^-80, as hours of audio that the model makes nothing of have them."""
    X = -70 - 10 * torch.rand(1, 170, 6, generator=torch.Generator().manual_seed(5))
    scorer = CTCPrefixScorer(lambda X: X, 5, full=True)
    state = scorer.start(X, torch.tensor([170]))
    for u in range(150):
        state = scorer.step(torch.tensor([[1 + u % 4]]), state)
    assert float(state.prefix) < -1e4
    exact = scorer.score(state, torch.arange(6).view(1, 1, -1))[..., 1:]
    assert exact.isfinite().all() and exact[..., :-1].std() > 0.1
    torch.testing.assert_close(
        scorer.score(state, None)[..., 1:].double(), exact, atol=0.01, rtol=0
    )


def test_impossible_emissions_give_no_nan():
    X, X_lens = batch([6, 4], 5, math.nan, 4)
    X[:, :, 2] = -INF
    X[0, 3] = torch.tensor(
        [-INF, 0.0, -INF, -INF, -INF]
    )  # one label is certain, the blank impossible
    gains = torch.stack(read_all(X, X_lens, [[1, 1, 1], [2, 1, 3], [3, 1, 1]]))
    assert not gains.isnan().any() and (gains <= 1e-6).all()
    assert (gains[0, :, :, 2] < FLOOR / 2).all()


@pytest.mark.parametrize("full", [False, True])
def test_hypotheses_follow_parents_and_utterances_leave(full):
    """Reordering, growing from 1 to K hypotheses and selecting equal reading the sequences straight."""
    X, X_lens = batch([7, 5, 6], 5, math.nan, 5)
    scorer = CTCPrefixScorer(lambda X: X, 4, full)
    state = scorer.start(X, X_lens)
    state = scorer.step(
        torch.tensor([[1, 2, 3]] * 3), scorer.reorder(state, torch.zeros(3, 3, dtype=torch.long))
    )
    state = scorer.select(state, torch.tensor([2, 0]))
    state = scorer.step(
        torch.tensor([[2, 2], [1, 3]]), scorer.reorder(state, torch.tensor([[1, 0], [2, 2]]))
    )
    got = scorer.score(state, torch.arange(5).expand(2, 2, -1))
    straight = read_all(X, X_lens, [[2, 2], [1, 2], [3, 1], [3, 3]])[2]
    torch.testing.assert_close(
        got, torch.stack([straight[2, :2], straight[0, 2:]]), atol=1e-9, rtol=0
    )


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(("first", "second"), [([0, 1], [2, 3]), ([2, 0], [3, 1])])
def test_utterances_that_come_later_score_as_alone(first, second, full):
    X, X_lens = batch([7, 5, 12, 3], 5, math.nan, 5)
    scorer, sequences = CTCPrefixScorer(lambda X: X, 4, full), torch.tensor([[1, 2, 2], [2, 2, 1]])
    straight = read_all(X, X_lens, sequences.tolist())

    def begin(rows):
        T = int(X_lens[rows].max())
        return scorer.reorder(
            scorer.start(X[rows, :T], X_lens[rows]), torch.zeros(2, 2, dtype=torch.long)
        )

    def read(state, *positions):
        return scorer.step(torch.stack([sequences[:, u] for u in positions]), state)

    old = scorer.select(read(begin(first), 0, 0), torch.tensor([1]))
    state = read(scorer.merge(scorer.reorder(old, torch.tensor([[0, 1]])), begin(second)), 1, 0, 0)
    state = read(scorer.select(state, torch.tensor([2, 0])), 1, 2)
    got = scorer.score(state, torch.arange(5).expand(2, 2, -1))
    expected = torch.stack([straight[2][second[1]], straight[3][first[1]]])
    torch.testing.assert_close(got, expected, atol=1e-9, rtol=0)


def test_scores_of_all_labels_are_those_of_candidates():
    X, X_lens = batch([30, 17, 1], 40, math.nan, 9)
    scorer = CTCPrefixScorer(lambda X: X, 39, full=True)
    state = scorer.reorder(scorer.start(X, X_lens), torch.zeros(3, 2, dtype=torch.long))
    for y in ([[1, 2]] * 3, [[1, 7]] * 3, [[4, 7]] * 3):
        state = scorer.step(torch.tensor(y), state)
        exact = scorer.score(state, torch.arange(40).expand(3, 2, -1))
        for dtype in (torch.float32, torch.bfloat16):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
                got = scorer.score(state, None)
            near = exact[..., 1:] > -50  # below, float32 knows only that they are possible
            torch.testing.assert_close(
                got[..., 1:][near], exact[..., 1:][near], atol=1e-3, rtol=1e-4
            )
            assert (got[..., 1:-1][~near[..., :-1] & ~exact[..., 1:-1].isneginf()] > -INF).all()


def test_many_candidates_equal_few():
    V = 2 * CHUNK + 10
    X, X_lens = batch([9], V, 0.0, 6)
    scorer = CTCPrefixScorer(lambda X: X, V - 1)
    state = scorer.step(torch.tensor([[5]]), scorer.start(X, X_lens))
    candidates = torch.arange(V).view(1, 1, -1)
    each = torch.cat([scorer.score(state, c) for c in candidates.split(1, dim=2)], 2)
    torch.testing.assert_close(scorer.score(state, candidates), each, atol=1e-12, rtol=0)


def test_autocast_leaves_the_precision_alone():
    X, X_lens = batch([50, 31], 6, math.nan, 8)
    expected = read_all(X, X_lens, [[1, 2, 2, 4]])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = read_all(X, X_lens, [[1, 2, 2, 4]])
    torch.testing.assert_close(got, expected, atol=0, rtol=0)
