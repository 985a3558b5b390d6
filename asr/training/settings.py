"""Settings of the training loop and of its data."""

from typing import Literal

from pydantic import Field, model_validator

from asr.config import Settings


class DataSettings(Settings):
    """Manifests, limits and batches."""

    train: str  # manifest, .jsonl.gz
    dev: str
    batch_seconds: float = Field(gt=0)  # of padded audio a batch
    min_seconds: float = Field(0.1, ge=0)
    max_seconds: float = Field(30.0, gt=0)
    max_tokens: int = Field(400, gt=0)
    speeds: list[float] = [1.0]  # factors of speed perturbation, one drawn for each utterance and epoch
    workers: int = Field(2, ge=0)

    @model_validator(mode="after")
    def _speeds_possible(self):
        if not self.speeds or any(not 0.5 <= speed <= 2.0 for speed in self.speeds):
            raise ValueError(f"speeds: got {self.speeds}, expected factors from 0.5 to 2.0, as [0.9, 1.0, 1.1]")
        return self


class TextDataSettings(Settings):
    """Texts, plain with a sentence a line (`.gz` too) or manifests (`.jsonl.gz`), and batches."""

    train: str
    dev: str
    batch_tokens: int = Field(gt=0)  # of padded targets a batch: a sentence's tokens and its end
    max_tokens: int = Field(512, gt=0)  # of a training sentence; longer ones are left out, of dev none


class LoopSettings(Settings):
    """The loop."""

    epochs: int = Field(gt=0)
    accumulate: int = Field(1, gt=0)  # batches an optimiser step
    processes: int | None = Field(None, gt=0)  # that share a step's batches on a CPU; one a core unless given
    clip: float = Field(5.0, gt=0)  # norm of the gradient per token
    precision: Literal["fp32", "bf16"] = "fp32"  # bf16 = autocast, weights stay fp32
    device: Literal["auto", "cpu", "cuda"] = "auto"
    validate_every: int = Field(1, gt=0)  # epochs
    average: int = Field(10, gt=0)  # best checkpoints, averaged at the end
    save_minutes: float = Field(10.0, gt=0)  # between checkpoints within an epoch


class TrainingSettings(LoopSettings):
    """The loop of a recogniser."""

    mask_after: int = Field(0, ge=0)  # epochs without SpecAugment, in which CTC on little data finds its alignment
    best_by: Literal["accuracy", "loss", "wer", "ctc_wer"] = "accuracy"


class TextTrainingSettings(LoopSettings):
    """The loop of a language model; the least loss is the least perplexity."""

    best_by: Literal["loss", "accuracy"] = "loss"
