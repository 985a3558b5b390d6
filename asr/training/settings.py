"""Settings of a training that several kinds of models have: of its output, its loop and its data."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from asr.config import Settings
from asr.data.augmentation import AugmentSettings
from asr.data.concatenation import ConcatenationSettings

MOST_WORKERS = 256  # that read a training process' data


def own_folder(path: str) -> str:
    """Refuse an output that is everybody's: the root, a home, the working directory or one above it."""
    folder = Path(path).resolve()
    if not path or folder in (
        Path(path).home(),
        Path.cwd(),
        *Path.cwd().parents,
        Path(folder.anchor),
    ):
        raise ValueError(
            f"got {path!r}, expected a folder of the training's own, as exp/name/model"
        )
    return path


Folder = Annotated[str, AfterValidator(own_folder)]  # the model folder


class RunSettings(Settings):
    """What the settings of every training begin with; those of the optimizer and the loop are each kind's own."""

    out: Folder
    seed: int = Field(ge=0)
    tokenizer: str  # folder of asr-tokenizer
    init_from: str | None = (
        None  # model folder whose weights the training begins with, as far as they fit
    )
    freeze: list[str] = []  # patterns of names of parameters that are not trained

    def resolved(self: Any, continued: bool = False) -> Any:
        """The experiment with all that its settings leave to files of others.

        continued  `out` has been trained in before, and knows
        """
        return self

    def begin(self, model: Any) -> None:
        """Give an untrained model the weights of others that its settings name, beside `init_from`."""

    @model_validator(mode="after")
    def _optimizer_can_shard(self: Any) -> Any:
        """Refuse shards of matrices to an optimizer that needs whole ones."""
        kind = self.optimizer.kind
        if self.training.shard and not self.optimizer.shards:
            raise ValueError(
                f"training: shard: can't be had with optimizer.kind: {kind}, which needs whole matrices; use adamw"
            )
        return self


BatchSeconds = Annotated[float, Field(ge=1e-3, le=1e6)]


class DataSettings(Settings):
    """Manifests, limits and batches."""

    train: str | list[str]  # manifest, .jsonl.gz, or a list of them
    dev: str
    # of padded audio a batch; auto = as many as fit in memory
    batch_seconds: BatchSeconds | Literal["auto"]
    min_seconds: float = Field(0.1, ge=0)
    max_seconds: float = Field(30.0, gt=0)
    max_tokens: int = Field(400, gt=0)
    # factors of speed perturbation, one drawn for each utterance and epoch
    speeds: list[float] = [1.0]
    augment: AugmentSettings | None = None  # of training waveforms
    concatenate: ConcatenationSettings | None = None  # of training utterances
    # probability that training leaves out a merge of BPE; 0.1 is usual
    bpe_dropout: float = Field(0.0, ge=0, le=1)
    # the first epochs that go from the shortest utterances to the longest
    sorted_epochs: int = Field(0, ge=0)
    workers: int = Field(2, ge=0)

    @field_validator("workers")
    @classmethod
    def _workers_possible(cls, value):
        if value > MOST_WORKERS:
            raise ValueError(f"got {value}, expected at most {MOST_WORKERS}, for each is a process")
        return value

    @field_validator("train", mode="before")
    @classmethod
    def _one_or_several(cls, value):
        paths = value if isinstance(value, list) else [value]
        if not paths or not all(isinstance(path, str) for path in paths):
            raise ValueError(f"got {value!r}, expected the path of a manifest, or a list of paths")
        return value

    @model_validator(mode="after")
    def _joined_utterances_are_no_longer_than_others(self):
        if joined := self.concatenate:
            longest = joined.max_seconds + 2 * joined.max_edge
            if longest > self.max_seconds:
                raise ValueError(
                    f"concatenate: got max_seconds {joined.max_seconds:g} and twice max_edge {joined.max_edge:g}, "
                    f"expected max_seconds ({self.max_seconds:g}) or less in all"
                )
        return self

    @model_validator(mode="after")
    def _speeds_possible(self):
        if not self.speeds or any(not 0.5 <= speed <= 2.0 for speed in self.speeds):
            raise ValueError(
                f"speeds: got {self.speeds}, expected factors from 0.5 to 2.0, as [0.9, 1.0, 1.1]"
            )
        return self


