"""The processes that train one model together, seen from one of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from asr.device import compute_exactly
from asr.errors import UserError

T = TypeVar("T")


class RaisedElsewhere(UserError):
    """A mistake that another process has met, and tells."""


@dataclass(frozen=True)
class Group:
    """This process' place among those of the run: `rank` in 0 .. size - 1; `local` among those of its machine."""

    rank: int = 0
    size: int = 1
    local: int = 0

    @property
    def leads(self) -> bool:
        """True for the one process that saves and speaks."""
        return self.rank == 0

    def add(self, tensor: Tensor) -> None:
        """Replace a tensor by its sum over the processes."""
        if self.size > 1:
            dist.all_reduce(tensor)

    def sum_of_rows(self, mine: Tensor, n: int) -> Tensor:
        """Sum of n rows (n, k), added in their order, whichever process has which.

        mine     this process' rows: number `rank` and every `size`-th after it
        returns  (k,)
        """
        rows = mine.new_zeros(n, mine.size(1))
        rows[self.rank :: self.size] = mine
        self.add(rows)
        return rows.sum(0)

    def share(self, make: Callable[[], T]) -> T:
        """Call `make` in the first process; all get what it returns.

        raises   UserError in the first process if `make` does, and in the others RaisedElsewhere
        """
        if self.size == 1:
            return make()
        made, mistake = None, None
        try:
            made = make() if self.leads else None
        except UserError as error:
            mistake = error
        shared = [(made, mistake is not None)]
        dist.broadcast_object_list(shared)
        made, failed = shared[0]
        if failed:
            raise mistake or RaisedElsewhere(
                "the first process of the training tells what is wrong"
            )
        return cast(T, made)

    def device(self, device: torch.device) -> torch.device:
        """Choose this process' own of several GPUs, and compute there as the process that chose the device does.

        raises   UserError if there are fewer GPUs than processes on this machine
        """
        if device.type != "cuda":
            return device
        if self.local >= (there := torch.cuda.device_count()):
            raise UserError(
                f"{there} GPUs for {self.local + 1} processes or more on this machine; start one a GPU"
            )
        torch.cuda.set_device(self.local)
        compute_exactly()
        return torch.device("cuda", self.local)
