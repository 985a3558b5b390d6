"""Prove the criterion: cross-entropy, label smoothing and CTC are their formulas, and padding is never counted.

References: the formulas written out in float64, utterance by utterance without padding; for CTC the sum over every
alignment of a tiny case.
"""

import itertools
import math

import pytest
import torch
from torch.testing import assert_close

from asr.models.loss import add_end, add_start, count_correct, cross_entropy, ctc, flat_start
from asr.ops import PADDING

END = 9
Y, Y_LENS = torch.tensor([[3, 1, 4], [2, -1, -1], [-1, -1, -1]]), torch.tensor([3, 1, 0])


@pytest.mark.parametrize("padding", [-1, 0, 5, END, 12345])
def test_start_and_end(padding):
    labels = Y.clone()
    labels[labels == -1] = padding  # whatever stands there isn't read
    before = labels.clone()
    assert add_start(labels, Y_LENS, END).tolist() == [[9, 3, 1, 4], [9, 2, 9, 9], [9, 9, 9, 9]]
    assert add_end(labels, Y_LENS, END).tolist() == [[3, 1, 4, 9], [2, 9, -1, -1], [9, -1, -1, -1]]
    assert_close(labels, before)


def test_start_and_end_of_empty_texts():
    nothing = torch.zeros(2, 0, dtype=torch.long)
    assert add_start(nothing, torch.tensor([0, 0]), END).tolist() == [[9], [9]]
    assert add_end(nothing, torch.tensor([0, 0]), END).tolist() == [[9], [9]]


def logits():
    return torch.randn(3, 4, 10, generator=torch.Generator().manual_seed(1), dtype=torch.double)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_label_smoothing_is_the_formula(smoothing):
    """-Σ_v q(v) log p(v), q = (1 - ε) at the target plus ε / V everywhere (Szegedy et al. 2016, section 7)."""
    Z, targets, expected = logits(), add_end(Y, Y_LENS, END), torch.tensor(0.0)
    for b, length in enumerate(Y_LENS.tolist()):
        for u in range(length + 1):
            total = math.log(sum(math.exp(z) for z in Z[b, u].tolist()))
            for v, z in enumerate(Z[b, u].tolist()):
                q = smoothing / 10 + (1 - smoothing) * (v == targets[b, u])
                expected -= q * (z - total)
    assert_close(cross_entropy(Z, targets, smoothing), expected, rtol=1e-5, atol=1e-5)


def test_what_is_ignored_has_no_gradient_even_as_nan():
    Z, targets = logits(), add_end(Y, Y_LENS, END)
    Z[targets == PADDING] = 1e9
    Z.requires_grad_()
    cross_entropy(Z, targets, 0.1).backward()
    assert Z.grad.isfinite().all()
    assert (Z.grad.abs().sum(-1) > 0).tolist() == (targets != PADDING).tolist()


def test_correct_targets():
    Z, targets = torch.zeros(3, 4, 10), add_end(Y, Y_LENS, END)
    for b, u, v in [(0, 0, 3), (0, 1, 2), (0, 3, 9), (1, 1, 9), (1, 2, 9), (2, 0, 1)]:
        Z[b, u, v] = 1.0
    assert int(count_correct(Z, targets)) == 3
    assert int(count_correct(torch.full_like(Z, torch.nan), torch.full_like(targets, PADDING))) == 0


def by_alignments(log_probs, labels):
    """-ln of the sum of P(path) over the paths that collapse to the labels (Graves et al. 2006, equations 2 and 3)."""
    T, V = log_probs.shape
    total = 0.0
    for path in itertools.product(range(V), repeat=T):
        if [v for v, _ in itertools.groupby(path) if v != 0] == labels:
            total += math.exp(sum(float(log_probs[t, v]) for t, v in enumerate(path)))
    return -math.log(total) if total else math.inf


def frames(B, T, V, seed=1):
    return torch.randn(B, T, V, generator=torch.Generator().manual_seed(seed)).log_softmax(-1)


@pytest.mark.parametrize("padding", [-1, 0, 77])
def test_ctc_is_the_sum_over_alignments(padding):
    labels, lens = [[1, 2], [1, 1], [], [2]], [5, 3, 4, 1]
    log_probs = frames(4, 5, 3)
    expected = sum(by_alignments(log_probs[b, : lens[b]], labels[b]) for b in range(4))
    for b in range(4):
        log_probs[b, lens[b] :] = torch.nan
    padded = torch.tensor([(y + [padding] * 2)[:2] for y in labels])
    loss = ctc(log_probs, torch.tensor(lens), padded, torch.tensor([len(y) for y in labels]))
    assert_close(loss, torch.tensor(expected), rtol=1e-5, atol=1e-5)


def test_ctc_of_too_few_frames_is_infinite():
    """Two equal labels need a blank between them: three frames."""
    assert by_alignments(frames(1, 2, 3)[0], [1, 1]) == math.inf
    labels, lens = torch.tensor([[1, 1]]), torch.tensor([2])
    assert ctc(frames(1, 2, 3), torch.tensor([2]), labels, lens).item() == math.inf
    assert ctc(frames(1, 3, 3), torch.tensor([3]), labels, lens).isfinite()


def test_ctc_gradient_of_padding_is_zero():
    log_probs = frames(2, 6, 4).requires_grad_()
    ctc(
        log_probs, torch.tensor([6, 3]), torch.tensor([[1, 2], [3, -1]]), torch.tensor([2, 1])
    ).backward()
    assert not log_probs.grad[1, 3:].any() and log_probs.grad[1, :3].all(-1).all()


@pytest.mark.parametrize("padding", [-1, 0, 77])
def test_a_flat_start_shares_the_frames_between_the_labels(padding):
    """Two labels of five frames have three and two; one of two, both; none, blank alone; three of two leave one out."""
    labels, lens = [[1, 2], [3], [], [1, 2, 3]], [5, 2, 4, 2]
    at = [[1, 1, 1, 2, 2], [3, 3], [0, 0, 0, 0], [1, 2]]
    log_probs = frames(4, 5, 4)
    parts = [
        -(log_probs[b, t, 0] + log_probs[b, t, label]) / 2
        for b, row in enumerate(at)
        for t, label in enumerate(row)
    ]
    for b in range(4):
        log_probs[b, lens[b] :] = torch.nan
    log_probs.requires_grad_()
    padded = torch.tensor([(y + [padding] * 3)[:3] for y in labels])
    loss = flat_start(log_probs, torch.tensor(lens), padded, torch.tensor([len(y) for y in labels]))
    assert_close(loss, sum(parts))
    loss.backward()
    for b in range(4):
        assert not log_probs.grad[b, lens[b] :].any() and log_probs.grad[b, : lens[b]].any(-1).all()
