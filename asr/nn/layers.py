"""What the layers of all stacks share: their context, dropout, and the position-wise feed-forward network.

B streams, T frames of a chunk, H heads, d_k, d_v width of a head's keys and values, D model width.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Past:
    """The frames before a chunk of a stream that the parts of one layer need.

    before:  what the chunk before has left, by name; zeros where nothing was
    left:    frames of keys and values to carry
    after:   what the next chunk needs, collected, in the same shapes
    """

    before: dict[str, Tensor]
    left: int
    after: dict[str, Tensor] = field(default_factory=dict)

    def precede(self, name: str, X: Tensor, frames: int, dim: int = 1) -> Tensor:
        """Put the carried frames before X, whose frames are counted along `dim`, and carry the last `frames` on.

        A name that is new carried zeros.
        """
        shape = [*X.shape[:dim], frames, *X.shape[dim + 1 :]]
        before = self.before[name] if name in self.before else X.new_zeros(shape)
        X = torch.cat([before, X], dim)
        self.after[name] = X.narrow(dim, X.size(dim) - frames, frames)
        return X

    def cache(self, K: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
        """Put the carried keys and values before K (B, H, T, d_k) and V (B, H, T, d_v)."""
        return self.precede("keys", K, self.left, 2), self.precede("values", V, self.left, 2)


@dataclass(frozen=True)
class LayerContext:
    """What a layer knows beside its input.

    mask:       keys hidden from queries, broadcasts to (B, H, Tq, Tk): bool, True = masked out, or
                `additive`
    causal:     keys after a query are hidden, and no others; there is no mask then
    padding:    (B, T', 1) bool; convolutions read zeros there
    past:       the frames before a chunk of a stream
    cache:      adds keys and values of one more step to those read before; returns all
    attention:  collects the weights (B, H, Tq, Tk) of each attention
    """

    mask: Tensor | None = None
    causal: bool = False
    padding: Tensor | None = None
    past: Past | None = None
    cache: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None
    attention: list[Tensor] | None = None


EVERYTHING = LayerContext()  # nothing is hidden, nothing came before


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


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "swish": F.silu,
}


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, the same at every position; other activations by name."""

    def __init__(self, d_model: int, ff: int, dropout: float = 0.0, activation: str = "relu"):
        super().__init__()
        self.inner = nn.Linear(d_model, ff)
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)
        self.outer = nn.Linear(ff, d_model)

    def forward(self, X: Tensor) -> Tensor:
        """(B, T, D) → (B, T, D)"""
        return self.outer(self._activate(self.inner(X)))

    def _activate(self, Z: Tensor) -> Tensor:
        if self.activation is F.relu and self.training:
            return relu_dropout(Z, self.dropout.p)
        return self.dropout(self.activation(Z))
