"""A model's weights on a GPU: one flat tensor, of which layers compute with views, cast once a step.

The host takes longer to launch a small kernel than a GPU to compute it. Autocast casts each weight in
each micro-batch and each of its gradients back, and the backward pass adds each gradient to the
step's: more than a third of all launches. Here one cast, one sum and one concatenation serve all.
"""

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from asr.nn.convolution import DepthwiseConvolution
from asr.nn.positions import RelativePositions

# whose own weights are cast wherever they are used, by autocast or by themselves
CAST = (nn.Linear, nn.Conv2d, DepthwiseConvolution, RelativePositions)


class FlatWeights:
    """The trained weights, replaced by parameters that are views of one tensor; so are their gradients.

    Values and gradients are autocast's to the bit: weights are rounded, their gradients computed in
    bf16, and added in fp32.

    gradient  (n,) fp32, of all trained weights, n; those that are cast come last
    bf16      whether to cast what autocast would; a weight that other layers share isn't cast
    """

    def __init__(self, model: nn.Module, bf16: bool):
        holders: dict[nn.Parameter, list[tuple[nn.Module, str]]] = {}
        for module in model.modules():
            for name, parameter in module._parameters.items():
                if parameter is not None and parameter.requires_grad:
                    holders.setdefault(parameter, []).append((module, name))
        cast = {p for p in holders if bf16 and all(isinstance(m, CAST) for m, _ in holders[p])}
        ordered = sorted(holders, key=lambda p: p in cast)
        self.layouts = [(p.shape, memory_order(p)) for p in ordered]
        self.values = torch.cat([p.detach().permute(memory_order(p)).flatten() for p in ordered])
        self.gradient = torch.zeros_like(self.values)
        self.holders = [holders[p] for p in ordered]
        sizes = [p.numel() for p in ordered]
        self.parameters = [nn.Parameter(part) for part in self._shaped(self.values.split(sizes))]
        gradients = self._shaped(self.gradient.split(sizes))
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        self._put(self.parameters)
        n = len(ordered) - len(cast)
        self.sizes = sizes[:n], sizes[n:]
        kept, rest = self.values.split([sum(part) for part in (sizes[:n], sizes[n:])])
        self.kept = kept.detach().requires_grad_()
        self.kept.grad = self.gradient[: kept.numel()]
        self.rest, self.cast = rest, rest.bfloat16().requires_grad_()

    @torch.no_grad()
    def begin(self) -> None:
        """Begin a step: its gradient is zero, and its weights are cast."""
        self.gradient.zero_()
        self.cast.copy_(self.rest)

    @contextlib.contextmanager
    def computing(self) -> Iterator[None]:
        """Within it, layers compute with views of what was cast; then the gradient has been added."""
        views = [
            view
            for leaf, sizes in zip((self.kept, self.cast), self.sizes, strict=True)
            for view in (leaf.split(sizes) if sizes else ())
        ]
        self._put(self._shaped(views))
        try:
            yield
            if self.cast.grad is not None:
                self.gradient[self.kept.numel() :] += self.cast.grad
        finally:
            self.cast.grad = None
            self._put(self.parameters)

    def _shaped(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Views of flat parts in the parameters' shapes and memory orders."""
        return [shaped(part, *layout) for part, layout in zip(parts, self.layouts, strict=True)]

    def _put(self, weights: list) -> None:
        for holders, weight in zip(self.holders, weights, strict=True):
            for module, name in holders:
                module._parameters[name] = weight


def memory_order(tensor: Tensor) -> list[int]:
    """The dimensions in the order of memory: of a channels-last weight, 0, 2, 3, 1."""
    strides = tensor.stride()
    return sorted(range(tensor.dim()), key=lambda dim: -strides[dim])


def shaped(part: Tensor, shape: torch.Size, order: list[int]) -> Tensor:
    """A view of a flat part, in a shape and a memory order."""
    view = part.view([shape[dim] for dim in order])
    return view if order == sorted(order) else view.permute([order.index(n) for n in sorted(order)])
