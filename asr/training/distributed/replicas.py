"""How a model's training is spread over processes: what the trainer asks for, and a whole model in each process."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from asr.training.distributed.group import Group
from asr.training.distributed.summation import Summation, slots
from asr.training.optim.muon import Together

Optimizer = torch.optim.Optimizer | Together
MakeOptimizer = Callable[[nn.Module, Group], Optimizer]


class Replicas(Protocol):
    """The model that a process trains, with its gradients and its optimizer: `WholeModel`, or `ShardedModel` (fsdp.py).

    A step: `zero_grad`; for each batch of the process' share `begin_batch` and a backward pass;
    `reduce_and_clip`;
    `optimizer.step`.

    model        which computes; it may hold shards of the weights
    independent  within a step no process waits for another, so that one may split a batch that is
                 too large
    """

    model: nn.Module
    optimizer: Optimizer
    independent: bool

    def share(self, step: Sequence[Any]) -> list[tuple[int, Any, float]]:
        """This process' batches of a step: (slot in the step, batch, weight of its loss)."""

    def zero_grad(self, batches: int) -> None:
        """Begin a step of this number of batches, over all processes, with gradients of zero."""

    def begin_batch(self, slot: int) -> None:
        """What backward passes add from now on is the gradient of the batch in this slot of the step."""

    def reduce_and_clip(self, tokens: float, clip: float) -> Tensor:
        """Add the gradients over the processes, divide them by the step's tokens, and clip their norm.

        returns  the norm before it was clipped
        """

    def full_model(self) -> nn.Module:
        """The whole model with its weights as they are now, to validate and to save."""

    def state(self) -> dict:
        """Weights and the optimizer's state, whole, in the first process; either kind goes on from the other's."""

    def load(self, state: dict) -> None:
        """Take up a state."""


class WholeModel:
    """The model, its optimizer, and its gradients: views of one flat tensor, added, scaled and clipped as one.

    PyTorch's DistributedDataParallel adds gradients while the backward pass of a step's last batch
    goes on. Here a step's batches are computed without a word between the processes, so that one
    may split a batch that is too large for its memory, and have fewer batches than others.

    On a CPU gradients are added in an order that follows from the batches' slots in the step alone,
    so that any number of processes comes to the same sum, to the bit. On GPUs each adds up its own,
    and NCCL those.
    """

    independent = True

    def __init__(self, model: nn.Module, optimizer: MakeOptimizer, group: Group):
        self.model, self.group = model, group
        self.optimizer = optimizer(model, group)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.gradient = torch.zeros(sum(p.numel() for p in trained), device=trained[0].device)
        for parameter, part in zip(
            trained, self.gradient.split([p.numel() for p in trained]), strict=True
        ):
            parameter.grad = part.as_strided(
                parameter.size(), parameter.stride()
            )  # channels-last ones stay so
        self.summation = Summation(self.gradient) if self.gradient.device.type == "cpu" else None

    def share(self, step: Sequence[Any]) -> list[tuple[int, Any, float]]:
        """Neighbors of the tree in which gradients are added, each with weight 1."""
        return [(n, step[n], 1.0) for n in slots(len(step), self.group.rank, self.group.size)]

    def zero_grad(self, batches: int) -> None:
        """Begin a step."""
        if self.summation:
            self.summation.begin(batches)
        else:
            self.gradient.zero_()

    def begin_batch(self, slot: int) -> None:
        """Begin a batch."""
        if self.summation:
            self.summation.turn_to(slot)

    def reduce_and_clip(self, tokens: float, clip: float) -> Tensor:
        """Make the gradient that of the mean per token."""
        if self.summation:
            self.summation.finish(self.group.rank, self.group.size)
        else:
            self.group.add(self.gradient)
        self.gradient /= tokens
        norm = self.gradient.norm()
        self.gradient *= (clip / (norm + 1e-6)).clamp(max=1.0)
        return norm

    def full_model(self) -> nn.Module:
        """The model itself."""
        return self.model

    def state(self) -> dict:
        """Weights and the optimizer's state."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load(self, state: dict) -> None:
        """Take up a state."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        for parameter, moments in self.optimizer.state.items():
            for name, moment in moments.items():
                if (
                    moment.shape == parameter.shape
                ):  # in its memory order, which the fused kernels take for granted
                    moments[name] = torch.empty_like(parameter, requires_grad=False).copy_(moment)
