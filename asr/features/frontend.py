"""The feature-extraction frontend: waveforms, lengths → X, X_lens."""

import math

import torch
from pydantic import model_validator
from torch import Tensor, nn

from asr.config import Settings
from asr.features.cmvn import CMVN, CMVNKind
from asr.features.fbank import Fbank, FbankSettings
from asr.features.specaugment import SpecAugment, SpecAugmentSettings
from asr.features.waveform import Waveform, WaveformSettings
from asr.seeding import another


class FrontendSettings(Settings):
    """The features of an experiment: `fbank`, or `waveform` for an encoder that reads samples."""

    fbank: FbankSettings | None = None
    waveform: WaveformSettings | None = None
    # utterance_mean, utterance: first normalize each utterance by its own mean, and deviation
    cmvn: CMVNKind = "global"
    specaugment: SpecAugmentSettings | None = None

    @model_validator(mode="after")
    def _fbank_or_waveform(self):
        if (self.fbank is None) == (self.waveform is None):
            got = "neither fbank nor waveform" if self.fbank is None else "fbank and waveform"
            raise ValueError(f"got {got}, expected one of them")
        if self.waveform and self.specaugment:
            raise ValueError(
                "specaugment: masks features, and waveform has none; leave it out, and give encoder.mask"
            )
        if self.waveform and self.cmvn != "global":
            raise ValueError("cmvn: normalizes features, and waveform has none; leave it out")
        return self


class Frontend(nn.Module):
    """Fbank, CMVN and, in training, SpecAugment; or the waveform itself, without them.

    extractor:  waveforms and lengths → X and X_lens
    cmvn:       None of waveforms
    """

    def __init__(self, settings: FrontendSettings):
        super().__init__()
        self.extractor: Fbank | Waveform
        self.cmvn: CMVN | None = None
        if settings.waveform:
            self.extractor = Waveform(**settings.waveform.model_dump())
        elif settings.fbank:
            self.extractor = Fbank(**settings.fbank.model_dump())
            self.cmvn = CMVN(self.extractor.features, settings.cmvn)
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
        X, X_lens = self.extractor(waveforms, lens, seeds)  # (B, T, F)
        if self.cmvn:
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
