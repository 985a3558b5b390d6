"""A persistent worker of a benchmark: requests as JSON lines on stdin, an answer each on stdout (or --answers).

A worker is idle, blocked in a read, while others compute. A failed check of what it computed ends
it.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable
from importlib.metadata import version

import torch


def arguments() -> argparse.Namespace:
    """Read what the driver tells a worker at its start."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument(
        "--name", default="", help="of the implementation, where one script has several"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--compile", type=int, default=0, help="1: torch.compile")
    parser.add_argument("--d-model", type=int, help="instead of the workload's; heads stay 64 wide")
    parser.add_argument("--source", help="folder of a pretrained encoder")
    parser.add_argument("--answers", type=int, default=1, help="file descriptor")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    return args


def serve(build: Callable[[argparse.Namespace], Callable[[dict], dict]], *packages: str) -> None:
    """Build what answers, tell its versions, and answer requests until stdin ends."""
    args = arguments()
    answers = os.fdopen(args.answers, "w")
    answer = build(args)
    versions = {
        "python": platform.python_version(),
        **{p: version(p) for p in packages},
        "torch": torch.__version__,
    }
    print(
        json.dumps({"versions": versions, "threads": torch.get_num_threads()}),
        file=answers,
        flush=True,
    )
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=answers, flush=True)


def wait(device: str) -> None:
    """Wait for a GPU to finish."""
    if device != "cpu":
        torch.cuda.synchronize()
