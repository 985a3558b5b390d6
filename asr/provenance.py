"""Where a result comes from: the commit of this code, and the machine that it ran on."""

import os
import platform
import subprocess
from pathlib import Path

from asr import __version__

ROOT = Path(__file__).parents[1]
# what a result of the toolkit depends on; recipes' settings stand in the stamps
CODE = (
    "asr",
    "pyproject.toml",
)


def commit(root: Path = ROOT) -> str:
    """Name the commit that the checkout `root` is at, a `+` behind it if its code differs from that commit.

    returns  as `63b91a1` or `63b91a1+`; `version 0.1.0` where the toolkit is installed without its
             repository
    """
    try:
        if not (root / ".git").exists():
            return f"version {__version__}"
        changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", *CODE)
        return _git(root, "rev-parse", "--short=7", "HEAD") + ("+" if changed else "")
    except (
        OSError,
        subprocess.SubprocessError,
    ):  # no git here, or a repository that isn't the reader's
        return f"version {__version__}"


def processor() -> str:
    """Name the CPU, as `Intel(R) Xeon(R) Processor`."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [
                line.split(":", 1)[1].strip() for line in file if line.startswith("model name")
            ]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu(count: int | None = None) -> str:
    """Name the CPU and a number of its cores, or those that this process may use."""
    return f"{count or cores()} × {processor()}"


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()
