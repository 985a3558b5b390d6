"""SpecAugment: time warping, masks over time and frequency (Park et al. 2019, 2020), seeded by utterance.

B batch, T frames, F features, M masks.
"""

import torch
from pydantic import Field
from torch import Tensor, nn

from asr.config import Settings
from asr.features.noise import uniforms
from asr.nn.masks import length_mask


class SpecAugmentSettings(Settings):
    """How far time is warped, how many masks there are, and how wide they are at most."""

    time_warp: int = Field(0, ge=0)  # frames that a point is moved by at most; 0 = none
    freq_masks: int = Field(2, ge=0)
    freq_width: int = Field(27, ge=0)  # bins
    time_masks: int = Field(5, ge=0)
    time_multiplicity: float | None = Field(None, gt=0, le=1)  # masks a frame, at most time_masks; None = time_masks
    time_width: int = Field(100, ge=0)  # frames
    time_ratio: float = Field(0.05, ge=0, le=1)  # of the utterance, at most, a mask


class SpecAugment(nn.Module):
    """Warp time, then replace bands of frequency and spans of time by 0, the mean after CMVN; in training mode only.

    Widths are uniform in 0..width, positions uniform where the mask fits; a time mask is at most time_ratio of its
    utterance. With time_multiplicity an utterance of T frames has floor(time_multiplicity T) time masks, time_masks at
    most ("SpecAugment on Large Scale Datasets", Park et al. 2020: 0.04 and 20, with time_ratio 0.04 and no other bound
    of the width). All numbers come from the utterance's seed, so they don't depend on its batch; padding stays.
    """

    def __init__(
        self,
        freq_masks: int,
        freq_width: int,
        time_masks: int,
        time_width: int,
        time_ratio: float,
        time_warp: int = 0,
        time_multiplicity: float | None = None,
    ):
        super().__init__()
        self.freq_masks, self.freq_width = freq_masks, freq_width
        self.time_masks, self.time_width, self.time_ratio = time_masks, time_width, time_ratio
        self.time_warp, self.time_multiplicity = time_warp, time_multiplicity

    def forward(self, X: Tensor, X_lens: Tensor, seeds: Tensor) -> Tensor:
        """X (B, T, F), X_lens (B,), seeds (B,) int64 → a new tensor (B, T, F)."""
        if not self.training:
            return X
        return self.mask(self.warp(X, X_lens, seeds), X_lens, seeds)  # (B, T, F)

    def warp(self, X: Tensor, X_lens: Tensor, seeds: Tensor) -> Tensor:
        """Warp time, as `forward` does, in any mode: X (B, T, F) → (B, T, F)."""
        if not self.time_warp:
            return X
        masks = 2 * (self.freq_masks + self.time_masks)
        return time_warp(X, X_lens, self.time_warp, uniforms(seeds, masks + 2)[:, masks:])  # (B, T, F)

    def mask(self, X: Tensor, X_lens: Tensor, seeds: Tensor) -> Tensor:
        """Mask frequency and time, as `forward` does, in any mode: X (B, T, F) → a new tensor (B, T, F)."""
        B, T, F = X.shape
        M = self.freq_masks + self.time_masks
        masks = uniforms(seeds, 2 * M).view(B, 2, M)  # (B, 2, M)
        bins = torch.full_like(X_lens, F)
        freq = spans(masks[..., : self.freq_masks], bins, bins.clamp(max=self.freq_width), F)  # (B, F)
        widest = (X_lens * self.time_ratio).long().clamp(max=self.time_width)  # (B,)
        time = spans(masks[..., self.freq_masks :], X_lens, widest, T, self._time_masks(X_lens))  # (B, T)
        padding = length_mask(X_lens, T).unsqueeze(2)  # (B, T, 1)
        return X.masked_fill((freq.unsqueeze(1) | time.unsqueeze(2)).masked_fill(padding, False), 0)

    def _time_masks(self, X_lens: Tensor) -> Tensor | None:
        """How many of the time masks each utterance has; None = all."""
        return None if self.time_multiplicity is None else (X_lens * self.time_multiplicity).long()


def time_warp(X: Tensor, X_lens: Tensor, W: int, u: Tensor) -> Tensor:
    """Move a random point of each utterance's time by up to W frames; what is before and behind it is stretched.

    X:       (B, T, F); X_lens (B,) int64
    W:       frames, greatest distance
    u:       (B, 2) uniform numbers: for the point and for the distance
    returns  a new tensor (B, T, F). With the point c, W < c < last - W, moved to d, frame t is frame t c / d of before
             up to d, then c + (t - d) (last - c) / (last - d): linear between two frames. The first and the last frame,
             the lengths and the padding stay, and so does an utterance of less than 2 W + 3 frames, which has no c

    lhotse and ESPnet draw the points alike and interpolate by cubics; Park et al. (2019) warp by a spline.
    """
    last = (X_lens - 1).unsqueeze(1)  # (B, 1)
    room = last - 2 * W - 1  # (B, 1), how many points there are
    c = W + 1 + (u[:, :1] * room.clamp(min=1)).long()  # (B, 1)
    d = c - W + (u[:, 1:] * (2 * W + 1)).long()  # (B, 1)
    t = torch.arange(X.size(1), device=X.device)  # (T,)
    before = t <= d  # (B, T)
    past = torch.where(before, t * c, (t - d) * (last - c))  # (B, T), frames of the source, times `slope`
    slope = torch.where(before, d, last - d).clamp(min=1)  # (B, T)
    source = torch.where(before, 0, c) + past // slope  # (B, T), the frame at or before
    share = (past % slope) / slope  # (B, T), of the frame behind
    still = (room < 1) | (t >= last)  # (B, T)
    source, share = torch.where(still, t, source), share.masked_fill(still, 0)
    rows = torch.arange(len(X), device=X.device).unsqueeze(1)  # (B, 1)
    behind = (source + 1).clamp(max=X.size(1) - 1)  # (B, T)
    return torch.lerp(X[rows, source], X[rows, behind], share.to(X.dtype).unsqueeze(2))  # (B, T, F)


def spans(u: Tensor, lens: Tensor, widest: Tensor, size: int, count: Tensor | None = None) -> Tensor:
    """Union of M random spans of each row.

    u:       (B, 2, M) uniform numbers: for widths and for positions
    lens:    (B,) int, the spans lie within 0..lens
    widest:  (B,) int, greatest width
    count:   (B,) int, how many of the M each row has; None = all
    returns  (B, size) bool, True within a span
    """
    width = (u[:, 0] * (widest + 1).unsqueeze(1)).long()  # (B, M)
    if count is not None:
        width = width * (torch.arange(width.size(1), device=u.device) < count.unsqueeze(1))
    start = (u[:, 1] * (lens.unsqueeze(1) - width + 1)).long().unsqueeze(2)  # (B, M, 1)
    position = torch.arange(size, device=u.device)
    return ((position >= start) & (position < start + width.unsqueeze(2))).any(1)
