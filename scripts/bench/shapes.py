"""Time training on batches of ever other shapes, by how many operations oneDNN keeps.

    python -m scripts.bench.shapes conf/mini.yaml bf16:1024 bf16:8192 fp32:1024

oneDNN makes code for each shape of a product, and keeps that of the last 1024 operations unless told
otherwise. The first batches of an epoch are computed, forward and backward, then as many of the next
epoch; these are measured. Each row is a process of its own with one thread, in turn, `--repeats` times.
Seconds are of its CPU time for a batch, medians with minimum and maximum; the ratio is to the first row;
`MB` is the process's peak. The data of the configuration have to be there. Linux only.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from itertools import chain, islice

import torch

from asr import device
from asr.cli.command import command
from asr.config import load
from asr.models.stage import LATE
from asr.tasks.recognizer import RecognizerExperiment
from asr.training.build import build
from scripts.bench import report
from scripts.bench.search_parts import resident

KEPT = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"


def work(config: str, precision: str, batches: int) -> None:
    """Compute the batches; print the seconds of a measured one, and the peak of memory, as JSON."""
    torch.set_num_threads(1)
    cpu = torch.device("cpu")
    experiment = load(RecognizerExperiment, config).resolved()
    model = build(experiment).train()
    data = experiment.read(model)
    experiment.fit_statistics(model, data.train)
    task = experiment.task(model, data.train, data.dev, workers=0)
    for epoch in (1, 2):
        planned = list(
            islice(chain.from_iterable(task.plan(epoch, experiment.training.accumulate)), batches)
        )
        seconds = 0.0
        with device.tuned(cpu):
            for batch in task.load(epoch, planned):
                began = time.process_time()
                with device.autocast(cpu, precision):
                    loss = task.loss(model, batch, LATE)
                loss.total.backward()
                model.zero_grad()
                seconds += (time.process_time() - began) / len(planned)
    print(json.dumps({"seconds": seconds, "mb": resident("VmHWM") / 1024}))


def row_of(word: str) -> str:
    """Check a row of the command line."""
    if not re.fullmatch(r"(fp32|bf16):\d+", word):
        raise argparse.ArgumentTypeError(
            f"got {word!r}, expected fp32:OPERATIONS or bf16:OPERATIONS"
        )
    return word


def run(config: str, row: str, batches: int) -> dict[str, float]:
    """Do `work` in a process of its own; row: PRECISION:OPERATIONS."""
    precision, _, kept = row.partition(":")
    words = [config, "--work", precision, "--batches", str(batches)]
    done = subprocess.run(
        [sys.executable, "-m", "scripts.bench.shapes", *words],
        env={**os.environ, KEPT: kept, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout) if done.returncode == 0 else sys.exit(done.returncode)


def spread(values: list[float]) -> str:
    """Median, minimum and maximum."""
    return f"{statistics.median(values):.3f} ({min(values):.3f}–{max(values):.3f})"


@command
def main(words: list[str]) -> None:
    """Measure all rows in turn, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", metavar="YAML", help="of a recognizer")
    parser.add_argument("rows", nargs="*", type=row_of, metavar="PRECISION:OPERATIONS")
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--work", metavar="PRECISION", help=argparse.SUPPRESS)
    args = parser.parse_args(words)
    if args.work:
        work(args.config, args.work, args.batches)
        return
    found: dict[str, list[dict]] = {row: [] for row in args.rows}
    for _ in range(args.repeats):
        for row, results in found.items():
            results.append(run(args.config, row, args.batches))
    lines, first = [], None
    for row, results in found.items():
        seconds = [one["seconds"] for one in results]
        first = first or statistics.median(seconds)
        ratio = f"{statistics.median(seconds) / first:.2f}"
        peak = statistics.median(one["mb"] for one in results)
        lines.append([*row.split(":"), spread(seconds), ratio, f"{peak:.0f}"])
    print(report.table(("precision", "kept", "seconds a batch", "ratio", "MB"), lines))


if __name__ == "__main__":
    main()
