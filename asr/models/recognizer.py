"""A recogniser: frontend, model and tokenizer in one; and loading it from its folder."""

from pathlib import Path

import torch
from torch import Tensor, nn

from asr.config import Settings
from asr.errors import UserError
from asr.features.frontend import Frontend, FrontendSettings
from asr.models import folder as folders
from asr.models.folder import WEIGHTS, load_weights, save_weights
from asr.models.hybrid import Hybrid, HybridSettings
from asr.models.loss import Loss
from asr.text import tokenizer as tokenizers
from asr.text.tokenizer import Tokenizer


class RecognizerSettings(Settings):
    """What identifies a model: its features and its sizes."""

    features: FrontendSettings
    model: HybridSettings


class Recognizer(nn.Module):
    """Waveforms in: features, encoder, CTC and decoder behind one door."""

    def __init__(self, features: FrontendSettings, model: HybridSettings, tokenizer: Tokenizer):
        super().__init__()
        self.frontend = Frontend(features)
        try:
            self.model = Hybrid(model, self.frontend.fbank.mels, tokenizer.vocabulary)
        except ValueError as error:  # sizes possible each for itself, but not together
            raise UserError(f"features.fbank and model: {error}") from None
        if self.model.consistency and self.frontend.specaugment is None:
            raise UserError("model.consistency: got no features.specaugment, expected one: the two views are its masks")
        self.tokenizer = tokenizer

    @property
    def sample_rate(self) -> int:
        """Of the waveforms, Hz."""
        return self.frontend.fbank.sample_rate

    def loss(
        self,
        waveforms: Tensor,
        wave_lens: Tensor,
        Y: Tensor,
        Y_lens: Tensor,
        seeds: Tensor | None = None,
        masked: bool = True,
        flat: bool = False,
    ) -> Loss:
        """Loss of a padded batch: waveforms (B, S), labels Y (B, U) padded with -1.

        seeds (B,) augment it in training mode, by SpecAugment too if masked: then a consistency loss has its two views;
        flat gives CTC equal alignments, as in `Hybrid.loss`
        """
        if self.model.consistency and self.training and masked and seeds is not None:
            return self.model.loss(*self.frontend.two_views(waveforms, wave_lens, seeds), Y, Y_lens, views=2, flat=flat)
        X, X_lens = self.frontend(waveforms, wave_lens, seeds, masked)  # (B, T, F)
        return self.model.loss(X, X_lens, Y, Y_lens, flat=flat)

    def encode(self, waveforms: Tensor, wave_lens: Tensor) -> tuple[Tensor, Tensor]:
        """Waveforms (B, S) → H (B, T', D), H_lens (B,)"""
        return self.model.encode(*self.frontend(waveforms, wave_lens))

    def encoder_frames(self, samples: int) -> int:
        """Encoder frames T' of a waveform of so many samples; 0 if it is too short."""
        return self.model.encoder.subsampling.lengths(max(0, self.frontend.fbank.lengths(samples)))

    @property
    def shortest_samples(self) -> int:
        """Samples of the shortest waveform that makes one encoder frame."""
        fbank = self.frontend.fbank
        return (self.model.encoder.subsampling.shortest - 1) * fbank.shift_samples + fbank.frame_samples

    def save(self, folder: str | Path, config: str) -> None:
        """Write the model folder; `config` is the YAML text of the full experiment."""
        folders.describe(folder, config, self.tokenizer)
        save_weights(self, Path(folder) / WEIGHTS)


def load(folder: str | Path, device: torch.device | str = "cpu") -> Recognizer:
    """Load a model folder, in evaluation mode.

    raises   UserError if a file is missing or damaged; names it; or if the folder holds a language model
    """
    settings = folders.read_settings(folder, RecognizerSettings, "hybrid")
    recognizer = Recognizer(settings.features, settings.model, tokenizers.load(folder))
    load_weights(recognizer, Path(folder) / WEIGHTS)
    return recognizer.to(device).eval()
