"""SpecAugment: time warping, masks over time and frequency (Park et al. 2019, 2020), seeded by utterance.

B batch, T frames, F features, M masks.
"""

import torch
from pydantic import Field
from torch import Tensor, nn

from asr.config import Settings
from asr.ops import length_mask, span_mask
from asr.seeding import uniforms


class SpecAugmentSettings(Settings):
    """How far time is warped, and the number and greatest width of masks."""

    time_warp: int = Field(0, ge=0)  # most frames that a point is moved by; 0 = none
    freq_masks: int = Field(2, ge=0)
    freq_width: int = Field(27, ge=0)  # bins
    time_masks: int = Field(5, ge=0)
    # masks per frame, at most time_masks; None = time_masks
    time_multiplicity: float | None = Field(None, gt=0, le=1)
    time_width: int = Field(100, ge=0)  # frames
    time_ratio: float = Field(0.05, ge=0, le=1)  # greatest share of the utterance per mask
    # earlier epochs go without, so that CTC finds alignments on little data
    from_epoch: int = Field(0, ge=0)


class SpecAugment(nn.Module):
    """Warp time, then replace bands of frequency and spans of time by 0, the mean after CMVN; in training mode only.

    Widths are uniform in 0..width, positions uniform where the mask fits. A time mask covers at
    most time_ratio of its utterance. With time_multiplicity an utterance of T frames has
    floor(time_multiplicity T) time masks, but at most time_masks ("SpecAugment on Large Scale
    Datasets", Park et al. 2020: 0.04 and 20, with time_ratio 0.04 and no other limit of the width).
    All numbers come from the utterance's seed, so they don't depend on its batch; padding stays.
    """

    def __init__(self, settings: SpecAugmentSettings):
        super().__init__()
        s = settings
        self.freq_masks, self.freq_width, self.from_epoch = s.freq_masks, s.freq_width, s.from_epoch
        self.time_masks, self.time_width, self.time_ratio = s.time_masks, s.time_width, s.time_ratio
        self.time_warp, self.time_multiplicity = s.time_warp, s.time_multiplicity

    def forward(self, X: Tensor, X_lens: Tensor, seeds: Tensor) -> Tensor:
        """X (B, T, F), X_lens (B,), seeds (B,) int64 → a new tensor (B, T, F)."""
        if not self.training:
            return X
        return self.mask(self.warp(X, X_lens, seeds), X_lens, seeds)  # (B, T, F)

    def warp(self, X: Tensor, X_lens: Tensor, seeds: Tensor) -> Tensor:
        """Warp time like `forward`, in any mode: X (B, T, F) → (B, T, F)."""
        if not self.time_warp:
            return X
        masks = 2 * (self.freq_masks + self.time_masks)
        return time_warp(
            X, X_lens, self.time_warp, uniforms(seeds, masks + 2)[:, masks:]
        )  # (B, T, F)

    def mask(self, X: Tensor, X_lens: Tensor, seeds: Tensor) -> Tensor:
        """Mask frequency and time like `forward`, in any mode: X (B, T, F) → a new tensor (B, T, F)."""
        B, T, F = X.shape
        M = self.freq_masks + self.time_masks
        masks = uniforms(seeds, 2 * M).view(B, 2, M)  # (B, 2, M)
        bins = torch.full_like(X_lens, F)
        freq = spans(
            masks[..., : self.freq_masks], bins, bins.clamp(max=self.freq_width), F
        )  # (B, F)
        widest = (X_lens * self.time_ratio).long().clamp(max=self.time_width)  # (B,)
        time = spans(
            masks[..., self.freq_masks :], X_lens, widest, T, self._time_masks(X_lens)
        )  # (B, T)
        padding = length_mask(X_lens, T).unsqueeze(2)  # (B, T, 1)
        return X.masked_fill((freq.unsqueeze(1) | time.unsqueeze(2)).masked_fill(padding, False), 0)

    def _time_masks(self, X_lens: Tensor) -> Tensor | None:
        """Count the time masks of each utterance; None = all."""
        return None if self.time_multiplicity is None else (X_lens * self.time_multiplicity).long()


def time_warp(X: Tensor, X_lens: Tensor, W: int, u: Tensor) -> Tensor:
    """Move a random point of each utterance's time by up to W frames, stretching what is before and after it.

    X:       (B, T, F); X_lens (B,) int64
    W:       greatest distance, in frames
    u:       (B, 2) uniform numbers: for the point and for the distance
    returns  a new tensor (B, T, F). With the point c, W < c < last - W, moved to d, frame t becomes
             the old frame t c / d up to d, then c + (t - d) (last - c) / (last - d): linear between
             two frames. The first and the last frame, the lengths and the padding stay, and so does
             an utterance of fewer than 2 W + 3 frames, which has no c

    lhotse and ESPnet draw points the same way and interpolate with cubics; Park et al. (2019) warp
    with a spline.
    """
    last = (X_lens - 1).unsqueeze(1)  # (B, 1)
    room = last - 2 * W - 1  # (B, 1), number of possible points
    c = W + 1 + (u[:, :1] * room.clamp(min=1)).long()  # (B, 1)
    d = c - W + (u[:, 1:] * (2 * W + 1)).long()  # (B, 1)
    t = torch.arange(X.size(1), device=X.device)  # (T,)
    before = t <= d  # (B, T)
    past = torch.where(
        before, t * c, (t - d) * (last - c)
    )  # (B, T), frames of the source, times `slope`
    slope = torch.where(before, d, last - d).clamp(min=1)  # (B, T)
    source = torch.where(before, 0, c) + past // slope  # (B, T), the frame at or before
    share = (past % slope) / slope  # (B, T), weight of the next frame
    still = (room < 1) | (t >= last)  # (B, T)
    source, share = torch.where(still, t, source), share.masked_fill(still, 0)
    rows = torch.arange(len(X), device=X.device).unsqueeze(1)  # (B, 1)
    behind = (source + 1).clamp(max=X.size(1) - 1)  # (B, T)
    return torch.lerp(X[rows, source], X[rows, behind], share.to(X.dtype).unsqueeze(2))  # (B, T, F)


def spans(
    u: Tensor, lens: Tensor, widest: Tensor, size: int, count: Tensor | None = None
) -> Tensor:
    """Draw the union of M random spans for each row.

    u:       (B, 2, M) uniform numbers: for widths and for positions
    lens:    (B,) int, the spans lie within 0..lens
    widest:  (B,) int, greatest width
    count:   (B,) int, number of spans of each row, at most M; None = all
    returns  (B, size) bool, True within a span
    """
    width = (u[:, 0] * (widest + 1).unsqueeze(1)).long()  # (B, M)
    if count is not None:
        width = width * (torch.arange(width.size(1), device=u.device) < count.unsqueeze(1))
    start = (u[:, 1] * (lens.unsqueeze(1) - width + 1)).long()  # (B, M)
    return span_mask(start, width, size)