class TextDataSettings(Settings):
    """Texts, plain with one sentence per line (`.gz` too) or manifests (`.jsonl.gz`), and batches."""

    train: str
    dev: str
    batch_tokens: int = Field(gt=0)  # of padded targets a batch: a sentence's tokens and its end
    # of a training sentence; longer ones are left out, of dev none
    max_tokens: int = Field(512, gt=0)
    # folder for the token ids of `train`, made once; None = beside `out`, OUT.tokens
    tokens: str | None = None


class PairDataSettings(Settings):
    """Sentences and their translations, and batches.

    A data set is two files, [source, target], whose lines belong together; each is what
    `TextDataSettings` takes. Or it is one file whose lines are `source<TAB>target`.
    """

    train: str | list[str]
    dev: str | list[str]
    # of a padded batch, on the side that has more: a sentence's tokens and its end
    batch_tokens: int = Field(gt=0)
    # of a training sentence, on either side; longer pairs are left out, of dev none
    max_tokens: int = Field(256, gt=0)
    # folder for the token ids of `train`, made once; None = beside `out`, OUT.tokens
    tokens: str | None = None

    @field_validator("train", "dev", mode="before")
    @classmethod
    def _two_sides(cls, value):
        paths = value if isinstance(value, list) else [value]
        if (
            not all(isinstance(path, str) for path in paths)
            or len(paths) > 2
            or value in ([], [""])
        ):
            raise ValueError(
                f"got {value!r}, expected [source, target], two files, or a table of `source<TAB>target`"
            )
        return value


class LoopSettings(Settings):
    """The loop."""

    epochs: int = Field(gt=0)
    accumulate: int = Field(1, gt=0)  # batches an optimizer step, whichever process takes them
    # that share a step's batches; on a CPU one a core unless given, a GPU each
    processes: int | None = Field(None, gt=0)
    shard: bool = False  # spread weights, gradients and optimizer states over the processes (FSDP2)
    activation_checkpointing: bool = False  # a third more time for much less memory
    compile: bool = False  # the layers by torch.compile, on a GPU
    clip: float = Field(5.0, gt=0)  # norm of the gradient per token
    # bf16 = autocast, weights stay fp32; auto = bf16 where the device has instructions for it
    precision: Literal["fp32", "bf16", "auto"] = "fp32"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    validate_every: int = Field(1, gt=0)  # epochs
    # validated weights, of the best and of the last, that are averaged at the end
    average: int = Field(10, gt=0)
    ema: float | None = Field(None, gt=0, lt=1)  # decay a step of a running average of the weights
    keep: int = Field(2, gt=0)  # training states
    save_minutes: float = Field(10.0, gt=0)  # between training states
    save_steps: int | None = Field(None, gt=0)  # between training states, too
    log_every: int = Field(50, gt=0)  # steps
    best_by: str = "loss"  # the metric of a validation that chooses weights: the least, of accuracy the largest

    @model_validator(mode="after")
    def _shards_have_no_running_average(self):
        if self.shard and self.ema:
            raise ValueError("ema: can't be had with shard: true; leave one of them out")
        return self


class TrainingSettings(LoopSettings):
    """The loop of a recognizer."""

    best_by: Literal["accuracy", "loss", "wer", "ctc_wer"] = (
        "accuracy"  # wer: of Han and such, by characters
    )


class TextTrainingSettings(LoopSettings):
    """The loop of a language model; the least loss is the least perplexity."""

    best_by: Literal["loss", "accuracy"] = "loss"
