"""Cepstral mean and variance normalisation with the training set's statistics, and with the utterance's own mean."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from asr.nn.masks import length_mask


class CMVN(nn.Module):
    """(X - mean) / std of each feature bin; the statistics are part of the model's weights.

    per_utterance:  each utterance's own mean is taken away first, as Kaldi's `apply-cmvn` does by default: what a
                    microphone or a room colours all along goes with it, and so does the level
    """

    def __init__(self, features: int, per_utterance: bool = False):
        super().__init__()
        self.per_utterance = per_utterance
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("std", torch.ones(features))

    def forward(self, X: Tensor, X_lens: Tensor) -> Tensor:
        """X (B, T, F), X_lens (B,) → (B, T, F), exact zeros beyond X_lens."""
        padding = length_mask(X_lens, X.size(1)).unsqueeze(2)  # (B, T, 1)
        return ((self._centred(X, X_lens) - self.mean) / self.std).masked_fill(padding, 0)

    @torch.no_grad()
    def fit(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Take mean and standard deviation over all real frames of (X, X_lens) batches, summed in float64."""
        frames, total, squares = 0, 0.0, 0.0
        for X, X_lens in batches:
            real = self._centred(X, X_lens)[~length_mask(X_lens, X.size(1))].double()  # (frames, F)
            frames, total, squares = frames + len(real), total + real.sum(0), squares + real.square().sum(0)
        mean = total / frames  # (F,)
        self.mean.copy_(mean)
        self.std.copy_((squares / frames - mean.square()).clamp(min=1e-10).sqrt())

    def _centred(self, X: Tensor, X_lens: Tensor) -> Tensor:
        """Without each utterance's mean, if it is asked for; X (B, T, F)."""
        if not self.per_utterance:
            return X
        real = X.masked_fill(length_mask(X_lens, X.size(1)).unsqueeze(2), 0)  # (B, T, F)
        return X - real.sum(1, keepdim=True) / X_lens.clamp(min=1).view(-1, 1, 1)
