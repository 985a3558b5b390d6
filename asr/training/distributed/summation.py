"""Gradients of a step's batches, added in an order that follows from their slots in the step alone.

A sum of floating-point numbers depends on its order. Here the order is a binary tree over the slots
0 … n - 1. Its node (r, m) is the sum over all slots that are r modulo 2^m: the sum of the nodes (r,
m + 1) and (r + 2^m, m + 1). Of 2^m processes, number r takes the slots r modulo 2^m, so it makes a
whole node. Any other number of processes takes neighbors of the tree; then a process makes several
nodes.

    n = 6                       0+4+2+1+5+3
                        0+4+2                1+5+3           one of two processes makes one of these
                     0+4      2           1+5      3         one of four processes makes one of
                              these
                    0   4                1   5
"""

from collections.abc import Iterable
from functools import lru_cache

import torch
import torch.distributed as dist
from torch import Tensor

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
