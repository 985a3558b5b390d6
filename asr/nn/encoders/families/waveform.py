"""wav2vec 2.0, XLS-R, HuBERT, WavLM and data2vec-audio: convolutions read the samples.

B batch, S samples, C channels, T' frames of 20 ms, D model width, N layers.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import pad_sequence

from asr import imports
from asr.device import product_dtype
from asr.nn.encoders.families.family import (
    FRAMES,
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
    filled,
    refuse,
)
from asr.nn.subsampling import Strides
from asr.nn.transformer import MOST
from asr.ops import additive, key_mask, length_mask

# what of these families can't be had, and why
REFUSED = {
    "add_adapter": "its adapter shortens time with padding, which isn't supported",
    "adapter_attn_dim": "its adapters, one per language, aren't supported",
    "conv_pos_batch_norm": "statistics of a batch would make a result depend on its company",
}
# what the fingerprint computes of any description takes memory by these; after each, the usual number
MOST_SAMPLES = 1 << 15  # of FRAMES frames; 5200
MOST_KERNEL = 64  # of a convolution that reads samples, and its stride; 10
MOST_POSITIONS = 1024  # kernel of the positional convolutions; 128, and of data2vec 19


class SampleReaderSettings(FamilySettings):
    """What transformers makes an encoder of samples of, by its names."""

    model_type: Literal["wav2vec2", "hubert", "wavlm", "data2vec-audio"]
    hidden_size: int = Count
    num_hidden_layers: int = Layers
    num_attention_heads: int = Heads
    intermediate_size: int = Width
    hidden_act: Activation
    layer_norm_eps: float = Field(gt=0, le=1)
    feat_extract_norm: Literal["group", "layer"]
    feat_extract_activation: Activation
    conv_dim: list[int] = Field(min_length=1, max_length=32)
    conv_kernel: list[int]
    conv_stride: list[int]
    conv_bias: bool
    num_conv_pos_embeddings: int = Field(gt=0, le=MOST_POSITIONS)
    num_conv_pos_embedding_groups: int = Count
    do_stable_layer_norm: bool = False
    feat_proj_layer_norm: bool | None = None  # of HuBERT
    num_buckets: int | None = Field(None, gt=1, le=MOST["d_model"])  # of WavLM
    max_bucket_distance: int | None = Field(None, gt=1, le=MOST["d_model"])  # of WavLM
    conv_pos_kernel_size: int | None = Field(None, gt=0, le=MOST_POSITIONS)  # of data2vec

    @model_validator(mode="after")
    def _sizes_fit(self):
        sizes = self.conv_dim, self.conv_kernel, self.conv_stride
        most = MOST["d_model"], MOST_KERNEL, MOST_KERNEL
        possible = all(0 < n <= top for part, top in zip(sizes, most, strict=True) for n in part)
        if (
            len({*map(len, sizes)}) > 1
            or not possible
            or self.strides.frames(FRAMES) > MOST_SAMPLES
        ):
            raise ValueError(
                f"conv_dim: got {sizes} for channels, kernels and strides, expected as many positive numbers of each, "
                f"kernels and strides up to {MOST_KERNEL}, and {FRAMES} frames of {MOST_SAMPLES} samples or less"
            )
        if self.model_type == "data2vec-audio":
            if self.do_stable_layer_norm or self.feat_extract_norm == "group":
                raise ValueError(
                    "model_type: got data2vec-audio with do_stable_layer_norm or feat_extract_norm: group, which it "
                    "doesn't have"
                )
            if self.conv_pos_kernel_size is None or self.num_conv_pos_embeddings > MOST["layers"]:
                got = self.conv_pos_kernel_size, self.num_conv_pos_embeddings
                raise ValueError(
                    f"conv_pos_kernel_size: got {got} for it and num_conv_pos_embeddings, expected a kernel, and "
                    f"{MOST['layers']} convolutions or less"
                )
        for name in ("num_attention_heads", "num_conv_pos_embedding_groups"):
            check_divisor(self, name)
        return self

    @property
    def strides(self) -> Strides:
        """How the convolutions shorten time."""
        return Strides(list(zip(self.conv_kernel, self.conv_stride, strict=True)))

    @classmethod
    def described(cls, tree: dict[str, Any]) -> dict[str, Any]:
        """The description itself; data2vec has no name for its norm."""
        refuse(tree, REFUSED)
        known = {"feat_extract_norm": "layer"} if tree["model_type"] == "data2vec-audio" else {}
        return filled(cls.model_fields, tree) | known

    def waveforms(self, tree: dict[str, Any] | None) -> tuple[int, bool] | None:
        """Sample rate in Hz, and whether utterances have mean 0 and variance 1."""
        if tree is None:
            return None
        rate, normalize = tree.get("sampling_rate"), tree.get("do_normalize")
        if type(rate) is not int or type(normalize) is not bool or tree.get("feature_size", 1) != 1:
            raise ValueError(
                f"got sampling_rate {rate!r}, do_normalize {normalize!r} and feature_size "
                f"{tree.get('feature_size', 1)!r}, expected Hz, true or false, and 1 of waveforms"
            )
        return rate, normalize

    @property
    def small_parts(self) -> dict[str, Any]:
        """The sizes of a small one that only this family has."""
        return {"conv_dim": [8] * len(self.conv_dim), "num_conv_pos_embedding_groups": 2}

    def module(self, dropouts: Dropouts) -> Any:
        """Make it, with the norm over each utterance's own frames."""
        config = configuration(
            self.model_type,
            **self.given(),
            attn_implementation="eager" if self.model_type == "wavlm" else "sdpa",
            hidden_dropout=dropouts.hidden,
            feat_proj_dropout=dropouts.hidden,
            attention_dropout=dropouts.attention,
            activation_dropout=dropouts.activation,
            mask_time_prob=0.05 * dropouts.masks,  # at 0 there is no vector for what is masked
        )
        module: Any = imports.transformers("transformers").AutoModel.from_config(config)
        if self.model_type == "wavlm":  # whose masks are bool and float, which works
            warnings.filterwarnings("ignore", "Support for mismatched key_padding_mask")
        if self.feat_extract_norm == "group":
            convolutions = module.feature_extractor.conv_layers
            convolutions[0] = UtteranceNormConvolution(convolutions[0])
        return module

    def way(self, module: Any, extractor: nn.Module | None) -> "WaveformWay":
        """Through convolutions, projection, positions and layers."""
        return WaveformWay(self, module)


