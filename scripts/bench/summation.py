"""Time the sum of a step's gradients by the tree over slots beside the sum in turn, on a CPU; and its memory.

    python -m scripts.bench.summation --parameters 30 --out exp/summation.json

A step has as many batches as `accumulate`; each adds a gradient to a flat tensor, which stands for
its backward pass. In turn: each process adds up its own, and gloo's all_reduce those of the
processes. By the tree: asr/training/distributed/replicas.py. Both ways are timed in the same
processes, step by step in turn. Milliseconds are medians over the repeats, of the slowest process;
the ratio is to the sum in turn. Gradients are those that a process keeps beside the one that is
made.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

WARM_UP = 2  # steps


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--parameters", type=float, default=30, help="millions of the model (default 30)"
    )
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--accumulate", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path, help="JSON of all samples")
    return parser.parse_args()


def in_turn(total, batches, size):
    """The sum as it was made before the tree."""
    import torch.distributed as dist

    total.zero_()
    for gradient in batches.values():
        total.add_(gradient)
    if size > 1:
        dist.all_reduce(total)


def by_the_tree(summation, n, batches, rank, size):
    """The sum as it is made now."""
    summation.begin(n)
    for slot, gradient in batches.items():
        summation.turn_to(slot)
        summation.total.add_(gradient)
    summation.finish(rank, size)


def member(rank: int, size: int, n: int, args: argparse.Namespace, folder: Path) -> None:
    """One of the processes: seconds of each step, both ways."""
    import torch
    import torch.distributed as dist

    from asr.training.distributed.replicas import Summation, slots

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", store=dist.FileStore(str(folder / "meeting"), size), rank=rank, world_size=size
    )
    total = torch.zeros(int(args.parameters * 1e6))
    gradient = torch.randn_like(total)
    batches, summation, seconds = (
        dict.fromkeys(slots(n, rank, size), gradient),
        Summation(total),
        ([], []),
    )
    ways = (
        lambda: in_turn(total, batches, size),
        lambda: by_the_tree(summation, n, batches, rank, size),
    )
    for _ in range(WARM_UP + args.repeats):
        for way, samples in zip(ways, seconds, strict=True):
            dist.barrier()
            began = time.perf_counter()
            way()
            samples.append(time.perf_counter() - began)
    (folder / f"{rank}").write_text(json.dumps([samples[WARM_UP:] for samples in seconds]))
    dist.barrier()


def measure(size: int, n: int, args: argparse.Namespace) -> dict:
    """Measure both ways with these numbers of processes and batches."""
    from asr.training.distributed.replicas import waiting

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        members = [
            get_context("spawn").Process(target=member, args=(rank, size, n, args, folder))
            for rank in range(size)
        ]
        for one in members:
            one.start()
        for one in members:
            one.join()
        if any(one.exitcode for one in members):
            sys.exit("bench: a process failed")
        every = [json.loads((folder / f"{rank}").read_text()) for rank in range(size)]
    slowest = [
        [max(steps) for steps in zip(*(its[way] for its in every), strict=True)] for way in (0, 1)
    ]
    return {
        "processes": size,
        "accumulate": n,
        "in turn": slowest[0],
        "tree": slowest[1],
        "gradients": waiting(n, size),
    }


def main() -> None:
    """Measure all and print a table."""
    args = arguments()
    os.environ["OMP_NUM_THREADS"] = "1"
    rows = [measure(size, n, args) for size in args.processes for n in args.accumulate if n >= size]
    print(f"{args.parameters:g} M parameters, {os.cpu_count()} cores")
    print(
        "| processes | accumulate | in turn, ms | tree, ms | ratio | gradients beside |\n|---|---|---|---|---|---|"
    )
    for row in rows:
        turn, tree = (1000 * statistics.median(row[way]) for way in ("in turn", "tree"))
        cells = (
            row["processes"],
            row["accumulate"],
            f"{turn:.1f}",
            f"{tree:.1f}",
            f"{tree / turn:.2f}",
            row["gradients"],
        )
        print("|", " | ".join(map(str, cells)), "|")
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(rows) + "\n")


if __name__ == "__main__":
    main()
