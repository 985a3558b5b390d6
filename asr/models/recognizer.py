"""A recognizer: frontend, model and tokenizer in one; and loading it from its folder."""

import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import asr
from asr import confidence
from asr.confidence import Calibration
from asr.config import Settings
from asr.errors import UserError
from asr.features.frontend import Frontend, FrontendSettings
from asr.model_files import FAR
from asr.models import boundaries
from asr.models import folder as folders
from asr.models.boundaries import Boundaries
from asr.models.folder import WEIGHTS, save_weights
from asr.models.hybrid import Hybrid, HybridSettings
from asr.models.loss import Loss
from asr.models.stage import LATE, Stage
from asr.nn.encoder import WHOLE
from asr.text import tokenizer as tokenizers
from asr.text.tokenizer import Tokenizer
from asr.transcript import Transcript


class RecognizerSettings(Settings):
    """What identifies a model: its features and its sizes."""

    features: FrontendSettings
    model: HybridSettings


class Recognizer(nn.Module):
    """Waveforms in: features, encoder, CTC and decoder behind one door."""

    Settings = RecognizerSettings

    def __init__(self, features: FrontendSettings, model: HybridSettings, tokenizer: Tokenizer):
        super().__init__()
        self.frontend = Frontend(features)
        try:
            self.model = Hybrid(model, self.frontend.extractor.features, tokenizer.vocabulary)
        except ValueError as error:  # sizes possible each for itself, but not together
            kind = "waveform" if features.waveform else "fbank"
            raise UserError(f"features.{kind} and model: {error}") from None
        if self.model.views == 2 and self.frontend.specaugment is None:
            raise UserError(
                "model.consistency: got no features.specaugment, expected one: the two views are its masks"
            )
        self.tokenizer = tokenizer
        self.calibration: Calibration | None = None  # of its confidences
        # seconds of the longest recording of its training, as far as known; less if the encoder can't take FAR times it
        self.longest = math.inf
        self.edges = 0.0  # seconds of silence at an end of its training's recordings, the median
        self.boundaries: Boundaries | None = None  # of words, if it has learned them

    @property
    def sample_rate(self) -> int:
        """Of the waveforms, Hz."""
        return self.frontend.extractor.sample_rate

    def loss(
        self,
        waveforms: Tensor,
        wave_lens: Tensor,
        Y: Tensor,
        Y_lens: Tensor,
        seeds: Tensor | None = None,
        stage: Stage = LATE,
        on_cpu: tuple[Tensor, Tensor] | None = None,
    ) -> Loss:
        """Loss of a padded batch: waveforms (B, S), labels Y (B, U) padded with -1.

        seeds (B,) augment it and draw the encoder's chunks in training mode, as is due at
        that stage of the training, a late one unless given;
        on_cpu: wave_lens and Y_lens there, so that a GPU needn't be waited for
        """
        X, X_lens = self.frontend(
            waveforms, wave_lens, seeds, stage.epoch, self.model.views
        )  # (B or 2B, T, F)
        if on_cpu:
            subsampling, extractor = self.model.encoder.subsampling, self.frontend.extractor
            on_cpu = subsampling.lengths(extractor.lengths(on_cpu[0])), on_cpu[1]
        return self.model.loss(X, X_lens, Y, Y_lens, stage, on_cpu, seeds)

    def chunk_frames(self, chunk: float | str) -> int:
        """Find the encoder's chunk of a length in seconds, or "whole": in encoder frames.

        raises   UserError if the encoder wasn't trained with it; lists the lengths that it was
        """
        chunks, frame = self.model.encoder.chunk, self.frame_seconds
        if chunks is None:
            raise UserError(
                f"got {chunk}, but the model has no chunks (model.encoder.chunk); leave it away",
                argument="chunk",
            )
        known = {"whole" if n == WHOLE else f"{n * frame:g}": n for n in sorted(chunks.sizes)}
        with suppress(ValueError):
            chunk = f"{float(chunk):g}"
        if chunk not in known:
            raise UserError(
                f"got {chunk}, expected what the model was trained with: {', '.join(known)} (s)",
                argument="chunk",
            )
        return known[str(chunk)]

    def encode(self, waveforms: Tensor, wave_lens: Tensor) -> tuple[Tensor, Tensor]:
        """Waveforms (B, S) → H (B, T', D), H_lens (B,)"""
        encoded = self.model.encoder(*self.frontend(waveforms, wave_lens))
        return encoded.H, encoded.H_lens

    def transcribe(
        self,
        audio: str | os.PathLike[str] | np.ndarray | Tensor,
        sample_rate: int | None = None,
        **options: Any,
    ) -> Transcript:
        """Transcribe one recording, a sound file or its samples; see `asr.transcribe`."""
        return asr.transcribe(self, audio, sample_rate, **options)

    def encoder_frames(self, samples: int) -> int:
        """Count the encoder frames T' of a waveform of `samples` samples; 0 if it is too short."""
        frames = self.frontend.extractor.lengths(samples)
        return self.model.encoder.subsampling.lengths(max(0, frames))

    @property
    def has_times(self) -> bool:
        """Whether CTC, which tells the times of tokens, was trained."""
        return self.model.ctc_weight > 0

    @property
    def frame_seconds(self) -> float:
        """Seconds from one encoder frame to the next."""
        extractor, subsampling = self.frontend.extractor, self.model.encoder.subsampling
        return (
            (subsampling.frames(2) - subsampling.frames(1))
            * extractor.shift_samples
            / extractor.sample_rate
        )

    @property
    def shortest_samples(self) -> int:
        """Samples of the shortest waveform that makes one encoder frame."""
        extractor = self.frontend.extractor
        return (
            self.model.encoder.subsampling.shortest - 1
        ) * extractor.shift_samples + extractor.frame_samples

    @property
    def most_samples(self) -> int | None:
        """Samples of the longest waveform that the encoder can take; None for any length."""
        return self.model.encoder.most_samples

    def unlike(self, other: "Recognizer", folder: str) -> tuple[bool, list[str]]:
        """Compare what makes the features with that of a model, of a folder, whose weights this one is to take.

        returns   whether the statistics have to be taken anew, and what a person should know
        """
        own, its = self.frontend, other.frontend
        name = "fbank" if own.cmvn else "waveform"
        notes = [
            f"features.{name} differs from that of {folder}, which its weights and statistics expect"
        ] * (not own.extractor.is_like(its.extractor))
        if not own.cmvn or not its.cmvn or own.cmvn.kind == its.cmvn.kind:
            return False, notes
        notes.append(
            f"features.cmvn is {own.cmvn.kind!r}, that of {folder} {its.cmvn.kind!r}: its statistics are taken anew"
        )
        return True, notes

    def describe(self, folder: str | Path, config: str) -> None:
        """Write all of the model folder but the weights; `config` is the YAML text of the full experiment."""
        folders.describe(folder, config, self.tokenizer)

    def save(self, folder: str | Path, config: str) -> None:
        """Write the model folder."""
        self.describe(folder, config)
        save_weights(self, Path(folder) / WEIGHTS)

    @staticmethod
    def load(folder: str | Path, device: torch.device | str = "cpu") -> "Recognizer":
        """Load a model folder, as `load` of this module does."""
        return load(folder, device)


def load(
    folder: str | Path, device: torch.device | str = "cpu", calibrated: bool = True
) -> Recognizer:
    """Load a model folder, in evaluation mode.

    calibrated   by its calibration, if it has one; else confidences are raw
    raises   UserError if a file is missing or damaged; names it; or if the folder holds a language
             model
    """
    settings = folders.read_settings(folder, RecognizerSettings, "hybrid")
    tokenizer = tokenizers.load(folder)
    recognizer = folders.fill(
        lambda: Recognizer(settings.features, settings.model, tokenizer), folder
    )
    recognizer.calibration = confidence.load(folder) if calibrated else None
    possible = (recognizer.most_samples or math.inf) / recognizer.sample_rate / FAR
    recognizer.longest = min(folders.heard(folder, "longest_seconds") or math.inf, possible)
    recognizer.edges = folders.heard(folder, "edge_seconds") or 0.0
    if found := boundaries.load(folder, recognizer.frontend.extractor.features):
        recognizer.boundaries = found.to(device)
    return recognizer.to(device).eval()
