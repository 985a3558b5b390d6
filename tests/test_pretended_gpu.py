"""The pretended GPU finds what a GPU would refuse, and counts what it would do; faults are planted."""

import pytest
import torch
import torch.nn.functional as F
from pretended_gpu import pretended_gpu
from torch import nn

from asr.nn.layers import dropout
from asr.ops import zero_padding


def test_values_and_gradients_are_the_cpus():
    torch.manual_seed(1)
    model, X = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2)), torch.randn(5, 3)
    expected = torch.autograd.grad(model(X).square().sum(), list(model.parameters()))
    with pretended_gpu():
        model.to("cuda")
        assert {p.device.type for p in model.parameters()} == {"cuda"}
        model(X.to("cuda")).square().sum().backward()
        for p, grad in zip(model.parameters(), expected, strict=True):
            assert p.grad.is_cuda and torch.equal(p.grad.cpu(), grad)


def test_a_cpu_tensor_that_meets_one_of_the_gpu_is_an_error_with_the_place():
    with pretended_gpu():
        x = torch.ones(2, 3, device="cuda")
        assert float((x * torch.tensor(2.0)).sum()) == 12  # a scalar of the CPU may
        with pytest.raises(RuntimeError, match=r"add.* a CPU tensor \(3,\) meets"):
            x + torch.ones(3)
        with pytest.raises(RuntimeError, match=r"cat.* a CPU tensor \(3,\) meets"):
            torch.cat([x[0], torch.zeros(3)])
        with pytest.raises(RuntimeError, match=r"at asr/ops.py:\d+"):
            zero_padding(torch.ones(2, 3), torch.tensor([1, 2], device="cuda"))
        with pytest.raises(TypeError, match="cpu()"):
            x.numpy()


def test_a_part_of_a_split_may_have_no_gradient_and_attention_has_its_scale():
    """What transformers' layers do."""
    torch.manual_seed(1)
    X = torch.randn(3, 2, 2, 5, 4)

    def gradient(X):
        Q, K, V = X.requires_grad_()
        some, _ = F.scaled_dot_product_attention(Q, K, V, scale=0.3).chunk(2, dim=2)
        return torch.autograd.grad(some.square().sum(), X)[0]

    expected = gradient(X.clone())
    with pretended_gpu():
        found = gradient(X.to("cuda"))
        torch.testing.assert_close(found.cpu(), expected)


def ctc(x):
    scores, lens = x.new_zeros(4, 2, 3).log_softmax(-1), x.long()
    return F.ctc_loss(scores, lens.unsqueeze(1), 4 * lens, lens, reduction="sum")


@pytest.mark.parametrize(
    ("wait", "budget"),
    [
        (lambda x: x + 1, 0),
        (lambda x: x.sum().item(), 1),
        (lambda x: float(x[0]) + int(x[1]) + bool(x[0] > 0), 3),
        (lambda x: x.tolist(), 1),
        (lambda x: x.to("cpu"), 1),
        (lambda x: x[x > 0], 1),
        (lambda x: x.nonzero(), 1),
        (lambda x: torch.empty(2).copy_(x), 1),
        (ctc, 2),
    ],
)
def test_an_extra_wait_exceeds_the_budget(wait, budget):
    with pretended_gpu() as gpu:
        x = torch.ones(2, device="cuda")
        with gpu.counting() as counts:
            wait(x)
    counts.within(synchronizations=budget)
    assert counts.synchronizations.total() == budget
    if budget:
        with pytest.raises(AssertionError, match=rf"{budget} sync.*at most {budget - 1}:\n +\d "):
            counts.within(synchronizations=budget - 1)


def test_launches_and_copies_are_counted_with_their_lines():
    with pretended_gpu() as gpu:
        x = torch.ones(4, 4).to("cuda").requires_grad_()
        with gpu.counting() as forward:
            y = dropout(x, 0.5)
        with gpu.counting() as backward:
            y.sum().backward()
        with gpu.counting() as others:
            torch.tensor([1.0], device="cuda"), x.T.unsqueeze(0).expand(2, 4, 4)
            torch._foreach_add_([torch.empty(1, device="cuda") for _ in range(31)], 1)
    [line] = forward.launches
    assert "native_dropout" in line and "at asr/nn/layers.py" in line
    assert forward.launches.total() == 1 and backward.launches.total() == 3, backward
    assert others.copies.total() == 1 and others.launches.total() == 2, others


def test_attention_is_one_kernel_and_its_mask_is_made_a_float():
    with pretended_gpu() as gpu:
        for mask, causal, launches in ((None, True, 1), (torch.eye(8) == 0, False, 4)):
            q = torch.randn(1, 2, 8, 4)
            Q, q = q.to("cuda").requires_grad_(), q.requires_grad_()
            on_gpu = mask if mask is None else mask.to("cuda")
            with gpu.counting() as counts:
                got = F.scaled_dot_product_attention(Q, Q, Q, on_gpu, is_causal=causal)
            assert counts.launches.total() == launches, counts
            expected = F.scaled_dot_product_attention(q, q, q, mask, is_causal=causal)
            torch.testing.assert_close(got.cpu(), expected.detach())
            for output in (got, expected):
                output.square().sum().backward()
            torch.testing.assert_close(Q.grad.cpu(), q.grad)


def test_autocast_is_cudas():
    with pretended_gpu(), torch.autocast("cuda", torch.bfloat16):
        x = torch.ones(2, 4, device="cuda")
        y = F.linear(x, x)
        assert y.dtype == torch.bfloat16
        assert F.layer_norm(y, (2,)).dtype == y.softmax(-1).dtype == torch.float32
