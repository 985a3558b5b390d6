"""Transformer encoder ("Attention Is All You Need", section 3.1), with the paper's positions or rotary ones.

B batch, T' subsampled frames, D model width.
"""

from torch import Tensor, nn

from asr.nn.attention import MultiHeadAttention
from asr.nn.encoder import Encoder
from asr.nn.feedforward import FeedForward
from asr.nn.positions import ScaledInput, ScaledPositions
from asr.nn.relative import in_attention
from asr.nn.residual import Residual, final_norm
from asr.nn.streaming import Chunk, Past, attend_self
from asr.nn.subsampling import Subsampling


class TransformerLayer(nn.Module):
    """Self-attention, then feed-forward, each with residual and LayerNorm."""

    def __init__(self, attention: MultiHeadAttention, feedforward: FeedForward, residuals: list[Residual]):
        super().__init__()
        self.attention, self.feedforward = attention, feedforward
        self.around_attention, self.around_feedforward = residuals

    def forward(
        self,
        X: Tensor,
        mask: Tensor | None = None,
        padding: Tensor | None = None,
        maps: list | None = None,
        past: Past | None = None,
    ) -> Tensor:
        """X (B, T', D), mask (B, 1, 1 or T', T') → (B, T', D); the mask says all that `padding` does"""
        X = self.around_attention(X, lambda Z: attend_self(self.attention, Z, mask, maps, past))
        return self.around_feedforward(X, self.feedforward)


def transformer(
    features: int,
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
    positions: str = "sinusoidal",
    subsampling: int = 4,
    channels: int | None = None,
    chunk: Chunk | None = None,
    layer_dropout: float = 0.0,
) -> Encoder:
    """Make a Transformer encoder.

    Sizes as in the paper: `layers` N, `heads` h, `ff` d_ff; `d_k` = D / h and `d_v` = `d_k` unless given. `norm` is
    "pre" or "post". `dropout` acts on sublayers, inputs and inside the feed-forward, `attention_dropout` on attention
    weights. `positions` are "sinusoidal", added to the input, or "rotary".
    """
    scaled = ScaledPositions if positions == "sinusoidal" else ScaledInput
    front = Subsampling(features, d_model, subsampling, channels), scaled(d_model, dropout)
    blocks = [
        TransformerLayer(
            MultiHeadAttention(d_model, heads, attention_dropout, d_k, d_v, positions=where),
            FeedForward(d_model, ff, dropout, activation),
            [Residual(d_model, dropout, norm) for _ in range(2)],
        )
        for where in in_attention(positions, d_model, heads, d_k, layers)
    ]
    return Encoder(*front, blocks, final_norm(d_model, norm), chunk, layer_dropout)
