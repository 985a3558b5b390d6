"""Several processes that train one model: each takes its share of a step's batches, the gradients are added.

On a CPU processes of one thread each do the work of a small model faster than the threads of one process, which
wait for each other at every operation. The processes meet through a file, on one machine.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

from asr.errors import UserError
from asr.files import write_text

INTERRUPTED = 130  # exit status, as a shell's
PATIENCE = timedelta(days=7)  # of processes that wait while the first validates, or the machine sleeps


@dataclass(frozen=True)
class Group:
    """This process' place among those of the run: `rank` in 0 .. size - 1."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """True for the one process that validates, saves and speaks."""
        return self.rank == 0

    def add(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors of one type by their sums over the processes."""
        if self.size > 1:
            flat = torch.cat([tensor.flatten() for tensor in tensors])
            dist.all_reduce(flat)
            parts = flat.split([tensor.numel() for tensor in tensors])
            torch._foreach_copy_(list(tensors), [p.view_as(t) for p, t in zip(parts, tensors, strict=True)])


def count(wanted: int | None, batches: int, device: torch.device) -> int:
    """How many processes to use: those wanted, else on a CPU one a core; never more than the batches of a step."""
    if device.type != "cpu":
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(wanted or cores, batches)


def run(task: Callable[..., None], size: int, *arguments: object) -> None:
    """Call task(group, *arguments) in `size` processes, this one among them if it is the only one.

    raises   UserError, whichever process met it
    """
    threads = torch.get_num_threads()
    if size == 1:
        return task(Group(), *arguments)
    with tempfile.TemporaryDirectory() as folder:
        try:
            mp.spawn(_member, (size, max(1, threads // size), Path(folder), task, arguments), nprocs=size)
        except (mp.ProcessExitedException, mp.ProcessRaisedException) as error:
            mistakes = [path.read_text(encoding="utf-8") for path in Path(folder).glob("mistake-*")]
            if mistakes:  # the other processes fail then too, for want of a partner
                raise UserError(mistakes[0]) from None
            if getattr(error, "exit_code", None) == INTERRUPTED:
                raise KeyboardInterrupt from None
            if isinstance(error, mp.ProcessExitedException):
                sys.exit(f"a training process ended ({error}); out of memory? The same command continues the run")
            raise
        except KeyboardInterrupt:  # a terminal interrupts all processes, `kill -INT` only this one
            for child in mp.active_children():
                child.join(5)
                child.terminate()
            raise


def _member(rank: int, size: int, threads: int, folder: Path, task: Callable[..., None], arguments: tuple) -> None:
    torch.set_num_threads(threads)
    meeting = (folder / "meeting").as_uri()
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=size, timeout=PATIENCE)
    try:
        task(Group(rank, size), *arguments)
        dist.barrier()
    except UserError as error:
        write_text(folder / f"mistake-{rank}", str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        dist.destroy_process_group()
