"""Conformer encoder (Gulati et al. 2020).

B batch, T' subsampled frames, D model width.
"""

from typing import Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn

from asr.nn.attention import MultiHeadAttention
from asr.nn.convolution import ConvolutionModule
from asr.nn.encoder import MOST_FRAMES, Encoder, EncoderSettings
from asr.nn.layers import EVERYTHING, Dropout, FeedForward, LayerContext


class ConvolutionSettings(EncoderSettings):
    """What encoders with convolutions have; they are causal where there are chunks, and the activation is swish."""

    kernel: int = Field(gt=0, le=MOST_FRAMES)  # frames of the depthwise convolution
    positions: Literal["relative", "rotary"] = (
        "relative"  # Transformer-XL's, the paper's, or rotary
    )

    @field_validator("kernel", "merge_kernel", check_fields=False)
    @classmethod
    def _odd(cls, kernel: int) -> int:
        if kernel % 2 == 0:
            raise ValueError(f"got {kernel}, expected an odd number of frames")
        return kernel


class ConformerSettings(ConvolutionSettings):
    """The Conformer encoder (Gulati et al. 2020)."""

    kind: Literal["conformer"]

    def build(self, features: int) -> Encoder:
        """Make the encoder, for F features."""
        return Encoder(self, features, ConformerLayer, nn.Identity())


class ConformerLayer(nn.Module):
    """½ feed-forward, self-attention, convolution, ½ feed-forward, each with residual and LayerNorm; LayerNorm.

    positions:  of the self-attention, as in `MultiHeadAttention`
    """

    def __init__(self, settings: ConformerSettings, positions: nn.Module | None = None):
        super().__init__()
        s, D = settings, settings.d_model
        self.ff1, self.ff2 = (FeedForward(D, s.ff, s.dropout, "swish") for _ in range(2))
        self.attention = MultiHeadAttention(
            D, s.heads, s.attention_dropout, s.d_k, s.d_v, positions=positions
        )
        self.convolution = ConvolutionModule(D, s.kernel, causal=s.chunk is not None)
        self.norm_ff1, self.norm_attention, self.norm_convolution, self.norm_ff2, self.norm = (
            nn.LayerNorm(D) for _ in range(5)
        )
        self.dropout = Dropout(s.dropout)

    def forward(self, X: Tensor, context: LayerContext = EVERYTHING) -> Tensor:
        """X (B, T', D) → (B, T', D)"""
        X = torch.add(X, self.dropout(self.ff1(self.norm_ff1(X))), alpha=0.5)  # (B, T', D)
        X = X + self.dropout(self.attention(self.norm_attention(X), context))  # (B, T', D)
        X = X + self.dropout(self.convolution(self.norm_convolution(X), context))  # (B, T', D)
        X = torch.add(X, self.dropout(self.ff2(self.norm_ff2(X))), alpha=0.5)  # (B, T', D)
        return self.norm(X)
