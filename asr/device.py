"""Where to compute, in which precision, and with how many threads."""

import contextlib
import ctypes
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import lru_cache
from multiprocessing import get_context
from typing import TypeVar

import torch

from asr import provenance

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc, malloc.h
SHAPES = 16  # that oneDNN keeps code and weights for


def choose(wanted: str = "auto", apart: bool = False) -> tuple[torch.device, str]:
    """Choose the device and say why, as (device, sentence).

    wanted   "auto" takes a GPU that works, else the CPU; "cpu"; "cuda"
    apart    try the GPU in a process of its own: it may be one that takes a single process, and
             others are to have it
    raises   ValueError if "cuda" is wanted and can't be used; the text says why
    """
    if wanted == "cpu":
        return torch.device("cpu"), _cpu("as asked")
    compute_exactly()
    problem = _gpu_problem(apart)
    if problem is None:
        return torch.device("cuda"), f"computing on {torch.cuda.get_device_name()}"
    if wanted == "cuda":
        raise ValueError(f"device cuda: {problem}; choose the CPU, or fix the driver")
    return torch.device("cpu"), _cpu(problem)


def hardware(device: torch.device, processes: int = 1) -> str:
    """Name what computes, for a result: the number of GPUs, one per process, or of cores, and their kind."""
    if device.type == "cuda":
        return f"{processes} × {torch.cuda.get_device_name()}"
    return provenance.cpu(max(processes, torch.get_num_threads()))


def compute_exactly() -> None:
    """Have a GPU compute convolutions in fp32, attention by kernels that need no plan, and its memory's segments grow.

    The default of convolutions, TF32, has 10 bits, which a text may depend on. cuDNN's attention,
    which PyTorch prefers on Hopper and Blackwell, makes a plan for each new shape, which took 0.4 s
    forward and 0.6 s backward (modelscope/FunASR#3704), and a search has a new shape at every step.
    Batches of ever other sizes leave gaps between segments that can't grow; PyTorch reads that
    setting when it first takes memory.
    """
    if not {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"} & set(os.environ):
        os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.enable_cudnn_sdp(False)


def autocast(device: torch.device, precision: str) -> contextlib.AbstractContextManager:
    """Compute products in bf16, or change nothing; for the precision see `in_bf16`."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=in_bf16(device, precision))


def in_bf16(device: torch.device, precision: str) -> bool:
    """Whether products are computed in bf16: "fp32" never, "bf16" always, "auto" if the device is made for it."""
    return precision == "bf16" or (precision == "auto" and has_bf16(device))


def has_bf16(device: torch.device = torch.device("cpu")) -> bool:  # noqa: B008
    """Whether a device has instructions for products in bf16; a CPU without them takes ten times fp32's time."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return native and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def product_dtype(X: torch.Tensor) -> torch.dtype:
    """The type of a product of X with a matrix: autocast's, where it is on."""
    kind = X.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else X.dtype


def _cpu(why: str) -> str:
    return f"computing on the CPU, {torch.get_num_threads()} threads ({why})"


def _gpu_problem(apart: bool = False) -> str | None:
    """What keeps the GPU from being used, None if it works; apart: tried in a process of its own."""
    if torch.version.cuda is None and torch.version.hip is None:
        return "this build of PyTorch has no GPU support"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        available = torch.cuda.is_available()
    if not available:
        return (
            f"no GPU can be used: {str(caught[0].message).splitlines()[0]}"
            if caught
            else "no GPU found"
        )
    try:
        if apart:
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                pool.submit(_compute).result()
        else:
            _compute()
    except RuntimeError as error:  # BrokenProcessPool is one
        return f"the GPU can't be used: {str(error).splitlines()[0]}"
    return None


def _compute() -> None:
    """Compute something on the GPU."""
    torch.zeros(1, device="cuda").add_(1).item()


@contextlib.contextmanager
def tuned(device: torch.device) -> Iterator[None]:
    """Compute on a CPU as fast as it goes: keep freed memory, and flush denormal numbers to zero while it lasts.

    A posterior of 1e-40, or a moment of Adam's that has decayed to that, costs many times what a
    zero does.
    """
    if device.type != "cpu":
        yield
        return
    keep_memory()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def keep_memory() -> None:
    """Let glibc keep freed memory for the next step instead of giving it back to the system and faulting it in anew.

    On a CPU that is a tenth of a small model's training step. Elsewhere nothing happens.
    """
    _glibc("mallopt", M_MMAP_THRESHOLD, 1 << 30)
    _glibc("mallopt", M_TRIM_THRESHOLD, -1)


def remember_few_shapes() -> None:
    """Let oneDNN keep what it has prepared for 16 shapes, in place of 1024, unless the environment has another number.

    Recordings have ever other lengths, so hours of them fill its cache, and hardly any shape comes
    again. oneDNN reads the number at its first operation.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(SHAPES))


def give_back_memory() -> None:
    """Let glibc give back to the system what it has kept so far; elsewhere nothing happens."""
    _glibc("malloc_trim", 0)


def _glibc(function: str, *arguments: int) -> None:
    """Call a function of Linux's C library, if it has it."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            getattr(ctypes.CDLL(None), function)(*arguments)


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
