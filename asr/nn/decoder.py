"""Transformer decoder ("Attention Is All You Need", section 3.1): all positions at once, or step by step with caches.

B batch, K hypotheses of an utterance, U label positions, T' encoder frames, D model width, H heads, V vocabulary,
M nodes of the cache's tree.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asr.nn.attention import MultiHeadAttention
from asr.nn.cache import Tree, stack
from asr.nn.dropout import taking_part
from asr.nn.feedforward import FeedForward
from asr.nn.masks import causal_mask, key_mask
from asr.nn.positions import ScaledPositions
from asr.nn.residual import Residual, final_norm


@dataclass(frozen=True)
class DecoderState:
    """Caches of one search over B utterances, K hypotheses each.

    tree          self-attention caches
    cross_caches  one (keys, values) a layer, (B, H, T', d_k) and (B, H, T', d_v), shared by an utterance's hypotheses
    cross_mask    (B, 1, 1, T')
    """

    tree: Tree
    cross_caches: list[tuple[Tensor, Tensor]]
    cross_mask: Tensor

    def reorder(self, parents: Tensor) -> "DecoderState":
        """Let hypothesis k go on from what was hypothesis parents[b, k]; parents (B, K') int."""
        return replace(self, tree=self.tree.reorder(parents))

    def select(self, utterances: Tensor) -> "DecoderState":
        """Keep some utterances of the batch, (B',) int."""
        cross = [(keys[utterances], values[utterances]) for keys, values in self.cross_caches]
        return DecoderState(self.tree.select(utterances), cross, self.cross_mask[utterances])

    def merge(self, other: "DecoderState") -> "DecoderState":
        """The utterances of both, the other's behind; both have K hypotheses and have read a label or more."""
        T = max(self.cross_mask.size(3), other.cross_mask.size(3))
        pairs = zip(self.cross_caches, other.cross_caches, strict=True)
        cross = [tuple(stack(x, T) for x in zip(*pair, strict=True)) for pair in pairs]
        masks = [F.pad(s.cross_mask, (0, T - s.cross_mask.size(3)), value=True) for s in (self, other)]
        return DecoderState(self.tree.merge(other.tree), cross, torch.cat(masks))


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the encoder, feed-forward, each with residual and LayerNorm."""

    def __init__(
        self, attention: MultiHeadAttention, cross: MultiHeadAttention, feedforward: FeedForward, residuals: list
    ):
        super().__init__()
        self.attention, self.cross, self.feedforward = attention, cross, feedforward
        self.around_attention, self.around_cross, self.around_feedforward = residuals

    def forward(
        self, Y: Tensor, H: Tensor, mask: Tensor, cross_mask: Tensor, maps: list | None, cross_maps: list | None
    ):
        """Y (B·K, U, D), H (B, T', D_enc), mask (U, U), cross_mask (B, 1, 1, T') → (B·K, U, D)"""

        def attend_cross(Z: Tensor) -> Tensor:  # the K sequences of an utterance are K · U queries to the same keys
            return self.cross(Z.reshape(len(H), -1, Z.size(2)), H, cross_mask, cross_maps).view_as(Z)

        Y = self.around_attention(Y, lambda Z: self.attention(Z, Z, mask, maps))
        Y = self.around_cross(Y, attend_cross)
        return self.around_feedforward(Y, self.feedforward)

    def step(self, Y: Tensor, remember: Callable, cross_cache: tuple, mask: Tensor, cross_mask: Tensor) -> Tensor:
        """One more label of every hypothesis.

        Y:         (B, K, D), remember: adds keys and values (B, H, K, d) to the cache and returns all, (B, H, M, d)
        mask:      (B, 1, K, M), the tree's; cross_cache and cross_mask: the state's
        """
        attention, cross = self.attention, self.cross
        Y = self.around_attention(Y, lambda Z: attention.from_heads(Z, *remember(*attention.keys_values(Z)), mask))
        Y = self.around_cross(Y, lambda Z: cross.from_heads(Z, *cross_cache, cross_mask))
        return self.around_feedforward(Y, self.feedforward)


class TransformerDecoder(nn.Module):
    """Embedding, positions, M layers, output projection: labels (B, U) and H (B, T', D_enc) → logits (B, U, V).

    vocabulary:  V, the start/end symbol included
    d_memory:    width of H
    tied:        the output projection's weight is the embedding's
    layer_dropout:  as in `Encoder`
    Sizes and dropouts as in the encoder `transformer`.
    """

    def __init__(
        self,
        vocabulary: int,
        d_memory: int,
        d_model: int,
        layers: int,
        heads: int,
        ff: int,
        *,
        d_k: int | None = None,
        d_v: int | None = None,
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        norm: str = "pre",
        activation: str = "relu",
        tied: bool = False,
        layer_dropout: float = 0.0,
    ):
        super().__init__()
        self.layer_dropout = layer_dropout
        self.embedding = nn.Embedding(vocabulary, d_model)
        self.positions = ScaledPositions(d_model, dropout)
        self.layers = nn.ModuleList(
            DecoderLayer(
                MultiHeadAttention(d_model, heads, attention_dropout, d_k, d_v),
                MultiHeadAttention(d_model, heads, attention_dropout, d_k, d_v, d_memory),
                FeedForward(d_model, ff, dropout, activation),
                [Residual(d_model, dropout, norm) for _ in range(3)],
            )
            for _ in range(layers)
        )
        self.norm = final_norm(d_model, norm)
        self.out = nn.Linear(d_model, vocabulary)
        if tied:
            self.out.weight = self.embedding.weight

    def forward(
        self, Y: Tensor, H: Tensor, H_lens: Tensor, maps: list | None = None, cross_maps: list | None = None
    ) -> Tensor:
        """Score the next label at every position.

        Y:        (B, U) int, <sos> first; any valid id where padded: causality keeps it from the real positions;
                  or (B·K, U): K sequences for each row of H
        H:        (B, T', D_enc), H_lens (B,)
        maps:     when given, each layer's self-attention weights (B, H, U, U) are appended to it
        cross_maps:  likewise the weights over the encoder's frames (B, H, U, T')
        returns   logits, (B, U, V) or (B·K, U, V)
        """
        Z = self.positions(self.embedding(Y))  # (B, U, D)
        mask, cross_mask = causal_mask(Y.size(1), Y.device), key_mask(H_lens, H.size(1))
        drawn = taking_part(self.layers, self.layer_dropout, self.training)
        for layer, takes_part in zip(self.layers, drawn, strict=True):
            Z = layer(Z, H, mask, cross_mask, maps, cross_maps) if takes_part else Z  # (B, U, D)
        return self.out(self.norm(Z))  # (B, U, V)

    def start(self, H: Tensor, H_lens: Tensor, K: int = 1) -> DecoderState:
        """Project the encoder's keys and values once, for K hypotheses of each utterance that have read nothing."""
        cross = [layer.cross.keys_values(H) for layer in self.layers]
        return DecoderState(Tree.empty(len(H), K, H.device), cross, key_mask(H_lens, H.size(1)))

    def step(self, y: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Read one more label of every hypothesis.

        y:       (B, K) int, the label read, <sos> at first
        returns  logits (B, K, V) of the next label, equal to `forward`'s at this position, and the new state
        """
        tree = state.tree.grow()
        mask = tree.mask.unsqueeze(1)  # (B, 1, K, M)
        Z = self.positions.at(self.embedding(y), state.tree.lens, state.tree.longest)  # (B, K, D)
        for n, (layer, cross) in enumerate(zip(self.layers, state.cross_caches, strict=True)):
            Z = layer.step(Z, partial(tree.append, n), cross, mask, state.cross_mask)  # (B, K, D)
        return self.out(self.norm(Z)), replace(state, tree=tree)  # (B, K, V)
