"""Greedy search: against the best label of each frame, merged, and against the best label of each step, by loops."""

import itertools
import math

import pytest
import torch

from asr.search.greedy import attention_greedy, ctc_greedy


@pytest.mark.parametrize("fill", [math.nan, 1e30])
def test_ctc_greedy_merges_the_best_label_of_each_frame(fill):
    lens = [30, 1, 17, 2]
    X = (torch.randn(4, 30, 4, generator=torch.Generator().manual_seed(0)) * 2).log_softmax(-1)
    expected = []
    for row, T in zip(X, lens, strict=True):
        path = [max(range(4), key=frame.__getitem__) for frame in row[:T].tolist()]
        expected.append(
            (
                [y for y, _ in itertools.groupby(path) if y],
                sum(max(frame) for frame in row[:T].tolist()),
            )
        )
        row[T:, 1:] = fill  # garbage that is no blank
    got = ctc_greedy(X, torch.tensor(lens))
    assert [h.tokens for h in got] == [tokens for tokens, _ in expected]
    assert [h.score for h in got] == pytest.approx([score for _, score in expected], abs=1e-5)
    assert all(h.reason == "end" and h.scores == {"ctc": h.score} for h in got)
    assert [h.confidence for h in got] == pytest.approx(
        [math.exp(h.score / T) for h, T in zip(got, lens, strict=True)]
    )
    assert [len(h.confidences) for h in got] == [len(h.tokens) for h in got]


@pytest.mark.parametrize(
    ("path", "tokens"),
    [([0, 0, 0], []), ([1, 1, 1], [1]), ([1, 0, 1], [1, 1]), ([0, 2, 1], [2, 1]), ([3], [3])],
)
def test_ctc_greedy_of_constructed_paths(path, tokens):
    X = torch.nn.functional.one_hot(torch.tensor([path]), 4).float().log()
    [hypothesis] = ctc_greedy(X, torch.tensor([len(path)]))
    assert (hypothesis.tokens, hypothesis.score) == (tokens, 0.0)


def logits(b, labels, V=5):
    """Random, by utterance and history; the blank is tempting."""
    X = torch.randn(V, generator=torch.Generator().manual_seed(hash((b, tuple(labels))) % 2**31))
    X[0] += 2
    return X


def test_attention_greedy_takes_the_best_label_of_each_step():
    limits = torch.tensor([6, 0, 3, 1, 12, 12])
    steps = []

    def step(y, state):
        histories = [[*h, int(label)] for h, [label] in zip(state, y, strict=True)]
        steps.append(histories)
        return torch.stack([logits(b, h[1:]) for b, h in enumerate(histories)]).unsqueeze(
            1
        ), histories

    got = attention_greedy(step, [[]] * 6, 6, 4, limits)
    for b, (hypothesis, limit) in enumerate(zip(got, limits.tolist(), strict=True)):
        tokens, score = [], 0.0
        while True:
            log_probs = logits(b, tokens).log_softmax(-1)
            best = int(log_probs[1:].argmax()) + 1
            ended, label = best == 4, best if len(tokens) < limit else 4
            score += float(log_probs[label])
            if label == 4:
                break
            tokens.append(label)
        assert (hypothesis.tokens, hypothesis.reason) == (tokens, "end" if ended else "limit")
        assert len(hypothesis.confidences) == len(tokens)
        assert hypothesis.confidence == pytest.approx(math.exp(score / (len(tokens) + 1)), abs=1e-5)
        assert hypothesis.score == pytest.approx(score, abs=1e-5)
    assert {h.reason for h in got} == {"end", "limit"}
    assert len(steps) == max(len(h.tokens) for h in got) + 1  # it stops when all have ended
