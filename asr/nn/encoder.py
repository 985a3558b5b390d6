"""Transformer encoder ("Attention Is All You Need", section 3.1) behind a convolutional subsampling.

B batch, T frames, F features, T' subsampled frames, D model width.
"""

from torch import Tensor, nn

from asr.nn.attention import MultiHeadAttention
from asr.nn.feedforward import FeedForward
from asr.nn.masks import key_mask, zero_padding
from asr.nn.positions import ScaledPositions
from asr.nn.residual import Residual, final_norm
from asr.nn.subsampling import Subsampling


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each with residual and LayerNorm."""

    def __init__(self, attention: MultiHeadAttention, feedforward: FeedForward, residuals: list[Residual]):
        super().__init__()
        self.attention, self.feedforward = attention, feedforward
        self.around_attention, self.around_feedforward = residuals

    def forward(self, X: Tensor, mask: Tensor, maps: list | None = None) -> Tensor:
        """X (B, T', D), mask (B, 1, 1, T') → (B, T', D)"""
        X = self.around_attention(X, lambda Z: self.attention(Z, Z, mask, maps))
        return self.around_feedforward(X, self.feedforward)


class TransformerEncoder(nn.Module):
    """Subsampling, positions, N layers: X (B, T, F) → H (B, T', D).

    Sizes as in the paper: `layers` N, `heads` h, `ff` d_ff, `d_k` and `d_v` = D / h unless given. `norm` is "pre" or
    "post". `dropout` acts on sublayers, inputs and inside the feed-forward, `attention_dropout` on attention weights.
    """

    def __init__(
        self,
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
        subsampling: int = 4,
        channels: int | None = None,
    ):
        super().__init__()
        self.d_model = d_model
        self.subsampling = Subsampling(features, d_model, subsampling, channels)
        self.positions = ScaledPositions(d_model, dropout)
        self.layers = nn.ModuleList(
            EncoderLayer(
                MultiHeadAttention(d_model, heads, attention_dropout, d_k, d_v),
                FeedForward(d_model, ff, dropout, activation),
                [Residual(d_model, dropout, norm) for _ in range(2)],
            )
            for _ in range(layers)
        )
        self.norm = final_norm(d_model, norm)

    def forward(self, X: Tensor, X_lens: Tensor, maps: list | None = None) -> tuple[Tensor, Tensor]:
        """Encode a padded batch.

        X:       (B, T, F); what stands beyond X_lens is never read
        X_lens:  (B,) int, frames
        maps:    when given, each layer's attention weights (B, H, T', T') are appended to it
        returns  H (B, T', D) and H_lens (B,)
        """
        X = zero_padding(X, X_lens)  # (B, T, F)
        H, H_lens = self.subsampling(X, X_lens)  # (B, T', D)
        H = self.positions(H)  # (B, T', D)
        mask = key_mask(H_lens, H.size(1))  # (B, 1, 1, T')
        for layer in self.layers:
            H = layer(H, mask, maps)  # (B, T', D)
        return self.norm(H), H_lens
