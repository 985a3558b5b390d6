"""Whisper's encoder: a Transformer over log-mels, of as many frames as it has positions (30 s).

An utterance is encoded at its own length. Whisper itself fills it up with silence to 30 s, which
takes as long for a second as for thirty; ESPnet, too, fine-tunes it without.

B batch, S samples, T frames of 10 ms, T' frames of 20 ms, F mel bins, D model width, N layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from asr import imports
from asr.device import product_dtype
from asr.nn.encoders.families.family import (
    FRAMES,
    Activation,
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
from asr.nn.encoders.families.log_mels import RATE, SHIFT, WINDOW, WhisperMels
from asr.nn.subsampling import Strides
from asr.nn.transformer import MOST
from asr.ops import additive, key_mask, zero_padding

NAMES = {  # ours → those of its configuration
    "hidden_size": "d_model",
    "num_hidden_layers": "encoder_layers",
    "num_attention_heads": "encoder_attention_heads",
    "intermediate_size": "encoder_ffn_dim",
    "hidden_act": "activation_function",
    "num_mel_bins": "num_mel_bins",
    "max_source_positions": "max_source_positions",
}
MOST_POSITIONS = 1 << 25  # values, which are computed; of the largest Whisper 1.9 million


class WhisperSettings(FamilySettings):
    """What transformers makes Whisper's encoder of."""

    model_type: Literal["whisper"]
    hidden_size: int = Field(ge=4, le=MOST["d_model"])
    num_hidden_layers: int = Layers
    num_attention_heads: int = Heads
    intermediate_size: int = Width
    hidden_act: Activation
    num_mel_bins: int = Field(gt=0, le=512)
    max_source_positions: int = Field(ge=FRAMES, le=100_000)

    @model_validator(mode="after")
    def _sizes_fit(self):
        check_divisor(self, "num_attention_heads")
        if self.hidden_size % 2:
            raise ValueError(f"hidden_size: got {self.hidden_size}, expected an even number")
        if self.max_source_positions * self.hidden_size > MOST_POSITIONS:
            raise ValueError(
                f"max_source_positions: got {self.max_source_positions} of {self.hidden_size} values, expected "
                f"{MOST_POSITIONS} values or less"
            )
        return self

    @property
    def strides(self) -> Strides:
        """Log-mels, and two convolutions, of which the second halves their frames."""
        return Strides([(SHIFT, SHIFT), (3, 1, 1), (3, 2, 1)])

    @property
    def most_frames(self) -> int | None:
        """As many as it has positions."""
        return self.max_source_positions

    @classmethod
    def described(cls, tree: dict[str, Any]) -> dict[str, Any]:
        """By our names."""
        found = filled(["model_type", *NAMES.values()], tree)
        own = {own: found[name] for own, name in NAMES.items()}
        return {"model_type": found["model_type"], **own}

    def waveforms(self, tree: dict[str, Any] | None) -> tuple[int, bool]:
        """16000 Hz, as they are."""
        mels = self.num_mel_bins
        expect(tree, sampling_rate=RATE, feature_size=mels, n_fft=WINDOW, hop_length=SHIFT)
        return RATE, False

    def own(self, tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
        """Those of the encoder."""
        return within(tensors, ("model.encoder.", "encoder."))

    @property
    def small_parts(self) -> dict[str, Any]:
        """The sizes of a small one that only this family has."""
        return {"num_mel_bins": 20}

    def module(self, dropouts: Dropouts) -> Any:
        """Make the encoder alone."""
        given = self.given()
        config = configuration(
            self.model_type,
            **{name: given[own] for own, name in NAMES.items()},
            attn_implementation="sdpa",
            dropout=dropouts.hidden,
            attention_dropout=dropouts.attention,
            activation_dropout=dropouts.activation,
        )
        return imports.transformers("transformers.models.whisper.modeling_whisper").WhisperEncoder(
            config
        )

    def extractor(self) -> nn.Module:
        """Log-mels."""
        return WhisperMels(self.num_mel_bins)

    def way(self, module: Any, extractor: nn.Module | None) -> "WhisperWay":
        """Through log-mels, convolutions and layers."""
        return WhisperWay(self, module, extractor)


@dataclass(frozen=True)
class WhisperWay(Way):
    """Waveforms → log-mels → two convolutions → positions → N layers."""

    settings: WhisperSettings
    module: Any
    extractor: Any

    @property
    def layers(self) -> nn.ModuleList:
        """The N layers."""
        return self.module.layers

    def begin(self, X: Tensor, X_lens: Tensor) -> tuple[Tensor, Tensor]:
        """X (B, S, 1) → (B, T', D) and lengths (B,); the convolutions read zeros beyond an utterance's ends"""
        E, lens = self.extractor(X.squeeze(2), X_lens)  # (B, T, F)
        module, H_lens = self.module, self.settings.strides.lengths(X_lens)
        E = E.to(module.conv1.weight.dtype)
        H = F.gelu(module.conv1(E.transpose(1, 2))).transpose(1, 2)  # (B, T, D)
        H = F.gelu(module.conv2(zero_padding(H, lens).transpose(1, 2)))  # (B, D, T')
        return H.transpose(1, 2), H_lens

    def through(self, H: Tensor, H_lens: Tensor, drawn: Sequence[bool]) -> list[Tensor]:
        """Add positions, and go through the layers; see `Way.through`."""
        module = self.module
        H = H + module.embed_positions.weight[: H.size(1)]  # (B, T', D)
        H = F.dropout(H, module.dropout, module.training)
        mask = additive(key_mask(H_lens, H.size(1)), product_dtype(H))  # (B, 1, 1, T')
        outputs = [module.layer_norm(H)]
        for n, layer in enumerate(self.layers):
            if drawn[n]:
                H = layer(H, mask)  # (B, T', D)
            outputs.append(module.layer_norm(H))
        return outputs
