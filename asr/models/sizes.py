"""Settings of the sizes that encoders, decoders and language models have in common."""

from typing import Literal

from pydantic import Field, model_validator

from asr.config import Settings


class SizeSettings(Settings):
    """Sizes of an encoder or a decoder, in the paper's terms: N layers, d_model, h heads, d_k, d_v, ff."""

    d_model: int = Field(gt=0)
    layers: int = Field(gt=0)
    heads: int = Field(gt=0)
    ff: int = Field(gt=0)
    d_k: int | None = Field(None, gt=0)
    d_v: int | None = Field(None, gt=0)
    dropout: float = Field(ge=0.0, lt=1.0)
    attention_dropout: float = Field(0.0, ge=0.0, lt=1.0)

    @model_validator(mode="after")
    def _heads_divide(self):
        if self.d_k is None and self.d_model % self.heads:
            raise ValueError(f"heads: got {self.heads}, expected a divisor of d_model = {self.d_model}, or d_k given")
        return self


class StackSettings(SizeSettings):
    """A Transformer's sizes, and what the other architectures leave no choice of."""

    norm: Literal["pre", "post"] = "pre"
    activation: Literal["relu", "gelu", "swish"] = "relu"
