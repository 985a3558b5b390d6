"""What the benchmarks say of where they ran, and how they lay out their figures."""

import os
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

import asr

ROOT = Path(__file__).parents[2]


def circumstances(device: str) -> dict:
    """Hardware, versions, commit and date."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    cpu = next(
        (line.split(": ", 1)[1] for line in info.splitlines() if line.startswith("model name")),
        "unknown CPU",
    )
    omp = {
        n: v
        for n, v in os.environ.items()
        if n.startswith(("OMP_", "GOMP_", "KMP_")) and n != "OMP_NUM_THREADS"
    }
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "commit": commit(),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if device.startswith("cuda") else None,
        "kernel": platform.release(),
        "omp": omp,
        "torch": torch.__version__,
    }


def heading(facts: Mapping, threads: int) -> str:
    """Tell the circumstances in two lines."""
    omp = " ".join(f"{name}={value}" for name, value in facts["omp"].items()) or "as by default"
    return (
        f"{facts['date']}, commit {facts['commit']}, torch {facts['torch']}\n"
        f"{facts['gpu'] or 'no GPU'}; {facts['cpu']}, {facts['cores']} cores, {threads} threads, OpenMP {omp}"
    )


def commit(checkout: Path | None = None) -> str:
    """The commit of a checkout (None: of the toolkit that is imported), and whether files differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words],
            cwd=checkout or Path(asr.__file__).parent,
            capture_output=True,
            text=True,
        ).stdout

    return (git("rev-parse", "--short", "HEAD").strip() or "unknown") + (
        " with changes" if git("diff", "HEAD") else ""
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> str:
    """Lay out columns, as wide as their contents; the first `texts` of them begin, the others end, at their border."""
    widths = [max(len(row[n]) for row in (heads, *rows)) for n in range(len(heads))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if n < texts else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (heads, *rows)
    )
