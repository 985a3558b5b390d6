"""Memory: telling when it is out, measuring what a computation takes, and the size of batches that fit."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from asr.training.device import give_back_memory

SHARE = 0.9  # of what is free, that batches may take
CPU_SHARE = 0.5  # on a CPU, where others live, too


def is_out(error: Exception) -> bool:
    """Tell a failed allocation, on a GPU or a CPU, from other errors."""
    words = ("can't allocate memory", "STATUS_ALLOC_FAILED")  # a CPU's; those of cuBLAS and cuDNN for their own memory
    return isinstance(error, torch.OutOfMemoryError) or any(word in str(error) for word in words)


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


def later_bytes(model: nn.Module, average: bool) -> float:
    """What training takes besides: Adam's two moments (Muon takes less), and of all weights a running average."""
    sizes = [(p.numel() * p.element_size(), p.requires_grad) for p in model.parameters()]
    return sum(size * (2 * trained + average) for size, trained in sizes)


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))
