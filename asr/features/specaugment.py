"""SpecAugment: masks over time and frequency (Park et al. 2019), seeded by utterance.

B batch, T frames, F features, M masks.
"""

import torch
from pydantic import Field
from torch import Tensor, nn

from asr.config import Settings
from asr.features.noise import uniforms
from asr.nn.masks import length_mask


class SpecAugmentSettings(Settings):
    """How many masks, and how wide they are at most."""

    freq_masks: int = Field(2, ge=0)
    freq_width: int = Field(27, ge=0)  # bins
    time_masks: int = Field(5, ge=0)
    time_width: int = Field(100, ge=0)  # frames
    time_ratio: float = Field(0.05, ge=0, le=1)  # of the utterance, at most, a mask


class SpecAugment(nn.Module):
    """Replace bands of frequency and spans of time by 0, the mean after CMVN; in training mode only.

    Widths are uniform in 0..width, positions uniform where the mask fits; a time mask is at most time_ratio of its
    utterance. All numbers come from the utterance's seed, so they don't depend on its batch; padding stays as it is.
    """

    def __init__(self, freq_masks: int, freq_width: int, time_masks: int, time_width: int, time_ratio: float):
        super().__init__()
        self.freq_masks, self.freq_width = freq_masks, freq_width
        self.time_masks, self.time_width, self.time_ratio = time_masks, time_width, time_ratio

    def forward(self, X: Tensor, X_lens: Tensor, seeds: Tensor) -> Tensor:
        """X (B, T, F), X_lens (B,), seeds (B,) int64 → a new tensor (B, T, F)."""
        if not self.training:
            return X
        B, T, F = X.shape
        u = uniforms(seeds, 2 * (self.freq_masks + self.time_masks)).view(B, 2, -1)  # (B, 2, M)
        bins = torch.full_like(X_lens, F)
        freq = spans(u[..., : self.freq_masks], bins, bins.clamp(max=self.freq_width), F)  # (B, F)
        widest = (X_lens * self.time_ratio).long().clamp(max=self.time_width)  # (B,)
        time = spans(u[..., self.freq_masks :], X_lens, widest, T)  # (B, T)
        padding = length_mask(X_lens, T).unsqueeze(2)  # (B, T, 1)
        return X.masked_fill((freq.unsqueeze(1) | time.unsqueeze(2)).masked_fill(padding, False), 0)


def spans(u: Tensor, lens: Tensor, widest: Tensor, size: int) -> Tensor:
    """Union of M random spans of each row.

    u:       (B, 2, M) uniform numbers: for widths and for positions
    lens:    (B,) int, the spans lie within 0..lens
    widest:  (B,) int, greatest width
    returns  (B, size) bool, True within a span
    """
    width = (u[:, 0] * (widest + 1).unsqueeze(1)).long()  # (B, M)
    start = (u[:, 1] * (lens.unsqueeze(1) - width + 1)).long().unsqueeze(2)  # (B, M, 1)
    position = torch.arange(size, device=u.device)
    return ((position >= start) & (position < start + width.unsqueeze(2))).any(1)
