"""Caches of self-attention in a search: what the hypotheses have read is a tree, whose nodes have keys and values once.

B utterances, K hypotheses of each, M nodes of an utterance, H heads, d_k, d_v width of one head's
keys and values.

A hypothesis is the set of its ancestors: a row of a mask over the nodes. So hypotheses that change
places copy no keys and values, what they have in common is there once for all, and an utterance
that has just begun beside one far ahead has fewer nodes, no other ones. Attention doesn't mind the
order of the nodes: positions are in the embeddings.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from asr.ops import additive, fetch, gather_beams

ROOM = 8  # steps between two compactions
ALIGNED = 8  # elements: a GPU's attention copies masks whose rows have another stride


@functools.lru_cache(maxsize=16)
def _new_nodes(K: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Masks of one new node for each hypothesis, and of what aligns them: (1, K, K + ALIGNED - 1)."""
    with torch.inference_mode(False):
        others = torch.eye(K, K + ALIGNED - 1, device=device) == 0
        return additive(others, dtype).unsqueeze(0)


def _pick(X: Tensor, nodes: Tensor) -> Tensor:
    """Keep some nodes of X (B, H, M, d); nodes (B, M')."""
    return gather_beams(X.transpose(1, 2), nodes).transpose(1, 2)


def stack(tensors: Sequence[Tensor], length: int) -> Tensor:
    """Tensors (B, H, ≤ length, d) behind each other, padded with zeros: what is masked must be finite all the same."""
    _, H, _, d = tensors[0].shape
    stacked = tensors[0].new_zeros(sum(map(len, tensors)), H, length, d)
    row = 0
    for x in tensors:
        stacked[row : row + len(x), :, : x.size(2)] = x
        row += len(x)
    return stacked


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
    mask     (B, K, M) float, 0 for a hypothesis's ancestors, itself included, and -∞ for others
    lens     (B,) int, labels read
    longest  at least the greatest of them: known without asking the device
    sizes    what the next compaction asks the device, if that has been asked already
    """

    mask: Tensor
    lens: Tensor
    longest: int = 0
    layers: list[_Nodes] = field(default_factory=list)
    sizes: Callable[[], list[int]] | None = None

    @classmethod
    def empty(cls, B: int, K: int, like: Tensor) -> "Tree":
        """Hypotheses that have read nothing; device and type are those of a weight."""
        mask = like.new_zeros(B, K, 0)
        return cls(mask, torch.zeros(B, dtype=torch.long, device=like.device))

    def grow(self) -> "Tree":
        """One more node for every hypothesis, whose keys and values each layer is to `append`."""
        tree = self.compact() if self._is_full() else self
        B, K, M = tree.mask.shape
        new = _new_nodes(K, tree.mask.dtype, tree.mask.device)[..., : K + -(M + K) % ALIGNED]
        mask = torch.cat([tree.mask, new.expand(B, -1, -1)], 2)[..., : M + K]
        grown = Tree(mask, self.lens + 1, tree.longest + 1, list(tree.layers))
        return grown._ask_ahead() if K == 1 else grown  # a single hypothesis isn't reordered

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
        return _together([self])

    def _is_full(self) -> bool:
        K, M = self.mask.shape[1:]
        return bool(self.layers) and self.layers[0].keys.size(2) < M + K

    def _ask_ahead(self) -> "Tree":
        """Ask now what a compaction in the next step has to know, so that nothing waits for it then."""
        return replace(self, sizes=self._measure()) if self._is_full() else self

    def _unused(self) -> Tensor:
        """Nodes that no hypothesis descends from, (B, M) bool."""
        return self.mask.isneginf().all(1)

    def _measure(self) -> Callable[[], list[int]]:
        """Ask the device for the most nodes in use of an utterance, and for the most labels."""
        used = self.mask.size(2) - self._unused().sum(1)  # (B,)
        return fetch(torch.stack([used, self.lens]).amax(1))

    def reorder(self, parents: Tensor) -> "Tree":
        """Let hypothesis k go on from what was hypothesis parents[b, k]; parents (B, K')."""
        return replace(self, mask=gather_beams(self.mask, parents), sizes=None)._ask_ahead()

    def select(self, utterances: Tensor) -> "Tree":
        """Keep some utterances, (B',)."""
        layers = [_Nodes(n.keys[utterances], n.values[utterances], n.used) for n in self.layers]
        return Tree(self.mask[utterances], self.lens[utterances], self.longest, layers)

    def merge(self, other: "Tree") -> "Tree":
        """The utterances of both, the other's behind; both have K hypotheses and have read a label or more."""
        return _together([self, other])

    def _kept(self) -> tuple[Tensor, Tensor, int]:
        """What stays in a compaction: the nodes (B, M'), the mask (B, K, M'), the most labels."""
        M, longest = (self.sizes or self._measure())()
        nodes = self._unused().to(torch.uint8).argsort(dim=1, stable=True)[:, :M]  # (B, M')
        mask = self.mask.gather(2, nodes.unsqueeze(1).expand(-1, self.mask.size(1), -1))
        return nodes, mask, longest


def _together(trees: Sequence[Tree]) -> Tree:
    """The utterances of trees behind each other, compacted: without nodes that no hypothesis descends from.

    Each layer is copied once, and by itself: with all at once, a merge would take the most memory of a search.
    """
    nodes, masks, longest = zip(*(tree._kept() for tree in trees), strict=True)
    M, K = max(mask.size(2) for mask in masks), masks[0].size(1)

    def kept(tensors: Sequence[Tensor]) -> Tensor:
        picked = [_pick(x, own) for x, own in zip(tensors, nodes, strict=True)]
        return stack(picked, M + K * ROOM)

    layers = [
        _Nodes(kept([part.keys for part in parts]), kept([part.values for part in parts]), M)
        for parts in zip(*(tree.layers for tree in trees), strict=True)
    ]
    padded = [F.pad(mask, (0, M - mask.size(2)), value=-torch.inf) for mask in masks]
    lens = torch.cat([tree.lens for tree in trees])
    return Tree(torch.cat(padded), lens, max(longest), layers)
