"""Greedy search: against the best label of each frame, merged, and against the best label of each step, by loops."""

import itertools
import math

import pytest
import torch
from searches import log_probs

from asr.search.greedy import attention_greedy, ctc_greedy


@pytest.mark.parametrize("fill", [math.nan, 1e30])
def test_ctc_greedy_merges_the_best_label_of_each_frame(fill):
    lens = [30, 1, 17, 2]
    X, _ = log_probs(lens, 4, 0)
    tokens, scores = [], []
    for row, T in zip(X, lens, strict=True):
        best, path = row[:T].max(-1)
        tokens.append([y for y, _ in itertools.groupby(path.tolist()) if y])
        scores.append(float(best.double().sum()))
        row[T:, 1:] = fill  # garbage that is no blank
    got = ctc_greedy(X, torch.tensor(lens))
    assert [h.tokens for h in got] == tokens
    assert [h.score for h in got] == pytest.approx(scores, abs=1e-5)
    assert all(h.reason == "end" and h.scores == {"ctc": h.score} for h in got)
    means = [math.exp(h.score / T) for h, T in zip(got, lens, strict=True)]
    assert [h.confidence for h in got] == pytest.approx(means)
    assert [len(h.confidences) for h in got] == list(map(len, tokens))


def logits(b, labels, V=5):
    """Random, by utterance and history; the blank is tempting."""
    X = torch.randn(V, generator=torch.Generator().manual_seed(hash((b, tuple(labels))) % 2**31))
    X[0] += 2
    return X


def test_attention_greedy_takes_the_best_label_of_each_step():
    limits, steps = [6, 0, 3, 1, 12, 12], []

    def step(y, histories):
        histories = [[*h, int(label)] for h, label in zip(histories, y, strict=True)]
        steps.append(histories)
        scores = torch.stack([logits(b, h[1:]) for b, h in enumerate(histories)])
        return scores.unsqueeze(1), histories

    got = attention_greedy(step, [[]] * 6, 6, 4, torch.tensor(limits))
    for b, (h, limit) in enumerate(zip(got, limits, strict=True)):
        tokens, score, label = [], 0.0, None
        while label != 4:
            log_probs = logits(b, tokens).log_softmax(-1)
            best = int(log_probs[1:].argmax()) + 1
            label = best if len(tokens) < limit else 4
            score += float(log_probs[label])
            tokens.append(label)
        assert (h.tokens, h.reason) == (tokens[:-1], "end" if best == 4 else "limit")
        assert len(h.confidences) == len(h.tokens)
        assert h.confidence == pytest.approx(math.exp(score / len(tokens)), abs=1e-5)
        assert h.score == pytest.approx(score, abs=1e-5)
    assert {h.reason for h in got} == {"end", "limit"}
    assert len(steps) == max(len(h.tokens) for h in got) + 1  # it stops when all have ended
