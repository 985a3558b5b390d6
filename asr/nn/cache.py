"""Caches of self-attention in a search: what the hypotheses have read is a tree, whose nodes have keys and values once.

B utterances, K hypotheses of each, M nodes of an utterance, H heads, d_k, d_v width of one head's
keys and values.

A hypothesis is the set of its ancestors: a row of a mask over the nodes. So hypotheses that change
places copy no keys and values, what they have in common is there once for all, and an utterance
that has just begun beside one far ahead has fewer nodes, no other ones. Attention doesn't mind the
order of the nodes: positions are in the embeddings.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from asr.ops import gather_beams

ROOM = 8  # steps between two compactions


def _pick(X: Tensor, nodes: Tensor, room: tuple[int, ...]) -> Tensor:
    """Keep some nodes of X (B, H, M, d) and add room behind them; nodes (B, M')."""
    return F.pad(gather_beams(X.transpose(1, 2), nodes).transpose(1, 2), room)


def stack(tensors: Sequence[Tensor], length: int) -> Tensor:
    """Tensors (B, H, ≤ length, d) behind each other, padded with zeros: what is masked must be finite all the same."""
    return torch.cat([F.pad(x, (0, 0, 0, length - x.size(2))) for x in tensors])


@dataclass
class _Nodes:
    """Keys and values of one layer, (B, H, capacity, d_k) and (B, H, capacity, d_v), of which `used` are written."""

    keys: Tensor
    values: Tensor
    used: int = 0


@dataclass(frozen=True)
class Tree:
    """The caches of all layers.

    layers   nodes by layer; none before the first step
    mask     (B, K, M) bool, True = masked out: the node is no ancestor of the hypothesis, itself
             included
    lens     (B,) int, labels read
    longest  at least the greatest of them: known without asking the device
    """

    mask: Tensor
    lens: Tensor
    longest: int = 0
    layers: list[_Nodes] = field(default_factory=list)

    @classmethod
    def empty(cls, B: int, K: int, device: torch.device) -> "Tree":
        """Hypotheses that have read nothing."""
        mask = torch.zeros(B, K, 0, dtype=torch.bool, device=device)
        return cls(mask, torch.zeros(B, dtype=torch.long, device=device))

    def grow(self) -> "Tree":
        """One more node for every hypothesis, whose keys and values each layer is to `append`."""
        B, K, M = self.mask.shape
        tree = self.compact() if self.layers and self.layers[0].keys.size(2) < M + K else self
        new = torch.eye(K, device=self.mask.device) == 0
        mask = torch.cat([tree.mask, new.expand(B, K, K)], 2)
        return Tree(mask, self.lens + 1, tree.longest + 1, list(tree.layers))

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write a layer's keys (B, H, K, d_k) and values (B, H, K, d_v) of the new nodes; all nodes' are returned."""
        K, M = self.mask.shape[1:]
        if layer == len(self.layers):
            room = (0, 0, 0, K * (ROOM - 1))
            self.layers.append(_Nodes(F.pad(keys, room), F.pad(values, room)))
        nodes = self.layers[layer]
        if nodes.used > M - K:  # another search went on from the same state
            nodes = self.layers[layer] = _Nodes(nodes.keys.clone(), nodes.values.clone())
        nodes.keys[:, :, M - K : M], nodes.values[:, :, M - K : M] = keys, values
        nodes.used = M
        return nodes.keys[:, :, :M], nodes.values[:, :, :M]

    def compact(self) -> "Tree":
        """Leave out the nodes that no hypothesis descends from, and make room for new ones."""
        unused = self.mask.all(1)  # (B, M)
        M = unused.size(1) - int(unused.sum(1).min())
        nodes = unused.to(torch.uint8).argsort(dim=1, stable=True)[:, :M]  # (B, M')
        room = (0, 0, 0, self.mask.size(1) * ROOM)
        layers = [
            _Nodes(_pick(old.keys, nodes, room), _pick(old.values, nodes, room), M)
            for old in self.layers
        ]
        mask = self.mask.gather(2, nodes.unsqueeze(1).expand(-1, self.mask.size(1), -1))
        return replace(self, mask=mask, layers=layers, longest=int(self.lens.max()))

    def reorder(self, parents: Tensor) -> "Tree":
        """Let hypothesis k go on from what was hypothesis parents[b, k]; parents (B, K')."""
        return replace(self, mask=gather_beams(self.mask, parents))

    def select(self, utterances: Tensor) -> "Tree":
        """Keep some utterances, (B',)."""
        layers = [_Nodes(n.keys[utterances], n.values[utterances], n.used) for n in self.layers]
        return replace(self, mask=self.mask[utterances], lens=self.lens[utterances], layers=layers)

    def merge(self, other: "Tree") -> "Tree":
        """The utterances of both, the other's behind; both have K hypotheses and have read a label or more."""
        trees = [self.compact(), other.compact()]
        M, capacity = (max(sizes) for sizes in zip(*(t._sizes() for t in trees), strict=True))
        masks = [F.pad(t.mask, (0, M - t.mask.size(2)), value=True) for t in trees]
        layers = [
            _Nodes(stack([x.keys, y.keys], capacity), stack([x.values, y.values], capacity), M)
            for x, y in zip(*(t.layers for t in trees), strict=True)
        ]
        return Tree(
            torch.cat(masks),
            torch.cat([t.lens for t in trees]),
            max(t.longest for t in trees),
            layers,
        )

    def _sizes(self) -> tuple[int, int]:
        return self.mask.size(2), self.layers[0].keys.size(2)
