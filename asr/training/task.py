"""What the training loop is given to train: a task brings its model, data, loss and validation."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from torch import Tensor, nn

from asr.training.processes import Group


class Task(Protocol):
    """A model, and how it is trained and judged. A batch is planned as a list of indices of examples.

    model   the module that is trained; its weights are those of the model folder
    sums    names of the loss's sums that are shown, "correct" and "tokens" among them
    unit    of amounts of data: "s" of audio, or "tokens"
    """

    model: nn.Module
    sums: Sequence[str]
    unit: str

    def plan(self, epoch: int, accumulate: int) -> Sequence[list[list[int]]]:
        """Decide the optimiser steps of an epoch, of up to `accumulate` batches each, of like size.

        They depend on the seed, the epoch, the examples and `accumulate` alone.
        """

    def longest(self, n: int) -> list[int]:
        """The n longest examples, the longest first; all if there are fewer."""

    def load(self, epoch: int, batches: Iterable[list[int]]) -> Iterator[Any]:
        """Yield planned batches; each has a len, `elements` that memory grows with, `to(device)` and `halves()`."""

    def amount(self, batch: Any) -> float:
        """How much data a batch is, in `unit`, without its padding."""

    def loss(self, model: nn.Module, batch: Any, epoch: int) -> Any:
        """Loss of a batch: an object with scalar `total`, with gradient, and `sums` by name; they add over batches.

        model   the task's, or a copy of it in shards
        """

    def name(self, batches: list[list[int]]) -> str:
        """Name the examples of planned batches, for a message."""

    def validate(self, precision: str, group: Group) -> dict[str, float]:
        """Figures of the model on the dev set, that of training.best_by among them; each process takes its share."""

    def alignments(self) -> dict[str, Tensor]:
        """Attention of a few dev examples to the encoder's frames, (U, T') each, by id; none without an encoder."""
