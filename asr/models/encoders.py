"""Settings of the encoders, told apart by their `kind`, and the encoder that they describe."""

from typing import Literal

from pydantic import Field, field_validator, model_validator

from asr.config import Settings
from asr.models.sizes import SizeSettings, StackSettings
from asr.nn.conformer import conformer
from asr.nn.e_branchformer import e_branchformer
from asr.nn.encoder import Encoder
from asr.nn.streaming import Chunk
from asr.nn.transformer import transformer


class ChunkSettings(Settings):
    """Chunks of an encoder that can read a stream: a frame sees its own and `left` chunks before it."""

    frames: int = Field(gt=0)  # subsampled: of 40 ms with subsampling by 4
    left: int = Field(ge=0)


class EncoderSettings(SizeSettings):
    """What all encoders have: convolutional subsampling of time, positions, chunks, layers left out in training."""

    subsampling: Literal[4, 6, 8] = 4
    channels: int | None = Field(None, gt=0)  # of the subsampling; d_model unless given
    chunk: ChunkSettings | None = None  # none: a frame sees the whole utterance
    layer_dropout: float = Field(0.0, ge=0.0, lt=1.0)
    positions: str  # each kind has a choice of its own

    @model_validator(mode="after")
    def _pairs_to_rotate(self):
        d_k = self.d_k or self.d_model // self.heads
        if self.positions == "rotary" and d_k % 2:
            raise ValueError(f"positions: got 'rotary' with d_k = {d_k}, expected an even d_k: it rotates pairs")
        return self


class TransformerSettings(EncoderSettings, StackSettings):
    """The Transformer encoder (Vaswani et al. 2017)."""

    kind: Literal["transformer"]
    positions: Literal["sinusoidal", "rotary"] = "sinusoidal"


class ConvolutionSettings(EncoderSettings):
    """What encoders with convolutions have."""

    kernel: int = Field(gt=0)  # frames of the depthwise convolution
    positions: Literal["relative", "rotary"] = "relative"

    @field_validator("kernel", "merge_kernel", check_fields=False)
    @classmethod
    def _odd(cls, kernel: int) -> int:
        if kernel % 2 == 0:
            raise ValueError(f"got {kernel}, expected an odd number of frames")
        return kernel


class ConformerSettings(ConvolutionSettings):
    """The Conformer encoder (Gulati et al. 2020)."""

    kind: Literal["conformer"]


class EBranchformerSettings(ConvolutionSettings):
    """The E-Branchformer encoder (Kim et al. 2022)."""

    kind: Literal["e_branchformer"]
    cgmlp: int = Field(gt=0, multiple_of=2)  # inner width of the local branch
    merge_kernel: int = Field(gt=0)  # frames of the convolution that merges the branches


def build_encoder(settings: EncoderSettings, features: int) -> Encoder:
    """Make the encoder of a kind, for F features."""
    make = {"transformer": transformer, "conformer": conformer, "e_branchformer": e_branchformer}[settings.kind]
    chunk = settings.chunk and Chunk(settings.chunk.frames, settings.chunk.left)
    return make(features, **settings.model_dump(exclude={"kind", "chunk"}), chunk=chunk)
