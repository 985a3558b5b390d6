"""Cepstral mean and variance normalization, by the training set's statistics or by the utterance's own."""

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor, nn

from asr.ops import length_mask

CMVNKind = Literal["global", "utterance_mean", "utterance"]
FLOOR = 0.01  # least variance within an utterance, so that a constant bin, as in digital silence, is not amplified


class CMVN(nn.Module):
    """(X - mean) / std of each feature bin; the training set's statistics are part of the model's weights.

    kind:  "global": only that. "utterance_mean": first subtract each utterance's own mean, as
           Kaldi's `apply-cmvn` does by default, which removes the coloring of microphone and room,
           and the level. "utterance": also divide by the utterance's own deviation (`apply-cmvn
           --norm-vars`), so that noise is equally far from speech in all
    """

    mean: Tensor  # (F,)
    std: Tensor  # (F,)

    def __init__(self, features: int, kind: CMVNKind = "global"):
        super().__init__()
        self.kind = kind
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("std", torch.ones(features))

    def forward(self, X: Tensor, X_lens: Tensor) -> Tensor:
        """X (B, T, F), X_lens (B,) → (B, T, F), exact zeros beyond X_lens."""
        padding = length_mask(X_lens, X.size(1)).unsqueeze(2)  # (B, T, 1)
        return ((self._by_utterance(X, X_lens) - self.mean) / self.std).masked_fill(padding, 0)

    @torch.no_grad()
    def fit(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Compute mean and standard deviation over all real frames of (X, X_lens) batches, summed in float64."""
        frames = 0
        total, squares = torch.zeros(
            2, *self.mean.shape, dtype=torch.double, device=self.mean.device
        )
        for X, X_lens in batches:
            real = ~length_mask(X_lens, X.size(1))  # (B, T)
            Z = self._by_utterance(X, X_lens)[real].double()  # (frames, F)
            frames, total, squares = frames + len(Z), total + Z.sum(0), squares + Z.square().sum(0)
        mean = total / frames  # (F,)
        self.mean.copy_(mean)
        self.std.copy_((squares / frames - mean.square()).clamp(min=1e-10).sqrt())

    def _by_utterance(self, X: Tensor, X_lens: Tensor) -> Tensor:
        """Normalize each utterance by its own statistics, as `kind` requires: (B, T, F)."""
        if self.kind == "global":
            return X
        padding = length_mask(X_lens, X.size(1)).unsqueeze(2)  # (B, T, 1)
        lens = X_lens.clamp(min=1).view(-1, 1, 1)
        X = X.masked_fill(padding, 0)
        X = (X - X.sum(1, keepdim=True) / lens).masked_fill(padding, 0)  # (B, T, F)
        if self.kind == "utterance_mean":
            return X
        return X / (X.square().sum(1, keepdim=True) / lens + FLOOR).sqrt()
