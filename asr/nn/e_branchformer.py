"""E-Branchformer encoder (Kim et al. 2022), after Branchformer (Peng et al. 2022) and cgMLP (Sakuma et al. 2021).

B batch, T' subsampled frames, D model width, C width within the cgMLP.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asr.nn.attention import MultiHeadAttention
from asr.nn.convolution import DepthwiseConvolution
from asr.nn.dropout import Dropout
from asr.nn.encoder import Encoder
from asr.nn.feedforward import FeedForward
from asr.nn.positions import ScaledInput
from asr.nn.relative import in_attention
from asr.nn.residual import Residual
from asr.nn.streaming import Chunk, Past, attend_self
from asr.nn.subsampling import Subsampling


class ConvolutionalGatingMLP(nn.Module):
    """cgMLP: expand to C channels, let one half gate the other by its neighbourhood in time (CSGU), project.

    The gate begins near 1 (kernel near 0, bias 1), as gMLP's does (Liu et al. 2021, section 2.1).
    """

    def __init__(self, d_model: int, cgmlp: int, kernel: int, dropout: float = 0.0, causal: bool = False):
        super().__init__()
        self.expand = nn.Linear(d_model, cgmlp)
        self.norm = nn.LayerNorm(cgmlp // 2)
        self.gate = DepthwiseConvolution(cgmlp // 2, kernel, causal)
        self.dropout = Dropout(dropout)
        self.project = nn.Linear(cgmlp // 2, d_model)
        nn.init.normal_(self.gate.weight, std=1e-3)
        nn.init.ones_(self.gate.bias)

    def forward(self, X: Tensor, padding: Tensor | None = None, past: Past | None = None) -> Tensor:
        """X (B, T', D), padding (B, T', 1) → (B, T', D)"""
        A, G = F.gelu(self.expand(X)).chunk(2, dim=-1)  # (B, T', C / 2) each
        G = self.gate(self.norm(G), padding, past, "gate")  # (B, T', C / 2)
        return self.project(self.dropout(A * G))  # (B, T', D)


class EBranchformerLayer(nn.Module):
    """½ feed-forward; attention beside cgMLP, merged by a depthwise convolution; ½ feed-forward; LayerNorm."""

    def __init__(
        self,
        feedforwards: list[FeedForward],
        attention: MultiHeadAttention,
        local: ConvolutionalGatingMLP,
        mix: DepthwiseConvolution,
        d_model: int,
        dropout: float,
    ):
        super().__init__()
        self.first, self.second = feedforwards
        self.attention, self.local, self.mix = attention, local, mix
        self.merge = nn.Linear(2 * d_model, d_model)
        self.around_first, self.around_second = (Residual(d_model, dropout) for _ in range(2))
        self.attention_norm, self.local_norm, self.norm = (nn.LayerNorm(d_model) for _ in range(3))
        self.dropout = Dropout(dropout)

    def forward(
        self,
        X: Tensor,
        mask: Tensor | None = None,
        padding: Tensor | None = None,
        maps: list | None = None,
        past: Past | None = None,
    ) -> Tensor:
        """X (B, T', D), mask (B, 1, 1 or T', T'), padding (B, T', 1) → (B, T', D)"""
        X = self.around_first(X, lambda Z: 0.5 * self.first(Z))
        G = self.dropout(attend_self(self.attention, self.attention_norm(X), mask, maps, past))  # (B, T', D)
        L = self.dropout(self.local(self.local_norm(X), padding, past))  # (B, T', D)
        both = torch.cat([G, L], dim=-1)  # (B, T', 2D)
        X = X + self.dropout(self.merge(both + self.mix(both, padding, past, "mix")))  # (B, T', D)
        X = self.around_second(X, lambda Z: 0.5 * self.second(Z))
        return self.norm(X)


def e_branchformer(
    features: int,
    d_model: int,
    layers: int,
    heads: int,
    ff: int,
    cgmlp: int,
    kernel: int,
    merge_kernel: int,
    *,
    d_k: int | None = None,
    d_v: int | None = None,
    dropout: float = 0.1,
    attention_dropout: float = 0.0,
    positions: str = "relative",
    subsampling: int = 4,
    channels: int | None = None,
    chunk: Chunk | None = None,
    layer_dropout: float = 0.0,
) -> Encoder:
    """Make an E-Branchformer encoder.

    `cgmlp` is the cgMLP's inner width C, `kernel` its convolution's, `merge_kernel` the merging convolution's; both are
    causal where there are chunks. Other arguments as of `conformer`.
    """
    front = Subsampling(features, d_model, subsampling, channels), ScaledInput(d_model, dropout)
    causal = chunk is not None
    blocks = [
        EBranchformerLayer(
            [FeedForward(d_model, ff, dropout, "swish") for _ in range(2)],
            MultiHeadAttention(d_model, heads, attention_dropout, d_k, d_v, positions=where),
            ConvolutionalGatingMLP(d_model, cgmlp, kernel, dropout, causal),
            DepthwiseConvolution(2 * d_model, merge_kernel, causal),
            d_model,
            dropout,
        )
        for where in in_attention(positions, d_model, heads, d_k, layers)
    ]
    return Encoder(*front, blocks, nn.Identity(), chunk, layer_dropout)
