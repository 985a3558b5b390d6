"""The laws of a scorer, whatever a search does to its states, each proved in one call.

`check_scorer(scorer, V, sequences)`, of a scorer whose state is a number for each hypothesis: it has the same scores
alone as in any batch; candidates are scored as all labels are, never above the ceiling; select, merge and reorder go on
as the sequences would straight. test_ngram.py plants a fault against each. `check_walk`, of any scorer: a search at
random scores as a reference does that reads each hypothesis from its beginning.
"""

import random

import torch
from torch import Tensor
from torch.testing import assert_close

EQUAL = {"atol": 0, "rtol": 0}


def check_scorer(scorer, V: int, sequences: list[list[int]]) -> None:
    """Prove the laws on sequences of labels, 6 or more."""
    check_batch(scorer, V, sequences)
    B, K = len(sequences) // 3, 3
    Y = torch.tensor([y[: min(map(len, sequences))] for y in sequences[: B * K]]).view(B, K, -1)
    state = scorer.reorder(
        start(scorer, B), torch.zeros(B, K, dtype=torch.long)
    )  # from 1 to K hypotheses
    for y in Y.unbind(2):
        check_candidates(scorer, state, V)
        state = scorer.step(y, state)
    check_states(scorer, state)


def start(scorer, B: int) -> Tensor:
    """The state of B utterances; what stands in their frames is never read."""
    return scorer.start(torch.full((B, 1, 1), torch.nan), torch.ones(B, dtype=torch.long))


def read(scorer, sequences: list[list[int]], V: int) -> list[list[float]]:
    """Scores of each label of the sequences and of the end behind; an utterance each, of mixed lengths."""
    U = max(map(len, sequences)) + 1
    Y = torch.tensor(
        [[*y, V - 1] + [1] * (U - 1 - len(y)) for y in sequences]
    )  # (B, U), any label behind the end
    state, scores = start(scorer, len(Y)), []
    for y in Y.T.unsqueeze(2):  # (B, 1)
        scores.append(scorer.score(state, y.unsqueeze(2)).flatten())
        state = scorer.step(y, state)
    return [
        row[: len(y) + 1] for row, y in zip(torch.stack(scores, 1).tolist(), sequences, strict=True)
    ]


def check_batch(scorer, V: int, sequences: list[list[int]]) -> None:
    assert read(scorer, sequences, V) == [read(scorer, [y], V)[0] for y in sequences]


def check_candidates(scorer, state: Tensor, V: int) -> None:
    dense, draw = scorer.score(state, None), random.Random(0)
    assert dense.shape == (*state.shape, V) and not dense.isnan().any()
    assert (dense[..., 1:] <= scorer.ceiling).all()
    for C in (1, 5, V):
        candidates = torch.tensor([[draw.choices(range(1, V), k=C) for _ in row] for row in state])
        assert_close(scorer.score(state, candidates), dense.gather(2, candidates), **EQUAL)


def check_states(scorer, state: Tensor) -> None:
    (B, K), draw = state.shape, random.Random(0)
    straight = scorer.score(state, None)
    parents = torch.tensor([[draw.randrange(K) for _ in range(K + 1)] for _ in range(B)])
    utterances = torch.tensor(draw.choices(range(B), k=B + 2))
    expected = straight[torch.arange(B).unsqueeze(1), parents]
    followed = scorer.reorder(state, parents)
    assert_close(scorer.score(followed, None), expected, **EQUAL)
    assert_close(
        scorer.score(scorer.select(followed, utterances), None), expected[utterances], **EQUAL
    )
    some, others = (scorer.select(state, rows) for rows in torch.arange(B).split((1, B - 1)))
    assert_close(scorer.score(scorer.merge(some, others), None), straight, **EQUAL)


def check_device(scorer, V: int) -> None:
    """Prove that a scorer whose tables are on the device "meta", which computes nothing, works there alone."""
    state = scorer.start(torch.empty(3, 1, 1, device="meta"), torch.empty(3, device="meta"))
    state = scorer.reorder(state, torch.zeros(3, 2, dtype=torch.long, device="meta"))
    state = scorer.step(torch.empty(3, 2, dtype=torch.long, device="meta"), state)
    state = scorer.merge(
        scorer.select(state, torch.zeros(4, dtype=torch.long, device="meta")), state
    )
    for candidates, C in ((None, V), (torch.empty(7, 2, 5, dtype=torch.long, device="meta"), 5)):
        scores = scorer.score(state, candidates)
        assert scores.shape == (7, 2, C) and scores.device.type == "meta"


def check_walk(scorer, H, H_lens, expected, beams, **close) -> None:
    """Prove that any scorer scores as `expected(utterance, labels)` → (V,) whatever a search does to its states.

    beams   number of hypotheses, step by step
    close   tolerances

    At random, hypotheses go on from any of their utterance, utterances leave, and others, which have just begun, come.
    """
    torch.manual_seed(0)
    draw, rows, waiting = random.Random(0), [0, 1], list(range(2, len(H)))

    def begin(rows):
        return scorer.start(H[rows, : H_lens[rows].max()], H_lens[rows])

    prefixes, state = [[()], [()]], begin(rows)
    for n, K in enumerate(beams):
        pairs = zip(rows, prefixes, strict=True)
        scores = torch.stack([torch.stack([expected(b, y) for y in ys]) for b, ys in pairs])
        V, shape = scores.size(2), scores.shape[:2]
        if scorer.full:  # first of all labels, as in a search
            scorer.score(state, None)
        got = scorer.score(state, torch.arange(V).expand_as(scores))
        assert_close(got[..., 1:], scores[..., 1:], check_dtype=False, **close)
        few = torch.randint(1, V, (*shape, 4))
        assert_close(scorer.score(state, few), got.gather(2, few), **EQUAL)
        parents = torch.randint(shape[1], (len(rows), K))
        state = scorer.reorder(state, parents)
        pairs = zip(prefixes, parents.tolist(), strict=True)
        prefixes = [[ys[p] for p in ps] for ys, ps in pairs]
        if n % 3 == 2 and len(rows) > 1:
            kept = draw.sample(range(len(rows)), len(rows) - 1)
            state = scorer.select(state, torch.tensor(kept))
            rows, prefixes = ([some[b] for b in kept] for some in (rows, prefixes))
        if n % 3 == 1 and waiting:
            new, waiting = waiting[:2], waiting[2:]
            begun = scorer.reorder(begin(new), torch.zeros(2, K, dtype=torch.long))
            state = scorer.merge(state, begun)
            rows, prefixes = rows + new, prefixes + [[()] * K for _ in new]
        y = torch.randint(1, V - 1, (len(rows), K))
        before, state = state, scorer.step(y, state)
        if draw.random() < 0.3:  # states are values: another way may go on from there, too
            scorer.step(y.flip(1) % 2 + 1, before)
        pairs = zip(prefixes, y.tolist(), strict=True)
        prefixes = [[(*g, c) for g, c in zip(ys, row, strict=True)] for ys, row in pairs]
