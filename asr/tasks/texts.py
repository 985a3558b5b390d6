"""What trainings on texts share: nothing is measured before them or after, and sums over a dev set judge them."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from asr.data.bucketing import plan
from asr.device import autocast
from asr.models.stage import LATE
from asr.training.distributed.group import Group
from asr.training.settings import RunSettings
from asr.training.task import Remember, Task, call


class TextExperiment(RunSettings):
    """The part of an `asr.training.task.Experiment` that is the same for all texts."""

    def statistics(self, model: Any) -> None:
        """None: there are no features."""

    def fit_statistics(self, model: Any, train: Any) -> None:
        """Do nothing."""

    def facts(self, train: Any) -> dict[str, float]:
        """None."""
        return {}

    def complete(self, model: Any, train: Any) -> None:
        """Do nothing."""

    def settle(self, model: Any, train: Any, processes: int, remember: Remember = call) -> Any:
        """Nothing is left to a measurement."""
        return self


@torch.no_grad()
def dev_sums(
    task: Task,
    sizes: np.ndarray,
    batch_tokens: int,
    load: Callable[[list[int]], Any],
    precision: str,
    group: Group,
) -> list[float]:
    """Add up the losses' `task.sums` over a dev set; each process takes its share of the batches.

    sizes   tokens of the examples, (N,); a batch has up to `batch_tokens`
    load    makes a batch of chosen examples
    """
    model = task.model.eval()
    device = next(model.parameters()).device
    batches, sums = plan(sizes, batch_tokens, 0, 0), []
    for [batch] in batches[group.rank :: group.size]:
        with autocast(device, precision):
            loss = task.loss(model, load(batch).to(device), LATE)
        sums.append([float(loss.sums[name]) for name in task.sums])
    rows = torch.tensor(sums, dtype=torch.float64).view(-1, len(task.sums))
    return group.sum_of_rows(rows, len(batches)).tolist()


def exp(x: float) -> float:
    """e^x; infinity, not an error, where that is too large; NaN stays NaN."""
    return math.exp(x) if x < 700 else x * math.inf
