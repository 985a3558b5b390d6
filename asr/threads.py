"""Work on a CPU in threads of its own, each computing on one core."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

import torch

T = TypeVar("T")


def in_threads(compute: Callable[[T], None], work: Sequence[T]) -> None:
    """Call compute(item) for all items of the work, in as many threads as PyTorch may use; this is one of them.

    PyTorch's own threads share each operation and wait for each other after it. Where operations
    are small, that costs much, and on a machine with other work fifty times as much as computing.
    Gradients aren't recorded.
    """
    before = torch.get_num_threads()
    threads = min(before, len(work))
    inference, left = torch.is_inference_mode_enabled(), iter(work)

    def take() -> None:
        with torch.inference_mode(inference), torch.no_grad():  # these are a thread's own
            for item in left:  # who is done takes the next
                compute(item)

    if threads <= 1:
        return take()
    others = [_pool(before - 1, os.getpid()).submit(take) for _ in range(1, threads)]
    torch.set_num_threads(1)
    try:
        take()
    finally:
        faults = [other.exception() for other in others]  # waits for them
        torch.set_num_threads(before)  # of this thread, and of those that begin later
    for fault in filter(None, faults):
        raise fault


@lru_cache(maxsize=1)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Threads that stay, for memory's sake; a forked process has none of its parent's."""
    return ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
