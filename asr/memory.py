"""The machine's memory: what is free, a limit that makes its end an error, and telling that error from others."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

SHARE = 0.95  # of what is free, that this process may take
OUT = (  # what libraries say: PyTorch on a CPU, cuBLAS and cuDNN for their own memory, C++, Python
    "can't allocate memory",
    "out of memory",  # of CUDA beside PyTorch's own allocator: modules, NCCL
    "STATUS_ALLOC_FAILED",
    "CUFFT_ALLOC_FAILED",
    "std::bad_alloc",
    "can't start new thread",
)


def is_oom(error: BaseException) -> bool:
    """Tell a failed allocation, on a GPU or a CPU, from other errors."""
    torch = sys.modules.get("torch")
    kinds = (MemoryError, torch.OutOfMemoryError) if torch else (MemoryError,)
    return isinstance(error, kinds) or any(word in str(error) for word in OUT)


@contextlib.contextmanager
def limited(processes: int = 1) -> Iterator[None]:
    """Within it, taking more memory than is free fails here, where the system would else kill the process.

    processes   that begin together, and share what is free

    Linux alone; elsewhere nothing happens.
    """
    free = available()
    if sys.platform != "linux" or free is None:
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = taken() + int(SHARE * free / processes)
    limits = [wanted, *(limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def available() -> int | None:
    """Bytes that are free for this process: of the machine's memory, and of its container's; None if unknown."""
    free = [
        _kilobytes("/proc/meminfo", "MemAvailable"),
        *(container_free(Path(root)) for root in CONTAINERS),
    ]
    return min((value for value in free if value is not None), default=None)


def container_free(root: Path) -> int | None:
    """Bytes that a cgroup, version 2 or 1, has left, files in the cache counted as free; None without a limit."""
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        with contextlib.suppress(OSError, ValueError):  # another version, or no limit
            left = int((root / limit).read_text()) - int((root / used).read_text())
            rows = (line.split() for line in (root / "memory.stat").read_text().splitlines())
            cached = sum(
                int(value) for name, value in rows if name in ("active_file", "inactive_file")
            )
            return max(0, left + cached)
    return None


# where a process within a container sees its own
CONTAINERS = (
    "/sys/fs/cgroup",
    "/sys/fs/cgroup/memory",
)


def taken() -> int:
    """Bytes of this process that the limit counts."""
    return _kilobytes("/proc/self/status", "VmData") or 0


def _kilobytes(path: str, name: str) -> int | None:
    """Read a line `NAME: 123 kB`, in bytes."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))
    return None
