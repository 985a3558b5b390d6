"""What the processes of a training add up in a step: sums of the loss, amounts of data, requests to save or to end."""

import math
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from asr.training.distributed.group import Group

AMOUNT, FAULTS = -2, -1  # columns of a step's rows, after the loss's sums


class Requests(NamedTuple):
    """Requests to save, to end by SIGINT, to end by SIGTERM: 0 or 1 each; over processes, their sums."""

    save: float = 0
    interrupt: float = 0
    terminate: float = 0

    @property
    def end(self) -> int:
        """The signal that asks to end, 0 if none does."""
        return signal.SIGINT if self.interrupt else signal.SIGTERM if self.terminate else 0


NONE = Requests()


@dataclass(frozen=True)
class StepTotals:
    """A step's sums over all processes.

    sums      of the loss, by name, "tokens" among them
    amount    of data, in the task's unit
    faulty    slots of the batches whose loss isn't finite
    requests  of the processes
    """

    sums: dict[str, float]
    amount: float
    faulty: list[int]
    requests: Requests


@dataclass(frozen=True)
class StepResult:
    """What a step has done; norm: of the gradient per token, before it was clipped."""

    totals: StepTotals
    norm: float

    @property
    def applied(self) -> bool:
        """Whether the weights have changed: not where loss or gradient weren't finite."""
        return math.isfinite(self.norm) and not self.totals.faulty


@dataclass(frozen=True)
class StepRows:
    """A process' part of a step's sums.

    names   of the loss's sums
    values  (slots, names + 2) float64, a row a batch: its loss's sums, AMOUNT and FAULTS. A slot's
            row is one process' and 0 in the others, so that their number changes no sum
    """

    names: Sequence[str]
    values: Tensor

    @classmethod
    def zeros(cls, names: Sequence[str], slots: int, device: torch.device) -> "StepRows":
        """Begin a step of up to `slots` batches."""
        return cls(names, torch.zeros(slots, len(names) + 2, dtype=torch.float64, device=device))

    def add(self, slot: int, loss: Any, amount: float, weight: float) -> None:
        """Add a batch, or a part of one, to its slot."""
        row = self.values[slot]
        sums = [torch.as_tensor(loss.sums[name], dtype=row.dtype) for name in self.names]
        row[:AMOUNT] += torch.stack(sums) * weight
        row[AMOUNT] += amount * weight
        row[FAULTS] += ~loss.total.isfinite()

    def over(self, group: Group, requests: Requests) -> StepTotals:
        """Add up the parts of all processes, and their requests, in one reduction."""
        packed = self.pack(requests)
        group.add(packed)
        return self.unpack(packed.cpu())  # a GPU is waited for once

    def pack(self, requests: Requests) -> Tensor:
        """Lay the values and the requests out in one tensor."""
        asked = torch.tensor([float(n) for n in requests], dtype=self.values.dtype)
        return torch.cat([self.values.flatten(), asked.to(self.values.device, non_blocking=True)])

    def unpack(self, packed: Tensor) -> StepTotals:
        """Read the totals from the sum of what `pack` has made."""
        values, asked = packed.split([self.values.numel(), len(Requests._fields)])
        rows, requests = values.view_as(self.values), Requests(*asked.tolist())
        *sums, amount, _ = rows.sum(0).tolist()
        faulty = rows[:, FAULTS].nonzero().flatten().tolist()
        return StepTotals(dict(zip(self.names, sums, strict=True)), amount, faulty, requests)
