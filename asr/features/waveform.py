"""Samples as features, for encoders that read them: X (B, S, 1), each utterance on its own scale.

B batch, S samples.
"""

import torch
from pydantic import Field
from torch import Tensor, nn

from asr.config import Settings
from asr.ops import length_mask

FLOOR = 1e-7  # of the variance, as transformers' Wav2Vec2FeatureExtractor has it


class WaveformSettings(Settings):
    """Sample rate of the model, and whether each utterance has mean 0 and variance 1."""

    sample_rate: int = Field(ge=1000, le=400_000)  # Hz
    # None: as the feature extractor's settings in the encoder's source say; training writes it here
    normalize: bool | None = None


class Waveform(nn.Module):
    """Waveforms and lengths → samples as frames of one feature, with the interface of `Fbank`.

    sample_rate:  Hz
    normalize:    whether to subtract the mean of an utterance's own samples, and divide by their
                  deviation
    """

    features = 1
    frame_samples = shift_samples = 1

    def __init__(self, sample_rate: int, normalize: bool | None = None):
        super().__init__()
        self.sample_rate, self.normalize = sample_rate, bool(normalize)

    def forward(
        self, waveforms: Tensor, lens: Tensor, seeds: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Put each utterance on its scale, in float32 even under autocast; sums are in float64.

        waveforms:  (B, S) float in [-1, 1]; anything beyond lens is never read
        lens:       (B,) int, samples
        returns     X (B, S, 1), exact zeros beyond the lengths, and lens (B,)
        """
        padding = length_mask(lens, waveforms.size(1))  # (B, S)
        X = waveforms.float().masked_fill(padding, 0)  # (B, S)
        if self.normalize:
            count = lens.clamp(min=1).unsqueeze(1)  # (B, 1)
            mean = X.sum(1, keepdim=True, dtype=torch.double) / count  # (B, 1)
            X = (X - mean).masked_fill(padding, 0)  # (B, S)
            variance = X.square().sum(1, keepdim=True) / count  # (B, 1)
            X = (X / (variance + FLOOR).sqrt()).float()
        return X.unsqueeze(2), lens

    def is_like(self, other: nn.Module) -> bool:
        """Whether another extractor gives the same features."""
        facts = self.sample_rate, self.normalize
        return isinstance(other, Waveform) and facts == (other.sample_rate, other.normalize)

    def lengths(self, samples):
        """The same number, an int or (B,) int tensor."""
        return samples
