"""Linear maps for a search on a CPU: oneDNN computes them, from weights that are laid out once for all steps."""

import copy
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

LARGE = 2**18  # elements of a weight; with smaller ones, calling oneDNN costs more than it saves
M = TypeVar("M", bound=nn.Module)


class PackedLinear(nn.Module):
    """x Wᵀ + b, of a few rows x in as little as half of PyTorch's time; without gradients.

    The linear map's parameters are shared; the packed weight is a copy, which doesn't follow their
    changes.
    """

    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self.packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach())

    def forward(self, X: Tensor) -> Tensor:
        """(…, D) → (…, E)"""
        return torch.ops.mkldnn._linear_pointwise(X, self.packed, self.bias, "none", [], "")


def pack(module: M) -> M:
    """Return a module that computes the same without gradients, its large linear maps packed; parameters are shared."""
    if isinstance(module, nn.Linear):
        return cast(M, PackedLinear(module)) if _pays(module.weight) else module
    other = copy.copy(module)
    other._modules = {
        name: child if child is None else pack(child) for name, child in module._modules.items()
    }
    return other


def _pays(weight: Tensor) -> bool:
    """Whether a weight is large, and one of a CPU in fp32, for which PyTorch has oneDNN."""
    known = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    kind = weight.device.type, weight.dtype
    return known and kind == ("cpu", torch.float32) and weight.numel() >= LARGE
