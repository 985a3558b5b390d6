"""How a model's training is spread over processes: what the trainer asks for, and a whole model in each process.

Gradients of a step's batches are added in an order that follows from their slots in the step alone.

A sum of floating-point numbers depends on its order. Here the order is a binary tree over the slots
0 … n - 1. Its node (r, m) is the sum over all slots that are r modulo 2^m: the sum of the nodes (r,
m + 1) and (r + 2^m, m + 1). Of 2^m processes, number r takes the slots r modulo 2^m, so it makes a
whole node. Any other number of processes takes neighbors of the tree; then a process makes several
nodes.

    n = 6              0+4+2+1+5+3
               0+4+2                1+5+3       one of two processes makes one of these
            0+4      2           1+5      3     one of four processes makes one of these
           0   4                1   5
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn

from asr.training.distributed.flat import FlatWeights
from asr.training.distributed.group import Group
from asr.training.optim.muon import Together

Node = tuple[int, int]  # (r, m)


def leaf(slot: int, n: int) -> Node:
    """The node that is one slot alone, of n slots.

    >>> [leaf(slot, 6) for slot in range(6)]
    [(0, 3), (1, 3), (2, 2), (3, 2), (4, 3), (5, 3)]
    """
    m = slot.bit_length()
    while slot + 2**m < n:
        m += 1
    return slot, m


def sibling(node: Node) -> Node:
    """The node that is added to this one."""
    r, m = node
    return (r ^ 2 ** (m - 1), m) if m else (-1, 0)  # the root has none


def parent(node: Node) -> Node:
    """The sum of a node and its sibling."""
    r, m = node
    return r % 2 ** (m - 1), m - 1


def slots(n: int, rank: int, size: int) -> list[int]:
    """The slots of a step of n batches that a process takes, as neighbors of the tree; no process has two more.

    >>> [slots(6, rank, 2) for rank in range(2)], [slots(6, rank, 3) for rank in range(3)]
    ([[0, 4, 2], [1, 5, 3]], [[0, 4], [2, 1], [5, 3]])
    """
    order = sorted(range(n), key=lambda slot: f"{slot:b}"[::-1].ljust(n, "0"))
    if size & (size - 1):
        return order[-(-n * rank // size) : -(-n * (rank + 1) // size)]
    return [slot for slot in order if slot % size == rank]


def waiting(batches: int, size: int) -> int:
    """How many gradients the process with most batches keeps at most, beside the one that is made."""
    shelf = (-(-batches // size) - 1).bit_length()
    if size == 1:
        return shelf
    most = max(len(nodes(batches, rank, size)) for rank in range(size))
    return max(shelf, 2 * most - 1)  # its own nodes but one, and as much of the others'


@lru_cache(64)
def nodes(n: int, rank: int, size: int) -> list[Node]:
    """The nodes that a process makes of its slots."""
    made: set[Node] = set()
    for slot in slots(n, rank, size):
        node = leaf(slot, n)
        while sibling(node) in made:
            made.remove(sibling(node))
            node = parent(node)
        made.add(node)
    return sorted(made)


class Summation:
    """Adds up gradients, each of which is made in one flat tensor, `total`, that backward passes add to.

    While one is made, earlier ones wait on a shelf. Where they come in the order of `slots`, these
    are log2 of their number, rounded up, at most.
    """

    def __init__(self, total: Tensor):
        self.total, self.n = total, 0
        self.slot: int | None = None
        self.shelf: dict[Node, Tensor] = {}
        self.spare: list[Tensor] = []

    def begin(self, n: int) -> None:
        """Begin a step of n batches."""
        self.total.zero_()
        self.n, self.slot = n, None
        self.spare.extend(self.shelf.values())
        self.shelf.clear()

    def turn_to(self, slot: int) -> None:
        """From now on the gradient of a slot is made; that of the slot before is whole."""
        if self.slot is not None and slot != self.slot:
            node, waiting = (
                self._fold(self.slot),
                self.spare.pop() if self.spare else torch.empty_like(self.total),
            )
            self.shelf[node] = waiting.copy_(self.total)
            self.total.zero_()
        self.slot = slot

    def finish(self, rank: int, size: int) -> None:
        """Make `total` the sum over all slots, of all processes; it is the same in each to the bit."""
        last = {} if self.slot is None else {self._fold(self.slot): self.total}
        if size > 1:
            self._exchange(self.shelf | last, rank, size)

    def _fold(self, slot: int) -> Node:
        """Add the siblings that wait to what has been made; its node."""
        node = leaf(slot, self.n)
        while (waiting := self.shelf.pop(sibling(node), None)) is not None:
            self.total += waiting
            self.spare.append(waiting)
            node = parent(node)
        return node

    def _exchange(self, made: dict[Node, Tensor], rank: int, size: int) -> None:
        """Each process adds up a part of all processes' nodes, and gives it to all."""
        cut = {node: whole.tensor_split(size) for node, whole in made.items()}
        parts, others = self.total.tensor_split(size), [n for n in range(size) if n != rank]
        found, work = {node: parts[rank] for node, parts in cut.items()}, []
        for other in others:
            work += [
                dist.isend(cut[node][other], other, tag=tag)
                for tag, node in enumerate(sorted(made))
            ]
            for tag, node in enumerate(nodes(self.n, other, size)):
                found[node] = torch.empty_like(parts[rank])
                work.append(dist.irecv(found[node], other, tag=tag))
        _wait(work)
        parts[rank].copy_(merged(found))
        work = [dist.isend(parts[rank], other) for other in others]
        _wait(work + [dist.irecv(parts[other], other) for other in others])


