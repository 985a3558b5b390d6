"""Transformer encoder ("Attention Is All You Need", section 3.1), with the paper's positions or rotary ones."""

from typing import Literal

from asr.nn.encoder import Encoder, EncoderSettings
from asr.nn.transformer import StackSettings, TransformerLayer, final_norm


class TransformerSettings(EncoderSettings, StackSettings):
    """The Transformer encoder (Vaswani et al. 2017)."""

    kind: Literal["transformer"]
    positions: Literal["sinusoidal", "rotary"] = (
        "sinusoidal"  # added to the input, or in the attention
    )

    def build(self, features: int) -> Encoder:
        """Make the encoder, for F features."""
        return Encoder(self, features, TransformerLayer, final_norm(self))
