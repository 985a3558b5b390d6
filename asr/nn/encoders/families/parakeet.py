"""Parakeet's encoder: a FastConformer, which shortens log-mels eightfold.

B batch, S samples, T frames of 10 ms, T' frames of 80 ms, F mel bins, D model width, N layers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from asr import imports
from asr.errors import UserError
from asr.nn.encoders.families.family import (
    Activation,
    Count,
    Dropouts,
    FamilySettings,
    Heads,
    Layers,
    Way,
    Width,
    check_divisor,
    configuration,
    expect,
    filled,
    within,
)
from asr.nn.encoders.families.log_mels import PREEMPHASIS, RATE, SHIFT, WINDOW, ParakeetMels
from asr.nn.subsampling import Strides
from asr.nn.transformer import MOST
from asr.ops import key_mask, length_mask


class ParakeetSettings(FamilySettings):
    """What transformers makes Parakeet's encoder of, by its names."""

    model_type: Literal["parakeet_encoder"]
    hidden_size: int = Count
    num_hidden_layers: int = Layers
    num_attention_heads: int = Heads
    intermediate_size: int = Width
    hidden_act: Activation
    attention_bias: bool
    convolution_bias: bool
    conv_kernel_size: int = Field(gt=0, le=MOST["d_model"])
    subsampling_factor: Literal[2, 4, 8, 16]
    subsampling_conv_channels: int = Count
    subsampling_conv_kernel_size: Literal[3]
    subsampling_conv_stride: Literal[2]
    num_mel_bins: int = Field(gt=0, le=512)
    scale_input: bool

    @model_validator(mode="after")
    def _sizes_fit(self):
        check_divisor(self, "num_attention_heads")
        if self.hidden_size % 2:
            raise ValueError(f"hidden_size: got {self.hidden_size}, expected an even number")
        if not self.conv_kernel_size % 2 or self.num_mel_bins % self.subsampling_factor:
            got = self.conv_kernel_size, self.num_mel_bins
            raise ValueError(
                f"conv_kernel_size: got {got} for it and num_mel_bins, expected an odd number and a multiple of "
                f"subsampling_factor = {self.subsampling_factor}"
            )
        return self

    @property
    def strides(self) -> Strides:
        """Log-mels, and convolutions that each halve their frames."""
        return Strides([(SHIFT, SHIFT), *[(3, 2, 1)] * int(math.log2(self.subsampling_factor))])

    @classmethod
    def described(cls, tree: dict[str, Any]) -> dict[str, Any]:
        """The part of a model that is its encoder."""
        part = tree.get("encoder_config", tree)
        if not isinstance(part, dict):
            raise UserError(f"encoder_config: got {part!r}, expected a description; fetch it again")
        return filled(cls.model_fields, {**part, "model_type": "parakeet_encoder"})

    def waveforms(self, tree: dict[str, Any] | None) -> tuple[int, bool]:
        """16000 Hz, as they are."""
        sizes = {"n_fft": 512, "hop_length": SHIFT, "win_length": WINDOW}
        expect(tree, sampling_rate=RATE, feature_size=self.num_mel_bins, **sizes)
        expect(tree, preemphasis=PREEMPHASIS)
        return RATE, False

    def own(self, tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
        """Those of the encoder."""
        return within(tensors, ("encoder.",))

    @property
    def small_parts(self) -> dict[str, Any]:
        """The sizes of a small one that only this family has."""
        return {"subsampling_conv_channels": 8, "num_mel_bins": 2 * self.subsampling_factor}

    def module(self, dropouts: Dropouts) -> Any:
        """Make it, with norms that keep the source's statistics."""
        config = configuration(
            self.model_type,
            **self.given(),
            attn_implementation="sdpa",
            dropout=dropouts.hidden,
            attention_dropout=dropouts.attention,
            activation_dropout=dropouts.activation,
        )
        module: Any = imports.transformers("transformers").AutoModel.from_config(config)
        for layer in module.layers:
            layer.conv.norm = StoredNorm(layer.conv.norm)
        return module

    def extractor(self) -> nn.Module:
        """Log-mels."""
        return ParakeetMels(self.num_mel_bins)

    def way(self, module: Any, extractor: nn.Module | None) -> "ParakeetWay":
        """Through log-mels, subsampling and layers."""
        return ParakeetWay(self, module, extractor)


class StoredNorm(nn.Module):
    """Batch norm by the source's statistics, in training, too: those of a batch would make company matter."""

    running_mean: Tensor  # (D,)
    running_var: Tensor  # (D,)

    def __init__(self, norm: nn.BatchNorm1d):
        super().__init__()
        self.eps, self.weight, self.bias = norm.eps, norm.weight, norm.bias
        self.register_buffer("running_mean", norm.running_mean)
        self.register_buffer("running_var", norm.running_var)

    def forward(self, X: Tensor) -> Tensor:
        """X (B, D, T') → (B, D, T')"""
        statistics = self.running_mean, self.running_var
        return F.batch_norm(X, *statistics, self.weight, self.bias, training=False, eps=self.eps)


@dataclass(frozen=True)
class ParakeetWay(Way):
    """Waveforms → log-mels → subsampling → N layers."""

    settings: ParakeetSettings
    module: Any
    extractor: Any

    @property
    def layers(self) -> nn.ModuleList:
        """The N layers."""
        return self.module.layers

    def begin(self, X: Tensor, X_lens: Tensor) -> tuple[Tensor, Tensor]:
        """X (B, S, 1) → (B, T', D) and lengths (B,)"""
        E, lens = self.extractor(X.squeeze(2), X_lens)  # (B, T, F)
        real, module = ~length_mask(lens, E.size(1)), self.module  # (B, T)
        H = module.subsampling(E.to(module.subsampling.linear.weight.dtype), real)  # (B, T', D)
        return H * module.input_scale, self.settings.strides.lengths(X_lens)

    def through(self, H: Tensor, H_lens: Tensor, drawn: Sequence[bool]) -> list[Tensor]:
        """Go through the layers; see `Way.through`."""
        positions = self.module.encode_positions(H)  # (B, 2T' - 1, D)
        H = F.dropout(H, self.module.dropout, self.module.training)
        real = ~key_mask(H_lens, H.size(1))  # (B, 1, 1, T')
        outputs = [H]
        for n, layer in enumerate(self.layers):
            if drawn[n]:
                H = layer(H, attention_mask=real, position_embeddings=positions)  # (B, T', D)
            outputs.append(H)
        return outputs