def merged(found: dict[Node, Tensor]) -> Tensor:
    """Add up the nodes of a whole tree, in place."""
    while len(found) > 1:
        node = max(found, key=lambda node: node[1])  # a deepest one, whose sibling is as deep
        total = found.pop(node)
        total += found.pop(sibling(node))
        found[parent(node)] = total
    return found.popitem()[1]


def _wait(work: Iterable) -> None:
    for one in work:
        one.wait()


Optimizer = torch.optim.Optimizer | Together
MakeOptimizer = Callable[[nn.Module, Group], Optimizer]


class Replicas(Protocol):
    """The model that a process trains, with its gradients and its optimizer: `WholeModel`, or `ShardedModel` (fsdp.py).

    A step: `zero_grad`; for each batch of the process' share, within `computing`, a forward and a
    backward pass; `reduce_and_clip`; `optimizer.step`.

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

    def computing(self, slot: int) -> AbstractContextManager[None]:
        """Within it, what backward passes add is the gradient of the batch in this slot of the step."""

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


def flat_gradient(trained: Sequence[nn.Parameter]) -> Tensor:
    """Make the gradients of parameters views of one tensor, and return it."""
    sizes = [parameter.numel() for parameter in trained]
    gradient = torch.zeros(sum(sizes), device=trained[0].device)
    for parameter, part in zip(trained, gradient.split(sizes), strict=True):
        parameter.grad = part.as_strided(
            parameter.size(), parameter.stride()
        )  # channels-last ones stay so
    return gradient


class WholeModel:
    """The model, its optimizer, and its gradients: views of one flat tensor, added, scaled and clipped as one.

    PyTorch's DistributedDataParallel adds gradients while the backward pass of a step's last batch
    goes on. Here a step's batches are computed without a word between the processes, so that one
    may split a batch that is too large for its memory, and have fewer batches than others.

    On a CPU gradients are added in an order that follows from the batches' slots in the step alone,
    so that any number of processes comes to the same sum, to the bit. On GPUs each adds up its own,
    and NCCL those; there weights are flat, too (flat.py), and the layers compute with views of them.

    bf16      whether autocast would cast weights
    compiled  the layers are: views of flat weights would be sizes that change, to the compiler
    """

    independent = True

    def __init__(
        self,
        model: nn.Module,
        optimizer: MakeOptimizer,
        group: Group,
        bf16: bool = False,
        compiled: bool = False,
    ):
        self.model, self.group = model, group
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        on_cpu = trained[0].device.type == "cpu"
        self.flat = None if on_cpu or compiled else FlatWeights(model, bf16)
        self.gradient = self.flat.gradient if self.flat else flat_gradient(trained)
        self.summation = Summation(self.gradient) if on_cpu else None
        self.optimizer = optimizer(model, group)

    def share(self, step: Sequence[Any]) -> list[tuple[int, Any, float]]:
        """Neighbors of the tree in which gradients are added, each with weight 1."""
        return [(n, step[n], 1.0) for n in slots(len(step), self.group.rank, self.group.size)]

    def zero_grad(self, batches: int) -> None:
        """Begin a step."""
        if self.summation:
            self.summation.begin(batches)
        elif self.flat:
            self.flat.begin()
        else:
            self.gradient.zero_()

    def computing(self, slot: int) -> AbstractContextManager[None]:
        """Compute a batch."""
        if self.summation:
            self.summation.turn_to(slot)
        return self.flat.computing() if self.flat else nullcontext()

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
