"""The layer of "Attention Is All You Need" (section 3.1), for encoders, decoders and language models.

B batch, T positions, D model width, Tm frames and D_m width of an encoder's result.
"""

from typing import Literal

from pydantic import Field, model_validator
from torch import Tensor, nn

from asr.config import Settings
from asr.nn.attention import MultiHeadAttention
from asr.nn.layers import EVERYTHING, Dropout, FeedForward, LayerContext

MOST = {
    "d_model": 16_384,
    "layers": 200,
    "heads": 1_024,
    "ff": 1 << 18,
}  # far beyond any model; d_k, d_v as d_model


class SizeSettings(Settings):
    """Sizes of an encoder or a decoder, in the paper's terms: N layers, d_model, h heads, d_k, d_v, ff."""

    d_model: int = Field(gt=0, le=MOST["d_model"])
    layers: int = Field(gt=0, le=MOST["layers"])
    heads: int = Field(gt=0, le=MOST["heads"])
    ff: int = Field(gt=0, le=MOST["ff"])
    d_k: int | None = Field(None, gt=0, le=MOST["d_model"])  # d_model / heads unless given
    d_v: int | None = Field(None, gt=0, le=MOST["d_model"])  # d_k unless given
    dropout: float = Field(ge=0.0, lt=1.0)  # of sublayers, of the input and within the feed-forward
    attention_dropout: float = Field(0.0, ge=0.0, lt=1.0)  # of attention weights

    @model_validator(mode="after")
    def _heads_divide(self):
        if self.d_k is None and self.d_model % self.heads:
            raise ValueError(
                f"heads: got {self.heads}, expected a divisor of d_model = {self.d_model}, or d_k given"
            )
        return self


class StackSettings(SizeSettings):
    """A Transformer's sizes, and what the other architectures leave no choice of."""

    norm: Literal["pre", "post"] = "pre"
    activation: Literal["relu", "gelu", "swish"] = "relu"


class TransformerLayer(nn.Module):
    """Self-attention, attention to an encoder where there is one, feed-forward; each with residual and LayerNorm.

    positions:  of the self-attention, as in `MultiHeadAttention`
    d_memory:   D_m; None: there is no encoder to attend to
    """

    def __init__(
        self,
        settings: StackSettings,
        positions: nn.Module | None = None,
        d_memory: int | None = None,
    ):
        super().__init__()
        s = settings
        self.pre_norm = s.norm == "pre"
        self.attention = MultiHeadAttention(
            s.d_model, s.heads, s.attention_dropout, s.d_k, s.d_v, positions=positions
        )
        self.cross: MultiHeadAttention | None = None
        if d_memory is not None:
            self.cross = MultiHeadAttention(
                s.d_model, s.heads, s.attention_dropout, s.d_k, s.d_v, d_memory
            )
        self.ff = FeedForward(s.d_model, s.ff, s.dropout, s.activation)
        self.norm_attention = nn.LayerNorm(s.d_model)
        if d_memory is not None:
            self.norm_cross = nn.LayerNorm(s.d_model)
        self.norm_ff = nn.LayerNorm(s.d_model)
        self.dropout = Dropout(s.dropout)

    def forward(
        self,
        X: Tensor,
        context: LayerContext = EVERYTHING,
        memory: Tensor | tuple[Tensor, Tensor] | None = None,
        memory_context: LayerContext = EVERYTHING,
    ) -> Tensor:
        """X (B, T, D), memory (B, Tm, D_m) or its keys and values → (B, T, D)"""
        if self.pre_norm:
            X = X + self.dropout(self.attention(self.norm_attention(X), context))  # (B, T, D)
            if self.cross is not None:
                read = self.cross(self.norm_cross(X), memory_context, memory)
                X = X + self.dropout(read)  # (B, T, D)
            return X + self.dropout(self.ff(self.norm_ff(X)))  # (B, T, D)
        X = self.norm_attention(X + self.dropout(self.attention(X, context)))  # (B, T, D)
        if self.cross is not None:
            read = self.cross(X, memory_context, memory)
            X = self.norm_cross(X + self.dropout(read))  # (B, T, D)
        return self.norm_ff(X + self.dropout(self.ff(X)))  # (B, T, D)


def final_norm(settings: StackSettings) -> nn.Module:
    """LayerNorm at the end of a pre-norm stack; nothing at the end of a post-norm one."""
    return nn.LayerNorm(settings.d_model) if settings.norm == "pre" else nn.Identity()
