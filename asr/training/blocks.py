"""What is done to each layer of a model's stacks: recomputing its activations, compiling it, keeping it in."""

import contextlib
from collections.abc import Iterator
from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint


def blocks(model: nn.Module) -> list[nn.Module]:
    """The layers of a model's stacks: what its ModuleLists hold."""
    return [block for stack in model.modules() if isinstance(stack, nn.ModuleList) for block in stack]


def recompute(model: nn.Module) -> None:
    """Keep no activations within layers; compute them again in the backward pass (Chen et al. 2016).

    Memory falls to a layer's, plus a layer's input each; a step takes a third longer. Dropout draws the same masks.
    """
    for block in blocks(model):
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def compile_layers(model: nn.Module, **options: object) -> None:
    """Compile each layer, for any batch and length: alike layers share their code, so it takes seconds, not minutes.

    options   of torch.compile, such as its backend
    """
    for block in blocks(model):
        block.compile(dynamic=True, **options)


@contextlib.contextmanager
def all_take_part(model: nn.Module) -> Iterator[None]:
    """Within, LayerDrop leaves no layer out: what is measured is the most that a step takes."""
    stacks = [module for module in model.modules() if hasattr(module, "layer_dropout")]
    before = [stack.layer_dropout for stack in stacks]
    try:
        for stack in stacks:
            stack.layer_dropout = 0.0
        yield
    finally:
        for stack, p in zip(stacks, before, strict=True):
            stack.layer_dropout = p
