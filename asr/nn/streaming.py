"""What an encoder carries from chunk to chunk of a stream.

B streams, T frames of a chunk, F features, H heads, d_k, d_v width of a head's keys and values.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from asr.nn.attention import MultiHeadAttention


@dataclass(frozen=True)
class Chunk:
    """Size of a chunk and of what its queries see before it.

    frames:  subsampled frames of a chunk
    left:    chunks before its own that a query sees
    """

    frames: int
    left: int


@dataclass(frozen=True)
class EncoderState:
    """Where B streams are.

    rest:    (B, T, F) features that later frames need
    past:    of each layer, the frames that its parts carry, by name
    frames:  subsampled frames done
    ended:   the last part was read
    """

    rest: Tensor
    past: list[dict[str, Tensor]]
    frames: int
    ended: bool = False


class Past:
    """The frames before a chunk that the parts of one layer need; collects what the next chunk needs in `after`.

    before:  what the chunk before left, by name
    left:    frames of keys and values to carry
    """

    def __init__(self, before: dict[str, Tensor], left: int):
        self.before, self.left, self.after = before, left, {}

    def precede(self, name: str, X: Tensor, frames: int, dim: int = 1) -> Tensor:
        """Put the carried frames before X, whose frames are counted along `dim`, and carry the last `frames` on."""
        X = torch.cat([self.before[name], X], dim) if name in self.before else X
        carried = min(frames, X.size(dim))
        self.after[name] = X.narrow(dim, X.size(dim) - carried, carried).clone()
        return X


def attend_self(
    attention: MultiHeadAttention,
    X: Tensor,
    mask: Tensor | None = None,
    maps: list | None = None,
    past: Past | None = None,
) -> Tensor:
    """Self-attention of X (B, T, D), or of a chunk to itself and the keys and values carried → (B, T, D)."""
    if past is None:
        return attention(X, X, mask, maps)
    K, V = attention.keys_values(X)  # (B, H, T, d_k), (B, H, T, d_v)
    K, V = past.precede("keys", K, past.left, 2), past.precede("values", V, past.left, 2)
    return attention.from_heads(X, K, V, mask, maps)
