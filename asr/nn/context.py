"""What a layer knows beside its input: what is hidden from it, what came before, and where its attention is collected.

B streams, T frames of a chunk, H heads, d_k, d_v width of a head's keys and values.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class Past:
    """The frames before a chunk of a stream that the parts of one layer need.

    before:  what the chunk before has left, by name
    left:    frames of keys and values to carry
    after:   what the next chunk needs, collected
    """

    before: dict[str, Tensor]
    left: int
    after: dict[str, Tensor] = field(default_factory=dict)

    def precede(self, name: str, X: Tensor, frames: int, dim: int = 1) -> Tensor:
        """Put the carried frames before X, whose frames are counted along `dim`, and carry the last `frames` on."""
        X = torch.cat([self.before[name], X], dim) if name in self.before else X
        carried = min(frames, X.size(dim))
        self.after[name] = X.narrow(dim, X.size(dim) - carried, carried).clone()
        return X

    def cache(self, K: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
        """Put the carried keys and values before K (B, H, T, d_k) and V (B, H, T, d_v)."""
        return self.precede("keys", K, self.left, 2), self.precede("values", V, self.left, 2)


@dataclass(frozen=True)
class LayerContext:
    """What a layer knows beside its input.

    mask:       keys hidden from queries, bool, broadcasts to (B, H, Tq, Tk), True = masked out
    padding:    (B, T', 1) bool; convolutions read zeros there
    past:       the frames before a chunk of a stream
    cache:      adds keys and values of one more step to those read before; returns all
    attention:  collects the weights (B, H, Tq, Tk) of each attention
    """

    mask: Tensor | None = None
    padding: Tensor | None = None
    past: Past | None = None
    cache: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None
    attention: list[Tensor] | None = None


EVERYTHING = LayerContext()  # nothing is hidden, nothing came before
