"""What the training loop is given to train: a task brings its model, data, loss and validation."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from torch import nn


class Task(Protocol):
    """A model, and how it is trained and judged. Batches are planned as lists of indices of examples.

    model           the module that is trained; its weights are those of the model folder
    sums            names of the loss's sums that are shown, "correct" and "tokens" among them
    judges_average  whether the average of the best checkpoints is validated too, at the end
    """

    model: nn.Module
    sums: Sequence[str]
    judges_average: bool

    def plan(self, epoch: int) -> list[list[int]]:
        """Decide the batches of an epoch; they depend on the seed, the epoch and the examples alone."""

    def load(self, epoch: int, batches: list[list[int]]) -> Iterator[Any]:
        """Yield planned batches; each has `to(device)`."""

    def loss(self, batch: Any, epoch: int) -> Any:
        """Loss of a batch: an object with scalar `total`, with gradient, and `sums` by name; they add over batches."""

    def name(self, batches: list[list[int]]) -> str:
        """Name the examples of planned batches, for a message."""

    def validate(self, precision: str) -> dict[str, float]:
        """Figures of the model on the dev set, that of training.best_by among them."""
