"""Settings of the training loop and of its data."""

from typing import Literal

from pydantic import Field, PositiveFloat, field_validator, model_validator

from asr.config import Settings
from asr.data.augment import AugmentSettings


class DataSettings(Settings):
    """Manifests, limits and batches."""

    train: str | list[str]  # manifest, .jsonl.gz, or a list of them
    dev: str
    batch_seconds: PositiveFloat | Literal["auto"]  # of padded audio a batch; auto = as many as fit in memory
    min_seconds: float = Field(0.1, ge=0)
    max_seconds: float = Field(30.0, gt=0)
    max_tokens: int = Field(400, gt=0)
    speeds: list[float] = [1.0]  # factors of speed perturbation, one drawn for each utterance and epoch
    augment: AugmentSettings | None = None  # of training waveforms
    bpe_dropout: float = Field(0.0, ge=0, le=1)  # probability that training leaves out a merge of BPE; 0.1 is usual
    sorted_epochs: int = Field(0, ge=0)  # so many first epochs go from the shortest utterances to the longest
    workers: int = Field(2, ge=0)

    @field_validator("train", mode="before")
    @classmethod
    def _one_or_several(cls, value):
        paths = value if isinstance(value, list) else [value]
        if not paths or not all(isinstance(path, str) for path in paths):
            raise ValueError(f"got {value!r}, expected the path of a manifest, or a list of paths")
        return value

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
    tokens: str | None = None  # folder for the token ids of `train`, made once; None = beside `out`, OUT.tokens


class LoopSettings(Settings):
    """The loop."""

    epochs: int = Field(gt=0)
    accumulate: int = Field(1, gt=0)  # batches an optimiser step, whichever process takes them
    processes: int | None = Field(
        None, gt=0
    )  # that share a step's batches; on a CPU one a core unless given, a GPU each
    shard: bool = False  # spread weights, gradients and optimiser states over the processes (FSDP2)
    activation_checkpointing: bool = False  # a third more time for much less memory
    compile: bool = False  # the layers by torch.compile, on a GPU
    clip: float = Field(5.0, gt=0)  # norm of the gradient per token
    precision: Literal["fp32", "bf16"] = "fp32"  # bf16 = autocast, weights stay fp32
    device: Literal["auto", "cpu", "cuda"] = "auto"
    validate_every: int = Field(1, gt=0)  # epochs
    average: int = Field(10, gt=0)  # so many of the best, and of the last, validated weights are averaged at the end
    ema: float | None = Field(None, gt=0, lt=1)  # decay a step of a running average of the weights
    keep: int = Field(2, gt=0)  # training states
    save_minutes: float = Field(10.0, gt=0)  # between training states
    save_steps: int | None = Field(None, gt=0)  # between training states, too
    log_every: int = Field(50, gt=0)  # steps

    @model_validator(mode="after")
    def _shards_have_no_running_average(self):
        if self.shard and self.ema:
            raise ValueError("ema: can't be had with shard: true; leave one of them out")
        return self


class TrainingSettings(LoopSettings):
    """The loop of a recogniser."""

    mask_after: int = Field(0, ge=0)  # epochs without SpecAugment, in which CTC on little data finds its alignment
    flat_start: int = Field(0, ge=0)  # epochs, never the last, in which CTC has equal alignments, to find its own from
    best_by: Literal["accuracy", "loss", "wer", "ctc_wer"] = "accuracy"  # wer: of Han and such, by characters


class TextTrainingSettings(LoopSettings):
    """The loop of a language model; the least loss is the least perplexity."""

    best_by: Literal["loss", "accuracy"] = "loss"
