"""Conformer encoder (Gulati et al. 2020).

B batch, T' subsampled frames, D model width.
"""

from torch import Tensor, nn

from asr.nn.attention import MultiHeadAttention
from asr.nn.convolution import ConvolutionModule
from asr.nn.encoder import Encoder
from asr.nn.feedforward import FeedForward
from asr.nn.positions import ScaledInput
from asr.nn.relative import in_attention
from asr.nn.residual import Residual
from asr.nn.streaming import Chunk, Past, attend_self
from asr.nn.subsampling import Subsampling


class ConformerLayer(nn.Module):
    """½ feed-forward, self-attention, convolution, ½ feed-forward, each with residual and LayerNorm; LayerNorm."""

    def __init__(
        self,
        feedforwards: list[FeedForward],
        attention: MultiHeadAttention,
        convolution: ConvolutionModule,
        d_model: int,
        dropout: float,
    ):
        super().__init__()
        self.first, self.second = feedforwards
        self.attention, self.convolution = attention, convolution
        self.around_first, self.around_attention, self.around_convolution, self.around_second = (
            Residual(d_model, dropout) for _ in range(4)
        )
        self.norm = nn.LayerNorm(d_model)

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
        X = self.around_attention(X, lambda Z: attend_self(self.attention, Z, mask, maps, past))
        X = self.around_convolution(X, lambda Z: self.convolution(Z, padding, past))
        X = self.around_second(X, lambda Z: 0.5 * self.second(Z))
        return self.norm(X)


def conformer(
    features: int,
    d_model: int,
    layers: int,
    heads: int,
    ff: int,
    kernel: int,
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
    """Make a Conformer encoder.

    `kernel` is the depthwise convolution's, causal where there are chunks; the feed-forwards' activation is swish.
    `positions` are "relative" (Transformer-XL's, the paper's) or "rotary". Other arguments as of `transformer`.
    """
    front = Subsampling(features, d_model, subsampling, channels), ScaledInput(d_model, dropout)
    blocks = [
        ConformerLayer(
            [FeedForward(d_model, ff, dropout, "swish") for _ in range(2)],
            MultiHeadAttention(d_model, heads, attention_dropout, d_k, d_v, positions=where),
            ConvolutionModule(d_model, kernel, causal=chunk is not None),
            d_model,
            dropout,
        )
        for where in in_attention(positions, d_model, heads, d_k, layers)
    ]
    return Encoder(*front, blocks, nn.Identity(), chunk, layer_dropout)