@dataclass(frozen=True)
class WaveformWay(Way):
    """Waveforms → convolutions → projection → positions → N layers."""

    settings: SampleReaderSettings
    module: Any

    @property
    def layers(self) -> nn.ModuleList:
        """The N layers."""
        return self.module.encoder.layers

    @property
    def by_utterance(self) -> nn.ModuleList:
        """The convolutions that read samples."""
        return self.module.feature_extractor.conv_layers

    def begin(self, X: Tensor, X_lens: Tensor) -> tuple[Tensor, Tensor]:
        """Shorten time by convolutions without padding, and project: X (B, S, 1) → (B, T', D) and lengths (B,).

        A CPU convolves each utterance by itself: nothing of its padding, and with small copies, where
        those of a batch took a tenth of a training's memory.
        """
        if X.device.type == "cpu":
            each = [
                self.convolved(X[b : b + 1, :S], X_lens[b : b + 1])[0]
                for b, S in enumerate(X_lens.tolist())
            ]
            Z = pad_sequence(each, batch_first=True)  # (B, T', C)
        else:
            Z = self.convolved(X, X_lens)  # (B, T', C)
        H = self.module.feature_projection(Z)
        return H[0] if isinstance(H, tuple) else H, self.settings.strides.lengths(X_lens)

    def convolved(self, X: Tensor, X_lens: Tensor) -> Tensor:
        """Read samples: X (B, S, 1), X_lens (B,) → (B, T', C)"""
        Z = X.transpose(1, 2)  # (B, 1, S)
        for convolution in self.by_utterance:
            if isinstance(convolution, UtteranceNormConvolution):
                Z = convolution(Z, X_lens)  # (B, C, T)
            else:
                Z = convolution(Z)  # (B, C, T)
        return Z.transpose(1, 2)  # (B, T', C)

    def through(self, H: Tensor, H_lens: Tensor, drawn: Sequence[bool]) -> list[Tensor]:
        """Add positions, and go through the layers; see `Way.through`."""
        padding = length_mask(H_lens, H.size(1)).unsqueeze(2)  # (B, T', 1)
        H = H.masked_fill(padding, 0)
        H = H + self._positions(H, padding)  # (B, T', D)
        encoder, stable = self.module.encoder, self.settings.do_stable_layer_norm
        final = encoder.layer_norm if stable else nn.Identity()
        H = encoder.dropout(H if stable else encoder.layer_norm(H))  # (B, T', D)
        outputs, wavlm, bias = [final(H)], self.settings.model_type == "wavlm", None
        real = ~length_mask(H_lens, H.size(1))  # (B, T'), as WavLM's layers take it
        mask = additive(key_mask(H_lens, H.size(1)), product_dtype(H))  # (B, 1, 1, T')
        for n, layer in enumerate(self.layers):
            if wavlm and (drawn[n] or n == 0):  # the first makes the bias for all
                H, bias = layer(H, real, bias)  # (B, T', D)
            elif drawn[n]:
                H = layer(H, mask)  # (B, T', D)
            outputs.append(final(H))
        return outputs

    def _positions(self, H: Tensor, padding: Tensor) -> Tensor:
        """Convolve H (B, T', D), zeros in the padding; each convolution reads zeros there, as at an utterance's end."""
        positions = self.module.encoder.pos_conv_embed
        if self.settings.model_type != "data2vec-audio":
            return positions(H)
        P, beyond = H.transpose(1, 2), padding.transpose(1, 2)
        for layer in positions.layers:
            P = layer(P).masked_fill(beyond, 0)  # (B, D, T')
        return P.transpose(1, 2)


