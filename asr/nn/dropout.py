"""Dropout (Srivastava et al. 2014) that doesn't wait for the CPU's random numbers."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Dropout(nn.Module):
    """Zero each element with probability p and scale the others by 1 / (1 - p), in training mode only.

    PyTorch's CPU kernel draws one 64-bit number an element on one thread, a quarter of a small
    model's training step; here one serves four elements, p being rounded to 1/65536. On a GPU it is
    PyTorch's own.
    """

    def __init__(self, p: float = 0.0):
        super().__init__()
        self.p = p

    def forward(self, X: Tensor) -> Tensor:
        """Any shape → the same shape."""
        return dropout(X, self.p if self.training else 0.0)

    def extra_repr(self) -> str:
        """Show p."""
        return f"p={self.p}"


def dropout(X: Tensor, p: float) -> Tensor:
    """Drop elements of X with probability p; seeded by torch.manual_seed."""
    if p == 0.0:
        return X
    if X.device.type != "cpu":
        return F.dropout(X, p)
    return _Drop.apply(X, _keep(X, p), 1 / (1 - p))


def layerdrop_mask(layers: nn.ModuleList, p: float, training: bool) -> list[bool]:
    """Which layers a batch goes through: all; in training each with probability 1 - p (LayerDrop, Fan et al. 2019).

    The CPU's generator draws: no GPU is awaited.
    """
    if not (training and p):
        return [True] * len(layers)
    return (torch.rand(len(layers)) >= p).tolist()


def relu_dropout(X: Tensor, p: float) -> Tensor:
    """dropout(max(0, X), p), which on a CPU keeps the result alone for the gradient: it is zero where either is."""
    if p == 0.0 or X.device.type != "cpu":
        return dropout(X.relu(), p)
    return _ReLUDrop.apply(X, _keep(X, p), 1 / (1 - p))


def _keep(X: Tensor, p: float) -> Tensor:
    """Of X's shape, 1 with probability 1 - p, else 0; as uint8, for a product with bool takes three times as long."""
    n = X.numel()
    words = torch.empty((n + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    return (words.view(torch.int16)[:n] >= round(p * 65536) - 32768).view(torch.uint8).view(X.shape)


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, keep, scale):
        ctx.save_for_backward(keep)
        ctx.scale = scale
        return (X * keep).mul_(scale)

    @staticmethod
    def backward(ctx, gradient):
        (keep,) = ctx.saved_tensors
        return (gradient * keep).mul_(ctx.scale), None, None


class _ReLUDrop(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, keep, scale):
        Z = (X.relu() * keep).mul_(scale)
        ctx.save_for_backward(Z)
        ctx.scale = scale
        return Z

    @staticmethod
    def backward(ctx, gradient):
        (Z,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(gradient, Z, 0).mul_(ctx.scale), None, None
