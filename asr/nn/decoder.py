"""Transformer decoder ("Attention Is All You Need", section 3.1): all positions at once, or step by step with caches.

B batch, K hypotheses of an utterance, U label positions, T' encoder frames, D model width, H heads, V vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from asr.nn.attention import MultiHeadAttention
from asr.nn.feedforward import FeedForward
from asr.nn.masks import causal_mask, key_mask
from asr.nn.positions import ScaledPositions
from asr.nn.residual import Residual, final_norm


@dataclass(frozen=True)
class DecoderState:
    """Caches of one search: `length` labels have been read by each of B × K hypotheses.

    self_caches:   one (keys, values) a layer, (B·K, H, length, d_k) and (B·K, H, length, d_v)
    cross_caches:  one (keys, values) a layer, (B, H, T', d_k) and (B, H, T', d_v), shared by the K hypotheses
    cross_mask:    (B, 1, 1, T')
    """

    length: int
    self_caches: list[tuple[Tensor, Tensor]]
    cross_caches: list[tuple[Tensor, Tensor]]
    cross_mask: Tensor

    def reorder(self, rows: Tensor) -> "DecoderState":
        """Let hypothesis n go on from what was hypothesis rows[n]; rows (B·K,) int, within each utterance."""
        caches = [(K.index_select(0, rows), V.index_select(0, rows)) for K, V in self.self_caches]
        return DecoderState(self.length, caches, self.cross_caches, self.cross_mask)

    def select(self, utterances: Tensor, K: int) -> "DecoderState":
        """Keep some utterances of the batch; utterances (B',) int, K hypotheses each."""
        rows = (utterances.unsqueeze(1) * K + torch.arange(K, device=utterances.device)).flatten()  # (B'·K,)
        cross = [(keys[utterances], values[utterances]) for keys, values in self.cross_caches]
        kept = DecoderState(self.length, self.self_caches, cross, self.cross_mask[utterances])
        return kept.reorder(rows)


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
        """Y (B, U, D), H (B, T', D_enc), mask (U, U), cross_mask (B, 1, 1, T') → (B, U, D)"""
        Y = self.around_attention(Y, lambda Z: self.attention(Z, Z, mask, maps))
        Y = self.around_cross(Y, lambda Z: self.cross(Z, H, cross_mask, cross_maps))
        return self.around_feedforward(Y, self.feedforward)

    def step(self, Y: Tensor, cache: tuple, cross_cache: tuple, cross_mask: Tensor) -> tuple[Tensor, tuple]:
        """One more position: Y (B·K, 1, D) and the caches → (B·K, 1, D) and the longer self-attention cache."""
        B = cross_mask.size(0)

        def attend_self(Z: Tensor) -> Tensor:
            nonlocal cache
            cache = tuple(torch.cat(pair, dim=2) for pair in zip(cache, self.attention.keys_values(Z), strict=True))
            return self.attention.from_heads(Z, *cache)  # (B·K, 1, D)

        def attend_cross(Z: Tensor) -> Tensor:  # the K hypotheses of an utterance are K queries to one cache
            Z = Z.view(B, -1, Z.size(2))  # (B, K, D)
            return self.cross.from_heads(Z, *cross_cache, cross_mask).reshape(-1, 1, Z.size(2))  # (B·K, 1, D)

        Y = self.around_attention(Y, attend_self)
        Y = self.around_cross(Y, attend_cross)
        return self.around_feedforward(Y, self.feedforward), cache


class TransformerDecoder(nn.Module):
    """Embedding, positions, M layers, output projection: labels (B, U) and H (B, T', D_enc) → logits (B, U, V).

    vocabulary:  V, the start/end symbol included
    d_memory:    width of H
    tied:        the output projection's weight is the embedding's
    Sizes and dropouts as in TransformerEncoder.
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
    ):
        super().__init__()
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

        Y:        (B, U) int, <sos> first; any valid id where padded: causality keeps it from the real positions
        H:        (B, T', D_enc), H_lens (B,)
        maps:     when given, each layer's self-attention weights (B, H, U, U) are appended to it
        cross_maps:  likewise the weights over the encoder's frames (B, H, U, T')
        returns   logits (B, U, V)
        """
        Z = self.positions(self.embedding(Y))  # (B, U, D)
        mask, cross_mask = causal_mask(Y.size(1), Y.device), key_mask(H_lens, H.size(1))
        for layer in self.layers:
            Z = layer(Z, H, mask, cross_mask, maps, cross_maps)  # (B, U, D)
        return self.out(self.norm(Z))  # (B, U, V)

    def start(self, H: Tensor, H_lens: Tensor, K: int = 1) -> DecoderState:
        """Project the encoder's keys and values once, for K hypotheses of each utterance that have read nothing."""
        cross = [layer.cross.keys_values(H) for layer in self.layers]
        empty = [
            (
                keys.new_zeros(len(H) * K, keys.size(1), 0, keys.size(3)),
                values.new_zeros(len(H) * K, values.size(1), 0, values.size(3)),
            )
            for keys, values in cross
        ]
        return DecoderState(0, empty, cross, key_mask(H_lens, H.size(1)))

    def step(self, y: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Read one more label of every hypothesis.

        y:       (B·K,) int, the label read, <sos> at first
        returns  logits (B·K, V) of the next label, equal to `forward`'s at this position, and the new state
        """
        Z = self.positions(self.embedding(y.unsqueeze(1)), state.length)  # (B·K, 1, D)
        caches = []
        for layer, cache, cross in zip(self.layers, state.self_caches, state.cross_caches, strict=True):
            Z, cache = layer.step(Z, cache, cross, state.cross_mask)  # (B·K, 1, D)
            caches.append(cache)
        logits = self.out(self.norm(Z)).squeeze(1)  # (B·K, V)
        return logits, DecoderState(state.length + 1, caches, state.cross_caches, state.cross_mask)
