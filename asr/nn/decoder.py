"""Transformer decoder and language model ("Attention Is All You Need", section 3.1).

They compute all positions at once, or step by step with caches.

B batch, K hypotheses of an utterance, U label positions, T' encoder frames, D model width, H heads,
V vocabulary, M nodes of the cache's tree.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asr.device import product_dtype
from asr.nn.cache import ALIGNED, Tree, stack
from asr.nn.layers import LayerContext, layerdrop_mask
from asr.nn.positions import ScaledPositions
from asr.nn.transformer import StackSettings, TransformerLayer, final_norm
from asr.ops import additive, causal_mask, key_mask, unpadded_length


@dataclass(frozen=True)
class DecoderOutput:
    """What a decoder gives.

    logits:     (B, U, V)
    attention:  the weights (B, H, U, U) of each layer's self-attention, if they were asked for
    cross:      likewise the weights over the encoder's frames, (B, H, U, T')
    """

    logits: Tensor
    attention: Sequence[Tensor] = ()
    cross: Sequence[Tensor] = ()


@dataclass(frozen=True)
class DecoderState:
    """Caches of one search over B utterances, K hypotheses each.

    tree          self-attention caches
    cross_caches  one (keys, values) a layer, (B, H, T', d_k) and (B, H, T', d_v), shared by an
                  utterance's hypotheses
    cross_mask    (B, 1, 1, T' or up to seven more, so that rows are aligned), `additive`
    """

    tree: Tree
    cross_caches: list[tuple[Tensor, Tensor]]
    cross_mask: Tensor

    def reorder(self, parents: Tensor) -> "DecoderState":
        """Let hypothesis k go on from what was hypothesis parents[b, k]; parents (B, K') int."""
        return replace(self, tree=self.tree.reorder(parents))

    def select(self, utterances: Tensor) -> "DecoderState":
        """Keep some utterances of the batch, (B',) int. On a CPU, drop frames that are padding for all."""
        mask = self.cross_mask[utterances]
        T = unpadded_length(mask.isneginf())
        cross = [(K[utterances, :, :T], V[utterances, :, :T]) for K, V in self.cross_caches]
        return DecoderState(self.tree.select(utterances), cross, mask[..., : T + -T % ALIGNED])

    def merge(self, other: "DecoderState") -> "DecoderState":
        """The utterances of both, the other's behind; both have K hypotheses and have read a label or more."""
        T = max(self.cross_mask.size(3), other.cross_mask.size(3))
        pairs = zip(self.cross_caches, other.cross_caches, strict=True)
        longest = max(
            (keys.size(2) for s in (self, other) for keys, _ in s.cross_caches), default=0
        )
        cross = [(stack([K, L], longest), stack([V, W], longest)) for (K, V), (L, W) in pairs]
        masks = [
            F.pad(s.cross_mask, (0, T - s.cross_mask.size(3)), value=-torch.inf)
            for s in (self, other)
        ]
        return DecoderState(self.tree.merge(other.tree), cross, torch.cat(masks))


class TransformerDecoder(nn.Module):
    """Embedding, positions, layers, output projection: labels (B, U) and H (B, T', D_enc) → logits (B, U, V).

    vocabulary:  V, the start/end symbol included
    d_memory:    width of H; None: a language model, which attends to no encoder
    layer_dropout:  as in `EncoderSettings`
    """

    def __init__(
        self,
        settings: StackSettings,
        vocabulary: int,
        d_memory: int | None = None,
        layer_dropout: float = 0.0,
    ):
        super().__init__()
        s = settings
        self.layer_dropout = layer_dropout
        self.embedding = nn.Embedding(vocabulary, s.d_model)
        self.positions = ScaledPositions(s.d_model, s.dropout)
        self.layers = nn.ModuleList(TransformerLayer(s, d_memory=d_memory) for _ in range(s.layers))
        self.norm = final_norm(s)
        self.out = nn.Linear(s.d_model, vocabulary)

    def tie(self) -> None:
        """Make the output projection's weight the embedding's."""
        self.out.weight = self.embedding.weight

    def forward(
        self,
        Y: Tensor,
        H: Tensor | None = None,
        H_lens: Tensor | None = None,
        attention: bool = False,
    ) -> DecoderOutput:
        """Score the next label at every position.

        Y:          (B, U) int, <sos> first; any valid id where padded: causality keeps it from the
                    real positions; or (B·K, U): K sequences for each row of H
        H:          (B, T', D_enc), H_lens (B,); None of a language model
        attention:  whether each layer's attention weights are wanted
        """
        Z = self.positions(self.embedding(Y))  # (B, U, D)
        context, cross = (LayerContext(attention=[] if attention else None) for _ in range(2))
        dtype, U = product_dtype(Z), Y.size(1)
        if Y.device.type == "cpu" or attention:
            context = replace(context, mask=additive(causal_mask(U, Y.device), dtype))
        else:  # a GPU has a faster kernel for it
            context = replace(context, causal=True)
        if H is not None and H_lens is not None:
            T = H.size(1)  # rows of eights, or each layer would copy the mask to such
            mask = additive(key_mask(H_lens, T + -T % 8), dtype)[..., :T]
            cross = replace(cross, mask=mask)
        drawn = layerdrop_mask(self.layers, self.layer_dropout, self.training)
        for layer, takes_part in zip(self.layers, drawn, strict=True):
            Z = layer(Z, context, H, cross) if takes_part else Z  # (B, U, D)
        return DecoderOutput(self.out(self.norm(Z)), context.attention or (), cross.attention or ())

    def start(self, H: Tensor, H_lens: Tensor, K: int = 1) -> DecoderState:
        """Project the encoder's keys and values once, for K hypotheses of each utterance that have read nothing.

        Of H a language model asks no more than the number of utterances and the device.
        """
        attends = [cast(TransformerLayer, layer).cross for layer in self.layers]
        cross = [attention.keys_values(H) for attention in attends if attention is not None]
        mask = key_mask(H_lens, H.size(1) + -H.size(1) % ALIGNED)  # (B, 1, 1, T' or more)
        weight = self.out.weight
        return DecoderState(
            Tree.empty(len(H), K, weight), cross, additive(mask, product_dtype(weight))
        )

    def step(self, y: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Read one more label of every hypothesis.

        y:       (B, K) int, the label read, <sos> at first
        returns  logits (B, K, V) of the next label, equal to `forward`'s at this position, and the
                 new state
        """
        tree, mask = state.tree.grow(), state.cross_mask
        T = state.cross_caches[0][0].size(2) if state.cross_caches else 0
        cross = LayerContext(mask[..., :T])
        mask = tree.mask.unsqueeze(1)  # (B, 1, K, M)
        Z = self.positions.at(self.embedding(y), state.tree.lens, state.tree.longest)  # (B, K, D)
        for n, layer in enumerate(self.layers):
            memory = state.cross_caches[n] if state.cross_caches else None
            context = LayerContext(mask, cache=partial(tree.append, n))
            Z = layer(Z, context, memory, cross)  # (B, K, D)
        return self.out(self.norm(Z)), replace(state, tree=tree)  # (B, K, V)
