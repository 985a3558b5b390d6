"""w2v-BERT 2.0: a Conformer that reads Kaldi's filterbank, two frames at a time.

B batch, S samples, T frames of 10 ms, T' frames of 20 ms, F mel bins, D model width, N layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, model_validator
from torch import Tensor, nn

from asr import imports
from asr.device import product_dtype
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
    refuse,
)
from asr.nn.encoders.families.log_mels import RATE, SHIFT, WINDOW, KaldiMels
from asr.nn.subsampling import Strides
from asr.nn.transformer import MOST
from asr.ops import additive, length_mask

STACKED = 2  # frames
REFUSED = {"add_adapter": "its adapter shortens time with padding, which isn't supported"}


class W2vBertSettings(FamilySettings):
    """What transformers makes a w2v-BERT 2.0 of, by its names."""

    model_type: Literal["wav2vec2-bert"]
    hidden_size: int = Count
    num_hidden_layers: int = Layers
    num_attention_heads: int = Heads
    intermediate_size: int = Width
    hidden_act: Activation
    layer_norm_eps: float = Field(gt=0, le=1)
    feature_projection_input_dim: int = Field(gt=0, le=1024)
    # others keep tables that threads would disturb
    position_embeddings_type: Literal["relative_key"]
    left_max_position_embeddings: int = Field(gt=0, le=MOST["d_model"])
    right_max_position_embeddings: int = Field(gt=0, le=MOST["d_model"])
    conv_depthwise_kernel_size: int = Field(gt=0, le=MOST["d_model"])

    @model_validator(mode="after")
    def _sizes_fit(self):
        check_divisor(self, "num_attention_heads")
        if self.feature_projection_input_dim % STACKED or not self.conv_depthwise_kernel_size % 2:
            got = self.feature_projection_input_dim, self.conv_depthwise_kernel_size
            raise ValueError(
                f"feature_projection_input_dim: got {got} for it and conv_depthwise_kernel_size, expected an even and "
                "an odd number"
            )
        return self

    @property
    def strides(self) -> Strides:
        """Filterbank, and two of its frames in one."""
        return Strides([(WINDOW, SHIFT), (STACKED, STACKED)])

    @classmethod
    def described(cls, tree: dict[str, Any]) -> dict[str, Any]:
        """The description itself."""
        refuse(tree, REFUSED)
        return filled(cls.model_fields, tree)

    def waveforms(self, tree: dict[str, Any] | None) -> tuple[int, bool]:
        """16000 Hz, as they are."""
        mels = self.feature_projection_input_dim // STACKED
        expect(tree, sampling_rate=RATE, num_mel_bins=mels, feature_size=mels, stride=STACKED)
        return RATE, False

    @property
    def small_parts(self) -> dict[str, Any]:
        """The sizes of a small one that only this family has."""
        return {"feature_projection_input_dim": 40}

    def module(self, dropouts: Dropouts) -> Any:
        """Make it."""
        config = configuration(
            self.model_type,
            **self.given(),
            attn_implementation="eager",
            hidden_dropout=dropouts.hidden,
            feat_proj_dropout=dropouts.hidden,
            conformer_conv_dropout=dropouts.hidden,
            attention_dropout=dropouts.attention,
            activation_dropout=dropouts.activation,
            mask_time_prob=0.05 * dropouts.masks,  # at 0 there is no vector for what is masked
        )
        return imports.transformers("transformers").AutoModel.from_config(config)

    def extractor(self) -> nn.Module:
        """Kaldi's filterbank."""
        return KaldiMels(self.feature_projection_input_dim // STACKED)

    def way(self, module: Any, extractor: nn.Module | None) -> "W2vBertWay":
        """Through filterbank, projection and layers."""
        return W2vBertWay(module, extractor)


@dataclass(frozen=True)
class W2vBertWay(Way):
    """Waveforms → filterbank → pairs of frames → projection → N layers."""

    module: Any
    extractor: Any

    @property
    def layers(self) -> nn.ModuleList:
        """The N layers."""
        return self.module.encoder.layers

    def begin(self, X: Tensor, X_lens: Tensor) -> tuple[Tensor, Tensor]:
        """X (B, S, 1) → (B, T', D) and lengths (B,)"""
        E, lens = self.extractor(X.squeeze(2), X_lens)  # (B, T, F)
        H_lens, T = lens // STACKED, E.size(1) // STACKED
        E = E[:, : STACKED * T].reshape(len(E), T, -1)  # (B, T', 2F)
        projection = self.module.feature_projection
        return projection(E.to(projection.projection.weight.dtype))[0], H_lens

    def through(self, H: Tensor, H_lens: Tensor, drawn: Sequence[bool]) -> list[Tensor]:
        """Go through the layers; see `Way.through`."""
        padding = length_mask(H_lens, H.size(1))  # (B, T')
        mask, real = additive(padding[:, None, None], product_dtype(H)), ~padding
        H = self.module.encoder.dropout(H.masked_fill(padding.unsqueeze(2), 0))  # (B, T', D)
        outputs = [H]
        for n, layer in enumerate(self.layers):
            if drawn[n]:
                H = layer(H, attention_mask=mask, conv_attention_mask=real)  # (B, T', D)
            outputs.append(H)
        return outputs
