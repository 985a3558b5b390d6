"""Memory: what a computation takes, and for `data.batch_seconds: auto` how large a batch may be."""

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from asr.device import autocast, give_back_memory
from asr.errors import UserError
from asr.memory import is_oom
from asr.models.stage import LATE
from asr.training.distributed.replicas import waiting
from asr.training.layers import all_take_part
from asr.training.settings import LoopSettings
from asr.training.task import Task

SHARE = 0.9  # of what is free, that batches may take
KILLED = re.compile(
    r"DataLoader worker \(pid.*(killed by signal: Killed|exited unexpectedly)"
)  # PyTorch's words
NO_SHM = re.compile(r"killed by signal: Bus error|unable to (write|allocate).*shm|shared memory")
CPU_SHARE = 0.5  # on a CPU, where others live, too


@contextlib.contextmanager
def explain_oom() -> Iterator[None]:
    """Within it, memory that is out is a UserError, and so is a data worker that the system has killed for it."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if is_oom(error):
            how = "lower data.batch_seconds (data.batch_tokens of a text), or set a smaller model"
            raise UserError(
                f"training: out of memory; {how}, or fewer training.processes"
            ) from error
        if NO_SHM.search(str(error)):
            raise UserError(
                "training: shared memory (/dev/shm) is too small for what data workers read ahead; give the "
                "container more (docker run --shm-size=8g, or --ipc=host), or lower data.workers"
            ) from error
        if KILLED.search(str(error)):
            raise UserError(
                "training: a data worker was killed; out of memory? Lower data.workers"
            ) from error
        raise


def batch_seconds(
    task: Task, rate: int, device: torch.device, settings: LoopSettings, processes: int
) -> float:
    """Measure what ever larger batches of the longest utterances take, up to a quarter of the memory; conclude.

    rate       of the recordings, Hz
    processes  that share the machine's memory; a GPU each has for itself
    returns    seconds of padded audio for a batch
    raises     UserError if the longest utterance alone takes too much, or the system doesn't tell
               what it takes
    """
    gradients = waiting(settings.accumulate, processes) if device.type == "cpu" else 0
    later = later_bytes(task.model, average=bool(settings.ema), waiting=gradients)
    free = free_bytes(device, processes) - later
    task.model.train()
    seconds, taken, n = 0.0, 1.0, 1
    while taken < free / 4:
        indices = task.longest(n)
        batch = next(iter(task.load(task.fullest_epoch, [indices])))
        try:
            taken = peak_bytes(device, partial(_gradient, task, batch, device, settings.precision))
        except RuntimeError as error:
            if not is_oom(error):
                raise
            break
        except OSError as error:
            raise UserError(
                f"data.batch_seconds: auto: this system doesn't tell what a process takes ({error}); give a number"
            ) from None
        seconds = batch.elements / rate
        if len(indices) < n:
            break
        n *= 2
    task.model.zero_grad()
    if not seconds:
        raise UserError(
            "data.batch_seconds: auto: the longest utterance doesn't fit in memory; lower data.max_seconds"
        )
    return float(max(seconds, seconds * free / taken) // 1)


def _gradient(task: Task, batch: Any, device: torch.device, precision: str) -> None:
    with all_take_part(task.model), autocast(device, precision):
        loss = task.loss(task.model, batch.to(device), LATE)
    loss.total.backward()


def free_bytes(device: torch.device, processes: int) -> float:
    """Memory that a process may take: of its GPU, or its part of the machine's."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(device)[0] * SHARE
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
        return kilobytes * 1024 * CPU_SHARE / processes
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * CPU_SHARE / processes


def peak_bytes(device: torch.device, compute: Callable[[], None]) -> float:
    """What `compute` takes at its peak beyond what was taken before.

    raises   OSError on a CPU whose system doesn't tell
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        compute()
        return torch.cuda.max_memory_allocated(device) - before
    give_back_memory()
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak (proc(5))
    before = _status("VmRSS")
    compute()
    return _status("VmHWM") - before


def later_bytes(model: nn.Module, average: bool, waiting: int) -> float:
    """What training takes besides: gradient, Adam's two moments (Muon takes less), of all weights a running average.

    waiting  gradients that wait to be added
    """
    sizes = [(p.numel() * p.element_size(), p.requires_grad) for p in model.parameters()]
    return sum(size * ((3 + waiting) * trained + average) for size, trained in sizes)


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))
