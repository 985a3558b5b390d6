"""The feature-extraction frontend: waveforms, lengths → X, X_lens."""

import torch
from torch import Tensor, nn

from asr.config import Settings
from asr.features.cmvn import CMVN, CMVNKind
from asr.features.fbank import Fbank, FbankSettings
from asr.features.noise import another
from asr.features.specaugment import SpecAugment, SpecAugmentSettings


class FrontendSettings(Settings):
    """Features of the experiment."""

    fbank: FbankSettings
    cmvn: CMVNKind = "global"  # utterance_mean, utterance: its own mean, and deviation, go first
    specaugment: SpecAugmentSettings | None = None


class Frontend(nn.Module):
    """Fbank, CMVN and, in training, SpecAugment."""

    def __init__(self, settings: FrontendSettings):
        super().__init__()
        self.fbank = Fbank(**settings.fbank.model_dump())
        self.cmvn = CMVN(self.fbank.mels, settings.cmvn)
        self.specaugment = SpecAugment(**settings.specaugment.model_dump()) if settings.specaugment else None

    def forward(
        self, waveforms: Tensor, lens: Tensor, seeds: Tensor | None = None, masked: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Compute features.

        waveforms:  (B, S) float in [-1, 1], lens (B,) samples
        seeds:      (B,) int64, one an utterance; with them and in training mode the features are augmented
        masked:     False leaves SpecAugment out
        returns     X (B, T, F), exact zeros beyond X_lens, and X_lens (B,)
        """
        X, X_lens = self.fbank(waveforms, lens, seeds)  # (B, T, F)
        X = self.cmvn(X, X_lens)  # (B, T, F)
        if self.specaugment is not None and seeds is not None and masked:
            X = self.specaugment(X, X_lens, seeds)  # (B, T, F)
        return X, X_lens

    def two_views(self, waveforms: Tensor, lens: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor]:
        """Compute features once, warp their time once, and mask them twice, independently of each other.

        Frames of the two then stand for the same time ("CR-CTC", Yao et al. 2025).

        waveforms:  (B, S), lens (B,), seeds (B,), as of `forward`
        returns     X (2B, T, F), the first view of all, which is `forward`'s, and then the second; X_lens (2B,)
        """
        X, X_lens = self.fbank(waveforms, lens, seeds)  # (B, T, F)
        X = self.specaugment.warp(self.cmvn(X, X_lens), X_lens, seeds)  # (B, T, F)
        X, X_lens, seeds = X.repeat(2, 1, 1), X_lens.repeat(2), torch.cat([seeds, another(seeds)])
        return self.specaugment.mask(X, X_lens, seeds), X_lens  # (2B, T, F)
