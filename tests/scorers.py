"""The laws of a scorer, whatever a search does to its states, each proved in one call.

`check_walk`, of any scorer: a search at random scores as a reference does that reads each hypothesis from its
beginning. `check_scorer`, of one that reads no frames: the scores of such a search are those of each hypothesis alone,
candidates are scored as all labels are, never above the ceiling. test_ngram.py plants a fault against each.
"""

import random

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.testing import assert_close

EQUAL = {"atol": 0, "rtol": 0}


def check_scorer(scorer) -> None:
    """Prove of one that reads no frames that its scores are those of each hypothesis alone, to the bit."""

    def expected(_, labels):
        state = start(scorer, 1)
        for label in labels:
            state = scorer.step(torch.tensor([[label]]), state)
        scores = scorer.score(state, None)[0, 0]
        assert (scores[1:] <= scorer.ceiling).all()  # nor is any NaN
        return scores

    H, H_lens = torch.full((6, 1, 1), torch.nan), torch.ones(6, dtype=torch.long)
    beams = (1, 3, 3, 2, 4, 4, 1, 3) * 2
    check_walk(scorer, H, H_lens, expected, beams, dense=True, **EQUAL)


def start(scorer, B: int) -> Tensor:
    """The state of B utterances; what stands in their frames is never read."""
    return scorer.start(torch.full((B, 1, 1), torch.nan), torch.ones(B, dtype=torch.long))


def read(scorer, sequences: list[list[int]], V: int) -> list[list[float]]:
    """Scores of each label of the sequences and of the end behind; an utterance each, of mixed lengths."""
    ended = [torch.tensor([*y, V - 1]) for y in sequences]
    Y = pad_sequence(ended, True, 1)  # (B, U), any label behind the end
    state, scores = start(scorer, len(Y)), []
    for y in Y.T.unsqueeze(2):  # (B, 1)
        scores.append(scorer.score(state, y.unsqueeze(2)).flatten())
        state = scorer.step(y, state)
    return [row[: len(y)].tolist() for row, y in zip(torch.stack(scores, 1), ended, strict=True)]


def check_device(scorer, V: int) -> None:
    """Prove that a scorer whose tables are on the device "meta", which computes nothing, works there alone."""

    def ids(*shape):
        return torch.empty(shape, dtype=torch.long, device="meta")

    state = scorer.reorder(scorer.start(ids(3, 1, 1), ids(3)), ids(3, 2))
    state = scorer.step(ids(3, 2), state)
    state = scorer.merge(scorer.select(state, ids(4)), state)
    for candidates, C in ((None, V), (ids(7, 2, 5), 5)):
        scores = scorer.score(state, candidates)
        assert scores.shape == (7, 2, C) and scores.device.type == "meta"


def check_walk(scorer, H, H_lens, expected, beams, dense=False, **close) -> None:
    """Prove that any scorer scores as `expected(utterance, labels)` → (V,) whatever a search does to its states.

    beams   number of hypotheses, step by step
    dense   whether the scores of all labels at once are as close as those of candidates
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
        if scorer.full or dense:  # first of all labels, as in a search
            every = scorer.score(state, None)
        if dense:
            assert_close(every[..., 1:], scores[..., 1:], check_dtype=False, **close)
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
            new, waiting = waiting[: 1 + n % 2], waiting[1 + n % 2 :]
            begun = scorer.reorder(begin(new), torch.zeros(len(new), K, dtype=torch.long))
            state = scorer.merge(state, begun)
            rows, prefixes = rows + new, prefixes + [[()] * K for _ in new]
        y = torch.randint(1, V - 1, (len(rows), K))
        before, state = state, scorer.step(y, state)
        if draw.random() < 0.3:  # states are values: another way may go on from there, too
            scorer.step(y.flip(1) % 2 + 1, before)
        pairs = zip(prefixes, y.tolist(), strict=True)
        prefixes = [[(*g, c) for g, c in zip(ys, row, strict=True)] for ys, row in pairs]
