"""Scaled dot-product attention and multi-head attention ("Attention Is All You Need", section 3.2).

B batch, H heads, Tq query positions, Tk key positions, d_k, d_v width of one head's keys and
values, D model width. Masks are bool, True = masked out.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asr.nn.layers import EVERYTHING, LayerContext
from asr.nn.layers import dropout as drop
from asr.ops import additive


def attend(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    bias: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """softmax(Q Kᵀ / √d_k + bias + mask) V, with dropout on the weights.

    PyTorch's fused kernel computes it, except where it is slow: its bf16 backward pass on a CPU
    takes 1.5 to five times as long as the formula's, and its dropout there one random number a
    weight.

    Q:       (B, H, Tq, d_k)
    K, V:    (B, H, Tk, d_k), (B, H, Tk, d_v)
    mask:    broadcasts to (B, H, Tq, Tk); bool or `additive`
    bias:    (B, H, Tq, Tk) float
    causal:  query i sees keys 0..i; instead of a mask, on a GPU
    returns  (B, H, Tq, d_v)
    """
    if Q.device.type == "cpu" and Q.requires_grad and (dropout or Q.dtype == torch.bfloat16):
        return drop(attention_weights(Q, K, mask, bias).to(V.dtype), dropout) @ V
    keep = mask
    if mask is not None and mask.dtype == torch.bool:
        if bias is not None:
            return attend(Q, K, V, additive(mask, bias.dtype), dropout, bias)
        keep = ~mask  # PyTorch's True means "takes part": the one inversion of the package
    if bias is not None:
        keep = bias if mask is None else bias + mask
    return F.scaled_dot_product_attention(Q, K, V, keep, dropout, causal)


def attention_weights(
    Q: Tensor, K: Tensor, mask: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """softmax(Q Kᵀ / √d_k + bias + mask): the weights that `attend` applies to V, (B, H, Tq, Tk)."""
    Q = Q / math.sqrt(Q.size(-1))
    K = K.contiguous()  # the product would copy Kᵀ, against the order of memory
    scores = Q @ K.transpose(-2, -1)  # (B, H, Tq, Tk)
    scores = scores if bias is None else scores + bias
    if mask is not None:  # a sum, for the gradient of masked_fill takes as long as a product
        scores = scores + (additive(mask, scores.dtype) if mask.dtype == torch.bool else mask)
    return scores.softmax(-1)


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1 … head_H) W_O, head_i = Attention(X_q W_Qi, X_k W_Ki, X_k W_Vi).

    d_model:   D, width of queries and of the result
    heads:     H
    d_k, d_v:  widths of one head; D / H and d_k unless given
    d_memory:  width of what keys and values are made from, D unless given
    dropout:   on the attention weights
    positions: of self-attention (positions.py): takes Q, K to Q, K and a bias of the scores
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        dropout: float = 0.0,
        d_k: int | None = None,
        d_v: int | None = None,
        d_memory: int | None = None,
        positions: nn.Module | None = None,
    ):
        super().__init__()
        if d_k is None and d_model % heads:
            raise ValueError(
                f"heads: got {heads}, expected a divisor of d_model = {d_model}, or d_k given"
            )
        d_k, d_memory = d_k or d_model // heads, d_memory or d_model
        d_v = d_v or d_k
        self.heads, self.dropout, self.positions = heads, dropout, positions
        self.query = nn.Linear(d_model, heads * d_k)
        self.key = nn.Linear(d_memory, heads * d_k)
        self.value = nn.Linear(d_memory, heads * d_v)
        self.out = nn.Linear(heads * d_v, d_model)

    def forward(
        self,
        X: Tensor,
        context: LayerContext = EVERYTHING,
        memory: Tensor | tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """Attend from each position of X to its own positions, or to those of a memory.

        X:       (B, Tq, D), or (B·K, Tq, D): K sequences for each row of the memory
        memory:  (B, Tk, d_memory), or its `keys_values`; X itself unless given
        returns  the shape of X
        """
        if memory is None:
            K, V, Q = self._project(X)  # (B, H, T, d_k), (B, H, T, d_v), (B, H, T, d_k)
            K, V = context.cache(K, V) if context.cache else (K, V)
            return self._attend(Q, K, V, context)
        K, V = memory if isinstance(memory, tuple) else self.keys_values(memory)
        Q = self._split(self.query(X.reshape(len(K), -1, X.size(2))))
        return self._attend(Q, K, V, context).view_as(X)

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Project memory (B, Tk, d_memory) to keys (B, H, Tk, d_k) and values (B, H, Tk, d_v)."""
        return self._split(self.key(memory)), self._split(self.value(memory))

    def _project(self, X: Tensor) -> list[Tensor]:
        """Project X (B, T, D) to keys, values and queries; where a GPU trains, in one product."""
        maps = (self.key, self.value, self.query)
        if X.device.type == "cpu" or not self.training:
            return [self._split(linear(X)) for linear in maps]
        weight, bias = (torch.cat([getattr(m, name) for m in maps]) for name in ("weight", "bias"))
        parts = F.linear(X, weight, bias).split([m.out_features for m in maps], 2)
        return [self._split(part) for part in parts]

    def _attend(self, Q: Tensor, K: Tensor, V: Tensor, context: LayerContext) -> Tensor:
        """Attend from queries (B, H, Tq, d_k) to keys and values: (B, Tq, D)."""
        bias = None
        if self.positions is not None:
            Q, K, bias = self.positions(Q, K)
        if context.attention is not None:
            context.attention.append(attention_weights(Q, K, context.mask, bias))
        dropout = self.dropout if self.training else 0.0
        heads = attend(Q, K, V, context.mask, dropout, bias, context.causal)  # (B, H, Tq, d_v)
        return self.out(heads.transpose(1, 2).flatten(2))  # (B, Tq, D)

    def _split(self, X: Tensor) -> Tensor:
        return X.unflatten(2, (self.heads, -1)).transpose(1, 2)  # (B, T, H·d) → (B, H, T, d)