class UtteranceNormConvolution(nn.Module):
    """A convolution of transformers whose GroupNorm, one channel a group, is over each utterance's own frames.

    transformers takes statistics over the padding, too, so that a result would depend on it.
    """

    def __init__(self, convolution: Any):
        super().__init__()
        self.conv, self.layer_norm = convolution.conv, convolution.layer_norm
        self.activation = convolution.activation

    def forward(self, X: Tensor, X_lens: Tensor) -> Tensor:
        """X (B, 1, S), X_lens (B,) → (B, C, T), zeros beyond the lengths before the activation"""
        Z, norm = self.conv(X), self.layer_norm  # (B, C, T)
        lens = (X_lens - self.conv.kernel_size[0]) // self.conv.stride[0] + 1  # (B,)
        with torch.autocast(Z.device.type, enabled=False):
            Z = Z.to(norm.weight.dtype)
            Z = UtteranceNorm.apply(Z, lens, norm.weight, norm.bias, norm.eps)  # (B, C, T)
        return self.activation(Z)


class UtteranceNorm(torch.autograd.Function):
    """y = w x̂ + b, x̂ = (x - μ) r, r = 1/√(σ² + ε), by utterance and channel over its T frames; zeros beyond.

    Operations on all samples take as long as the convolution, so few are made, and only x̂ is kept:
    ∂x = w r (∂y - mean(∂y) - x̂ mean(∂y x̂)), as for GroupNorm (Wu and He 2018, arXiv 1803.08494).
    """

    @staticmethod
    def forward(ctx, X, lens, weight, bias, eps):
        """X (B, C, T), lens (B,), weight and bias (C,) → (B, C, T)"""
        count, padding = lens.view(-1, 1, 1), length_mask(lens, X.size(2)).unsqueeze(1)
        X = X.contiguous()  # a convolution's output may not be, which makes all that follows slow
        Z = (X - _sum(X, padding) / count).masked_fill_(padding, 0)  # (B, C, T)
        variance = torch.linalg.vector_norm(Z, dim=2, keepdim=True).square() / count  # (B, C, 1)
        scale = (variance + eps).rsqrt()
        Z.mul_(scale)
        ctx.save_for_backward(Z, scale, count, padding, weight)
        return torch.addcmul(bias[:, None], Z, weight[:, None]).masked_fill_(padding, 0)

    @staticmethod
    @once_differentiable
    def backward(ctx, dY):
        """dY (B, C, T) → the gradients of X, weight and bias"""
        Z, scale, count, padding, weight = ctx.saved_tensors
        dY = dY.contiguous()  # (B, C, T)
        d_bias = _sum(dY, padding)  # (B, C, 1)
        d_weight = torch.einsum("bct,bct->bc", dY, Z).unsqueeze(2)  # (B, C, 1)
        dX = (dY - d_bias / count).addcmul_(Z, -d_weight / count).mul_(scale * weight[:, None])
        return dX.masked_fill_(padding, 0), None, d_weight.sum((0, 2)), d_bias.sum((0, 2)), None


def _sum(X: Tensor, padding: Tensor) -> Tensor:
    """Sum X (B, C, T), finite everywhere, over the frames that aren't padding (B, 1, T): (B, C, 1)."""
    return X @ (1 - padding.to(X.dtype)).transpose(1, 2)
