"""What a training does to the layers of a model: recomputing activations, compiling, freezing, keeping them in."""

import contextlib
import difflib
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from asr.errors import UserError


def blocks(model: nn.Module) -> list[nn.Module]:
    """The layers of a model's stacks: what its ModuleLists hold."""
    return [
        block for stack in model.modules() if isinstance(stack, nn.ModuleList) for block in stack
    ]


def recompute(model: nn.Module) -> None:
    """Keep no activations within layers; compute them again in the backward pass (Chen et al. 2016).

    Memory falls to a layer's, plus a layer's input each; a step takes a third longer. Dropout draws
    the same masks.
    """
    for block in blocks(model):
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def compile_layers(model: nn.Module, **options: object) -> None:
    """Compile each layer's training, for any batch and length: alike layers share their code, so it takes seconds.

    PyTorch keeps eight variants of a function, and then computes it uncompiled for good. So each
    kind of layer is a function of its own, and validation, whose precision is another, isn't
    compiled.

    options   of torch.compile, such as its backend
    """
    compiled: dict[type, Callable] = {}
    for block in blocks(model):
        kind = type(block)
        if kind not in compiled:
            compiled[kind] = _by_mode(kind.forward, isinstance(block.forward, partial), options)
        block.forward = MethodType(compiled[kind], block)


def _by_mode(evaluate: Callable, recomputes: bool, options: dict[str, Any]) -> Callable:
    """A layer's forward, compiled for training."""

    def recompute(block: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return checkpoint(evaluate, block, *args, use_reentrant=False, **kwargs)

    training = torch.compile(recompute if recomputes else evaluate, dynamic=True, **options)

    def forward(block: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return (training if block.training else evaluate)(block, *args, **kwargs)

    return forward


@contextlib.contextmanager
def all_take_part(model: nn.Module) -> Iterator[None]:
    """Within, LayerDrop leaves no layer out: what is measured is the most that a step takes."""
    stacks: list[Any] = [module for module in model.modules() if hasattr(module, "layer_dropout")]
    before = [stack.layer_dropout for stack in stacks]
    try:
        for stack in stacks:
            stack.layer_dropout = 0.0
        yield
    finally:
        for stack, p in zip(stacks, before, strict=True):
            stack.layer_dropout = p


def never_thaws(model: nn.Module, steps: int) -> str:
    """Warn if a training of so many steps ends before the encoder is trained; empty if it doesn't."""
    frozen = [n for module in model.modules() for _, n in getattr(module, "rates", dict)().values()]
    if max(frozen, default=0) < max(steps, 1):
        return ""
    return (
        f"model.fine_tuning.freeze_steps: got {max(frozen)}, but the training has about {steps} steps, so the encoder "
        "stays as it is; give fewer, or more epochs"
    )


def freeze(model: nn.Module, patterns: Sequence[str]) -> None:
    """Take the gradient from the parameters that match; dropout within frozen layers goes on.

    patterns  of names as in the model's state, as `model.encoder.layers.[0-3].*`; `*` stands for
              dots too. Statistics have no gradient anyway, and may be matched
    raises    UserError if a pattern matches nothing, with the nearest names; or if nothing is left
              to train
    """
    names = list(model.state_dict())
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UserError(f"freeze: {pattern!r} matches no parameter{_nearest(pattern, names)}")
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UserError(
            f"freeze: {', '.join(patterns)} leaves no parameter to train; take a pattern out"
        )


def _nearest(pattern: str, names: Sequence[str]) -> str:
    """Offer names and whole modules that look like a pattern."""
    modules = {
        name[: end + 1] + "*" for name in names for end, letter in enumerate(name) if letter == "."
    }
    near = difflib.get_close_matches(pattern, sorted(modules | set(names)), n=3, cutoff=0.5)
    return (
        f"; did you mean {' or '.join(map(repr, near))}?"
        if near
        else f"; names are as {names[-1]!r}"
    )
