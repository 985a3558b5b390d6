"""What a kind of model brings to its training, as asr/tasks does: an Experiment, which is its settings, and a Task."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from torch import Tensor, nn

from asr.models.stage import Stage
from asr.text.tokenizer import Tokenizer
from asr.training.distributed.group import Group
from asr.training.settings import LoopSettings


class Task(Protocol):
    """A model with its data, and how it is trained and judged. A batch is planned as a list of indices of examples.

    unit    of amounts of data: "s" of audio, or "tokens"
    """

    unit: str

    @property
    def model(self) -> Any:
        """The module that is trained; its weights are those of the model folder."""

    @property
    def sums(self) -> Sequence[str]:
        """Names of the loss's sums that are shown, "correct" and "tokens" among them."""

    @property
    def fullest_epoch(self) -> int:
        """An epoch with the largest examples, for what is measured before training."""

    @property
    def sizes(self) -> np.ndarray:
        """Sizes of the training examples of `fullest_epoch`, (N,), in `unit`."""

    @property
    def workers(self) -> int:
        """Processes that read examples ahead."""

    def plan(self, epoch: int, accumulate: int) -> Sequence[list[list[int]]]:
        """Decide the optimizer steps of an epoch, of up to `accumulate` batches each, of like size.

        They depend on the seed, the epoch, the examples and `accumulate` alone.
        """

    def longest(self, n: int) -> list[int]:
        """The n longest examples of `fullest_epoch`, the longest first; all if there are fewer."""

    def load(self, epoch: int, batches: Iterable[list[int]]) -> Iterator[Any]:
        """Yield planned batches; each has a len, `elements` that memory grows with, `to(device)` and `halves()`."""

    def amount(self, batch: Any) -> float:
        """How much data a batch is, in `unit`, without its padding."""

    def loss(self, model: Any, batch: Any, stage: Stage) -> Any:
        """Loss of a batch: an object with scalar `total`, with gradient, and its `sums` by name; they add over batches.

        model   the task's, or a replica of it in shards
        """

    def name(self, batches: Sequence[list[int]]) -> str:
        """Name the examples of planned batches, for a message."""

    def validate(self, precision: str, group: Group) -> dict[str, float]:
        """Metrics of the model on the dev set, that of training.best_by among them; each process takes its share."""

    def alignments(self) -> dict[str, Tensor]:
        """Attention of a few dev examples to the encoder's frames, (U, T') each, by id; none without an encoder."""


@dataclass(frozen=True)
class Examples:
    """What a training has read: examples to train on and to judge by, and the lines of dropped.tsv."""

    train: Any
    dev: Any
    dropped: str = ""


Remember = Callable[[Callable[[], float]], float]


def call(measure: Callable[[], float]) -> float:
    """Measure at once."""
    return measure()


class Experiment(Protocol):
    """The settings of a training, and what they make.

    Model   class of the model: has load(folder), and Settings, that of what identifies it
    """

    Model: ClassVar[Any]
    out: str
    seed: int
    tokenizer: str
    init_from: str | None
    freeze: list[str]
    data: Any
    model: Any
    optimizer: Any
    schedule: Any
    training: LoopSettings

    def resolved(self, continued: bool = False) -> "Experiment":
        """The experiment with all that its settings leave to files of others; continued: `out` knows it."""

    def untrained(self, tokenizer: Tokenizer) -> nn.Module:
        """Make the model with random weights."""

    def begin(self, model: Any) -> None:
        """Give an untrained model the weights of others that its settings name, beside `init_from`."""

    def read(self, model: Any, looked: bool = False) -> Examples:
        """Read and check the data; looked: the sound files have been looked at before, and aren't again."""

    def statistics(self, model: Any) -> nn.Module | None:
        """The part of the model that holds statistics of the training set; None if there is none."""

    def fit_statistics(self, model: Any, train: Any) -> None:
        """Take these statistics."""

    def facts(self, train: Any) -> dict[str, float]:
        """What versions.json has to say of the training set."""

    def settle(
        self, model: Any, train: Any, processes: int, remember: Remember = call
    ) -> "Experiment":
        """The experiment with all that its settings leave to a measurement; `remember(measure)` returns what it gives.

        processes  that share the machine's memory
        """

    def task(self, model: Any, train: Any, dev: Any, workers: int | None = None) -> Task:
        """Join the model and its data to what is trained; workers: other than the settings say."""

    def complete(self, model: Any, train: Any) -> None:
        """Add to the folder of the trained model what is learned from its training set at last."""

    def look(self, role: str, path: str | Sequence[str], model: Any, progress: bool) -> Any:
        """Look for all that is wrong with a data set by itself (asr/preflight); role: train, dev or test."""
