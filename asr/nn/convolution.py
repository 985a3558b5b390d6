"""Convolutions over time: depthwise, and the Conformer's convolution module (Gulati et al. 2020, section 2.2).

B batch, T frames, C channels, k kernel, D model width.
"""

from functools import partial
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asr.nn.layers import EVERYTHING, LayerContext


class DepthwiseConvolution(nn.Module):
    """Convolve each channel over time with a kernel of its own; as many frames come out as go in.

    causal:  frame t is made of t - k + 1..t; otherwise of t - (k - 1) / 2..t + (k - 1) / 2, k odd
    Where there is no frame it reads zeros: padding is cleared first, even of a NaN.
    """

    def __init__(self, channels: int, kernel: int, causal: bool = False):
        super().__init__()
        self.kernel, self.causal = kernel, causal
        like = nn.Conv1d(channels, channels, kernel, groups=channels)
        # (C, 1, k) and (C,), with PyTorch's initial values
        self.weight, self.bias = like.weight, cast(nn.Parameter, like.bias)

    def forward(self, X: Tensor, context: LayerContext = EVERYTHING, name: str = "conv") -> Tensor:
        """X (B, T, C) → (B, T, C)

        name:  under which a stream carries the frames before; for a causal convolution only
        """
        if context.padding is not None:
            X = X.masked_fill(context.padding, 0)
        k = self.kernel
        if context.past is not None:
            X = context.past.precede(name, X, k - 1)  # (B, T + k - 1, C)
        elif self.causal:
            X = F.pad(X, (0, 0, k - 1, 0))  # (B, T + k - 1, C)
        # channels last in memory: conv1d takes twice as long
        image = X.transpose(1, 2).unsqueeze(2)  # (B, C, 1, T)
        beside = (0, 0 if self.causal else (k - 1) // 2)
        return self._convolve(image, beside).squeeze(2).transpose(1, 2)  # (B, T, C)

    def _convolve(self, image: Tensor, beside: tuple[int, int]) -> Tensor:
        """(B, C, 1, T) → (B, C, 1, T'); on a CPU not in bf16, where some shapes keep oneDNN busy for ever."""
        convolve = partial(F.conv2d, padding=beside, groups=len(self.bias))
        weight, bias = self.weight.unsqueeze(2), self.bias
        if image.device.type != "cpu":
            return convolve(image, weight, bias)
        exact = torch.promote_types(image.dtype, self.weight.dtype)
        exact = torch.float32 if exact == torch.bfloat16 else exact
        with torch.autocast("cpu", enabled=False):
            X = convolve(image.to(exact), weight.to(exact), bias.to(exact))
        return X.to(image.dtype)


class ConvolutionModule(nn.Module):
    """Pointwise, GLU, depthwise, norm, swish, pointwise.

    The norm is a LayerNorm, where the paper has a BatchNorm: its statistics are those of one frame.
    So they depend neither on padding nor on other utterances of a batch, and training and decoding
    compute the same. Both have 2D weights.
    """

    def __init__(self, d_model: int, kernel: int, causal: bool = False):
        super().__init__()
        self.expand = nn.Linear(d_model, 2 * d_model)
        self.depthwise = DepthwiseConvolution(d_model, kernel, causal)
        self.norm = nn.LayerNorm(d_model)
        self.project = nn.Linear(d_model, d_model)

    def forward(self, X: Tensor, context: LayerContext = EVERYTHING) -> Tensor:
        """X (B, T, D) → (B, T, D)"""
        X = F.glu(self.expand(X), dim=-1)  # (B, T, D)
        X = self.depthwise(X, context)  # (B, T, D)
        return self.project(F.silu(self.norm(X)))  # (B, T, D)
