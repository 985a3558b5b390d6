"""A persistent worker of the benchmark: requests as JSON lines on stdin, an answer each on stdout (or --answers).

    {"workload": "eight", "part": "joint", "batches": [[0, 3], [1, 2]]}  →  {"seconds": 1.234, "peak_mb": 700}

A worker is idle, blocked in a read, while others compute. Every answer has been checked: STEPS decoder steps for each
batch, and hypotheses as long as they must be. A failed check ends the worker.
"""

import argparse
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Protocol

import torch
import workload
from torch import Tensor


class Implementation(Protocol):
    """What is timed.

    encode(X (B, T, MELS), X_lens (B,)) → whatever `search` takes
    search(encoded, joint: bool)        → the number of labels of each utterance's best hypothesis
    steps    decoder steps done so far
    labels   that a hypothesis of STEPS decoder steps has, as this implementation counts
    """

    steps: int
    labels: int
    encode: Callable
    search: Callable


def arguments() -> argparse.Namespace:
    """Read what the driver tells a worker at its start."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--answers", type=int, default=1, help="file descriptor")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    return args


def serve(build: Callable[[argparse.Namespace], Implementation], *packages: str) -> None:
    """Build, say what was built, and answer requests until stdin ends."""
    args = arguments()
    answers = os.fdopen(args.answers, "w")
    implementation = build(args)
    versions = {"python": platform.python_version(), **{p: version(p) for p in packages}, "torch": torch.__version__}
    print(json.dumps({"versions": versions, "threads": torch.get_num_threads()}), file=answers, flush=True)
    utterances = {name: workload.features(name) for name in workload.SECONDS}
    for line in sys.stdin:
        request = json.loads(line)
        batches = [
            tuple(x.to(args.device) for x in workload.pad([utterances[request["workload"]][n] for n in batch]))
            for batch in request["batches"]
        ]
        seconds = measure(implementation, batches, request["part"], args.device)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(json.dumps({"seconds": seconds, "peak_mb": peak}), file=answers, flush=True)


@torch.no_grad()
def measure(implementation: Implementation, batches: list[tuple[Tensor, Tensor]], part: str, device: str) -> float:
    """Time a part over all batches, and check what was done."""
    before, lengths = implementation.steps, []
    wait(device)
    begun = time.perf_counter()
    for X, X_lens in batches:
        encoded = implementation.encode(X, X_lens)
        if part != "encoder":
            lengths += implementation.search(encoded, part == "joint")
    wait(device)
    seconds = time.perf_counter() - begun
    if part != "encoder":
        steps, expected = implementation.steps - before, workload.STEPS * len(batches)
        assert steps == expected, f"got {steps} decoder steps, expected {expected}"
        assert len(lengths) == sum(len(X) for X, _ in batches), f"got {len(lengths)} hypotheses"
        assert set(lengths) == {implementation.labels}, f"got lengths {lengths}, expected {implementation.labels}"
    return seconds


def wait(device: str) -> None:
    """Wait for a GPU to finish."""
    if device != "cpu":
        torch.cuda.synchronize()
