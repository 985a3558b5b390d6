"""Prove the criterion: cross-entropy, label smoothing and CTC are their formulas, and padding is never counted.

References: the formulas written out in float64, utterance by utterance without padding; for CTC the sum over every
alignment of a tiny case.
"""

import itertools
import math

import torch
from small import each, noise
from torch.testing import assert_close

from asr.models.loss import add_end, add_start, count_correct, cross_entropy, ctc, flat_start
from asr.ops import PADDING

END = 9
Y, Y_LENS = torch.tensor([[3, 1, 4], [2, -1, -1], [-1, -1, -1]]), torch.tensor([3, 1, 0])
LOGITS, TARGETS = noise(3, 4, 10, seed=1), add_end(Y, Y_LENS, END)


@each("padding", [-1, 0, 5, END, 12345])
def test_start_and_end(padding):
    labels = Y.masked_fill(Y == -1, padding)  # whatever stands there isn't read
    before = labels.clone()
    assert add_start(labels, Y_LENS, END).tolist() == [[9, 3, 1, 4], [9, 2, 9, 9], [9, 9, 9, 9]]
    assert add_end(labels, Y_LENS, END).tolist() == [[3, 1, 4, 9], [2, 9, -1, -1], [9, -1, -1, -1]]
    assert labels.equal(before)
    for add in (add_start, add_end):
        assert add(labels[:, :0], torch.zeros(3).long(), END).tolist() == [[9]] * 3


@each("smoothing", [0.0, 0.1, 0.5])
def test_label_smoothing_is_the_formula(smoothing):
    """-Σ_v q(v) log p(v), q = (1 - ε) at the target plus ε / V everywhere (Szegedy et al. 2016, section 7)."""
    expected = 0.0
    for b, length in enumerate(Y_LENS.tolist()):
        for z, target in zip(LOGITS[b, : length + 1], TARGETS[b], strict=False):
            q = torch.full((10,), smoothing / 10).double()
            q[target] += 1 - smoothing
            expected -= q @ (z.exp() / z.exp().sum()).log()
    assert_close(cross_entropy(LOGITS, TARGETS, smoothing), expected.float(), rtol=1e-5, atol=1e-5)


def test_what_is_ignored_has_no_gradient_however_large():
    real = TARGETS != PADDING
    Z = LOGITS.masked_fill(~real[..., None], 1e9).requires_grad_()
    cross_entropy(Z, TARGETS, 0.1).backward()
    assert Z.grad.isfinite().all() and Z.grad.any(-1).equal(real)


def test_correct_targets():
    Z = torch.zeros(3, 4, 10)
    for b, u, v in [(0, 0, 3), (0, 1, 2), (0, 3, 9), (1, 1, 9), (1, 2, 9), (2, 0, 1)]:
        Z[b, u, v] = 1.0
    assert count_correct(Z, TARGETS) == 3
    assert count_correct(Z * torch.nan, torch.full_like(TARGETS, PADDING)) == 0


def by_alignments(log_probs, labels):
    """-ln of the sum of P(path) over the paths that collapse to the labels (Graves et al. 2006, equations 2 and 3)."""
    T, V = log_probs.shape
    paths = [
        path
        for path in itertools.product(range(V), repeat=T)
        if [v for v, _ in itertools.groupby(path) if v] == labels
    ]
    if not paths:
        return torch.tensor(math.inf)
    return -log_probs[torch.arange(T), torch.tensor(paths)].sum(1).logsumexp(0)


def case(lens, labels, V, padding, frames=5):
    """CTC's arguments: random log-probabilities, NaN beyond their lengths, and padded labels; and without the NaN."""
    drawn = noise(len(lens), frames, V, seed=1).float().log_softmax(-1)
    lens, most = torch.tensor(lens), max(map(len, labels))
    log_probs = drawn.masked_fill(torch.arange(frames)[:, None] >= lens[:, None, None], torch.nan)
    padded = torch.tensor([(y + [padding] * most)[:most] for y in labels])
    return drawn, (log_probs, lens, padded, torch.tensor([len(y) for y in labels]))


@each("padding", [-1, 0, 77])
def test_ctc_is_the_sum_over_alignments_and_padding_has_no_gradient(padding):
    lens, labels = [5, 3, 4, 1], [[1, 2], [1, 1], [], [2]]
    drawn, (log_probs, *more) = case(lens, labels, 3, padding)
    expected = sum(by_alignments(x[:n], y) for x, n, y in zip(drawn, lens, labels, strict=True))
    loss = ctc(log_probs.requires_grad_(), *more)
    assert_close(loss, expected, rtol=1e-5, atol=1e-5)
    loss.backward()
    assert log_probs.grad.any(-1).equal(~log_probs.isnan().any(-1))


def test_ctc_of_too_few_frames_is_infinite():
    """Two equal labels need a blank between them: three frames."""
    drawn, arguments = case([2], [[1, 1]], 3, 0, frames=2)
    assert by_alignments(drawn[0], [1, 1]) == ctc(*arguments) == math.inf


@each("padding", [-1, 0, 3])
def test_a_flat_start_shares_the_frames_among_the_labels(padding):
    """Two labels of five frames have three and two; one of two, both; none, blank alone; three of two leave one out."""
    drawn, (log_probs, *more) = case([5, 2, 4, 2], [[1, 2], [3], [], [1, 2, 3]], 4, padding)
    at = [[1, 1, 1, 2, 2], [3, 3], [0, 0, 0, 0], [1, 2]]
    expected = sum(
        -(x[t, 0] + x[t, label]) / 2
        for x, row in zip(drawn, at, strict=True)
        for t, label in enumerate(row)
    )
    loss = flat_start(log_probs.requires_grad_(), *more)
    assert_close(loss, expected)
    loss.backward()
    assert log_probs.grad.any(-1).equal(~log_probs.isnan().any(-1))
