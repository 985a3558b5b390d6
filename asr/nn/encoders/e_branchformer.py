"""E-Branchformer encoder (Kim et al. 2022), after Branchformer (Peng et al. 2022) and cgMLP (Sakuma et al. 2021).

B batch, T' subsampled frames, D model width, C width within the cgMLP.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from asr.nn.attention import MultiHeadAttention
from asr.nn.convolution import DepthwiseConvolution
from asr.nn.encoder import MOST_FRAMES, Encoder
from asr.nn.encoders.conformer import ConvolutionSettings
from asr.nn.layers import EVERYTHING, Dropout, FeedForward, LayerContext
from asr.nn.transformer import MOST


class EBranchformerSettings(ConvolutionSettings):
    """The E-Branchformer encoder (Kim et al. 2022)."""

    kind: Literal["e_branchformer"]
    cgmlp: int = Field(gt=0, le=MOST["ff"], multiple_of=2)  # inner width C of the local branch
    merge_kernel: int = Field(
        gt=0, le=MOST_FRAMES
    )  # frames of the convolution that merges the branches

    def build(self, features: int) -> Encoder:
        """Make the encoder, for F features."""
        return Encoder(self, features, EBranchformerLayer, nn.Identity())


class ConvolutionalGatingMLP(nn.Module):
    """cgMLP: expand to C channels, let one half gate the other by its neighborhood in time (CSGU), project.

    The gate begins near 1 (kernel near 0, bias 1), as gMLP's does (Liu et al. 2021, section 2.1).
    """

    def __init__(
        self, d_model: int, cgmlp: int, kernel: int, dropout: float = 0.0, causal: bool = False
    ):
        super().__init__()
        self.expand = nn.Linear(d_model, cgmlp)
        self.norm = nn.LayerNorm(cgmlp // 2)
        self.gate = DepthwiseConvolution(cgmlp // 2, kernel, causal)
        self.dropout = Dropout(dropout)
        self.project = nn.Linear(cgmlp // 2, d_model)
        nn.init.normal_(self.gate.weight, std=1e-3)
        nn.init.ones_(self.gate.bias)

    def forward(self, X: Tensor, context: LayerContext = EVERYTHING) -> Tensor:
        """X (B, T', D) → (B, T', D)"""
        A, G = F.gelu(self.expand(X)).chunk(2, dim=-1)  # (B, T', C / 2) each
        G = self.gate(self.norm(G), context, "gate")  # (B, T', C / 2)
        return self.project(self.dropout(A * G))  # (B, T', D)


class EBranchformerLayer(nn.Module):
    """½ feed-forward; attention beside cgMLP, merged by a depthwise convolution; ½ feed-forward; LayerNorm.

    positions:  of the self-attention, as in `MultiHeadAttention`
    """

    def __init__(self, settings: EBranchformerSettings, positions: nn.Module | None = None):
        super().__init__()
        s, D, causal = settings, settings.d_model, settings.chunk is not None
        self.ff1, self.ff2 = (FeedForward(D, s.ff, s.dropout, "swish") for _ in range(2))
        self.attention = MultiHeadAttention(
            D, s.heads, s.attention_dropout, s.d_k, s.d_v, positions=positions
        )
        self.cgmlp = ConvolutionalGatingMLP(D, s.cgmlp, s.kernel, s.dropout, causal)
        self.merge_convolution = DepthwiseConvolution(2 * D, s.merge_kernel, causal)
        self.merge = nn.Linear(2 * D, D)
        self.norm_ff1, self.norm_ff2, self.norm_attention, self.norm_cgmlp, self.norm = (
            nn.LayerNorm(D) for _ in range(5)
        )
        self.dropout = Dropout(s.dropout)

    def forward(self, X: Tensor, context: LayerContext = EVERYTHING) -> Tensor:
        """X (B, T', D) → (B, T', D)"""
        X = torch.add(X, self.dropout(self.ff1(self.norm_ff1(X))), alpha=0.5)  # (B, T', D)
        G = self.dropout(self.attention(self.norm_attention(X), context))  # (B, T', D)
        L = self.dropout(self.cgmlp(self.norm_cgmlp(X), context))  # (B, T', D)
        both = torch.cat([G, L], dim=-1)  # (B, T', 2D)
        X = X + self.dropout(
            self.merge(both + self.merge_convolution(both, context, "merge"))
        )  # (B, T', D)
        X = torch.add(X, self.dropout(self.ff2(self.norm_ff2(X))), alpha=0.5)  # (B, T', D)
        return self.norm(X)
