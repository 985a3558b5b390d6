"""Convolutional subsampling of time by 4, 6 or 8, without padding: a frame depends on real frames only; or none.

B batch, T frames of 10 ms, F log-mel bins, C channels, T' subsampled frames, D model width.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# (kernel, stride) of the convolutions over time and frequency
STAGES = {4: [(3, 2), (3, 2)], 6: [(3, 2), (5, 3)], 8: [(3, 2), (3, 2), (3, 2)]}


@dataclass(frozen=True)
class Strides:
    """How convolutions over time shorten it.

    stages   (kernel, stride) of each, the first one first; (kernel, stride, zeros at each end) of
             one with padding
    """

    stages: Sequence[tuple[int, ...]]

    @property
    def factor(self) -> int:
        """Frames from one subsampled frame to the next."""
        return math.prod(stride for _, stride, *_ in self.stages)

    @property
    def shortest(self) -> int:
        """Frames that make one subsampled frame."""
        return self.frames(1)

    def lengths(self, X_lens):
        """Subsampled lengths of X_lens, an int or (B,) int tensor."""
        for kernel, stride, *padding in self.stages:
            X_lens = (X_lens + 2 * sum(padding) - kernel) // stride + 1
        return X_lens.clamp(min=0) if torch.is_tensor(X_lens) else max(0, X_lens)

    def frames(self, subsampled: int) -> int:
        """Return the fewest frames that make this number of subsampled ones."""
        for kernel, stride, *padding in reversed(self.stages):
            subsampled = max(1, (subsampled - 1) * stride + kernel - 2 * sum(padding))
        return subsampled


class NoSubsampling(nn.Module):
    """Hand on what has the encoder's width already, such as embeddings of tokens; no weight.

    raises   ValueError if the features aren't of the width D
    """

    factor = shortest = 1

    def __init__(self, features: int, d_model: int):
        super().__init__()
        if features != d_model:
            raise ValueError(
                f"features: got {features}, expected d_model = {d_model}, for subsampling: 1 projects nothing"
            )
        self.features = features

    def forward(self, X: Tensor, X_lens: Tensor) -> tuple[Tensor, Tensor]:
        """X (B, T, D), X_lens (B,) → the same"""
        return X, X_lens

    def lengths(self, X_lens):
        """X_lens, an int or (B,) int tensor."""
        return X_lens

    def frames(self, subsampled: int) -> int:
        """The same number."""
        return subsampled


class Subsampling(nn.Module):
    """Convolutions of width 3 and stride 2 (5 and 3 for the second of factor 6) with ReLU, then a projection to D.

    factor:    4, 6 or 8
    features:  F
    d_model:   D
    channels:  C, D unless given
    """

    def __init__(self, features: int, d_model: int, factor: int = 4, channels: int | None = None):
        super().__init__()
        self.strides, self.factor, self.features = Strides(STAGES[factor]), factor, features
        C = channels or d_model
        convolutions = []
        for n, (kernel, stride) in enumerate(STAGES[factor]):
            convolutions += [nn.Conv2d(C if n else 1, C, kernel, stride), nn.ReLU(inplace=True)]
        self.convolutions = nn.Sequential(*convolutions).to(
            memory_format=torch.channels_last
        )  # twice as fast on a CPU
        bins = self.strides.lengths(features)
        if bins < 1:
            raise ValueError(f"features: got {features}, too few for subsampling by {factor}")
        self.project = nn.Linear(C * bins, d_model)

    def forward(self, X: Tensor, X_lens: Tensor) -> tuple[Tensor, Tensor]:
        """Shorten time.

        X:       (B, T, F), zeros beyond X_lens
        X_lens:  (B,) int, frames
        returns  (B, T', D) and lengths (B,); for factor 4, T' = ((T - 1) // 2 - 1) // 2
        raises   ValueError naming index and length of an utterance too short for one subsampled
                 frame; on a CPU: training and transcribing see to it before
        """
        H_lens = self.lengths(X_lens)  # (B,)
        if H_lens.device.type == "cpu" and (H_lens < 1).any():  # a GPU would be waited for
            n = int(H_lens.argmin())
            raise ValueError(
                f"utterance {n} of the batch: got {int(X_lens[n])} frames, expected {self.shortest} or more"
            )
        H = self.convolutions(
            X.unsqueeze(1).contiguous(memory_format=torch.channels_last)
        )  # (B, C, T', F')
        return self._project(H), H_lens  # (B, T', D)

    def _project(self, H: Tensor) -> Tensor:
        """(B, C, T', F') → (B, T', D); H lies in memory with channels last, so the weight, far smaller, is turned."""
        weight = self.project.weight.unflatten(1, (H.size(1), H.size(3)))  # (D, C, F')
        return F.linear(
            H.permute(0, 2, 3, 1).flatten(2), weight.transpose(1, 2).flatten(1), self.project.bias
        )

    def lengths(self, X_lens):
        """Subsampled lengths of X_lens, an int or (B,) int tensor."""
        return self.strides.lengths(X_lens)

    @property
    def shortest(self) -> int:
        """Frames that make one subsampled frame."""
        return self.strides.shortest

    def frames(self, subsampled: int) -> int:
        """Return the fewest frames that make this number of subsampled ones."""
        return self.strides.frames(subsampled)
