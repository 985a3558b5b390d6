"""The feature-extraction frontend: waveforms, lengths → X, X_lens."""

import math

import torch
from torch import Tensor, nn

from asr.config import Settings
from asr.features.cmvn import CMVN, CMVNKind
from asr.features.fbank import Fbank, FbankSettings
from asr.features.specaugment import SpecAugment, SpecAugmentSettings
from asr.seeding import another


class FrontendSettings(Settings):
    """The features of an experiment."""

    fbank: FbankSettings
    # utterance_mean, utterance: first normalize each utterance by its own mean, and deviation
    cmvn: CMVNKind = "global"
    specaugment: SpecAugmentSettings | None = None


class Frontend(nn.Module):
    """Fbank, CMVN and, in training, SpecAugment."""

    def __init__(self, settings: FrontendSettings):
        super().__init__()
        self.fbank = Fbank(**settings.fbank.model_dump())
        self.cmvn = CMVN(self.fbank.mels, settings.cmvn)
        self.specaugment = SpecAugment(settings.specaugment) if settings.specaugment else None

    def forward(
        self,
        waveforms: Tensor,
        lens: Tensor,
        seeds: Tensor | None = None,
        epoch: float = math.inf,
        views: int = 1,
    ) -> tuple[Tensor, Tensor]:
        """Compute features; with seeds and in training mode, augment them from SpecAugment's first epoch on.

        waveforms:  (B, S) float in [-1, 1], lens (B,) samples
        seeds:      (B,) int64, one per utterance
        epoch:      of the training, from 0; by default a late one
        views:      2 makes, if features are augmented, two views of each utterance: time is warped
                    once, then masked twice, so that frames of both mean the same time ("CR-CTC",
                    Yao et al. 2025)
        returns     X (B, T, F), exact zeros beyond X_lens, and X_lens (B,); for two views X (2B, T,
                    F): all first ones, which equal a single view, then all second ones
        """
        X, X_lens = self.fbank(waveforms, lens, seeds)  # (B, T, F)
        X = self.cmvn(X, X_lens)  # (B, T, F)
        augment = self.specaugment
        if augment is None or seeds is None or not self.training or epoch < augment.from_epoch:
            return X, X_lens
        X = augment.warp(X, X_lens, seeds)  # (B, T, F)
        if views == 2:
            X, X_lens, seeds = (
                X.repeat(2, 1, 1),
                X_lens.repeat(2),
                torch.cat([seeds, another(seeds)]),
            )
        return augment.mask(X, X_lens, seeds), X_lens  # (B or 2B, T, F)
