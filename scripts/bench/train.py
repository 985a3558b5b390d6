"""Time our training beside ESPnet's and SpeechBrain's, in turn on the same machine, and print ratios.

    bash scripts/bench/environments.sh
    python -m scripts.bench.train --threads 1 --out train.json
    python -m scripts.bench.train --device cuda --workload many --peak-tflops 989 --precision bf16
    --compile 1

One optimizer step on the same batch of random features and labels (workload.py): forward, backward,
clipping, Adam. Seconds are medians over the repeats; the ratio is of seconds, to the first line.
`MB` is the peak of the process after all steps, its imports included; on a GPU that of PyTorch's
allocator in a step. Operations are those of products of matrices and convolutions in forward and
backward, padding included. `others` are the cores that others used in the busiest sample that
counts. Losses are each implementation's own mean; they must fall. Linux only.
"""

import argparse
import sys

from scripts.bench import report, turns, workload
from scripts.bench.turns import Row, Worker

PEERS, PRECISIONS = ("espnet", "speechbrain"), ("fp32", "bf16")
WARM_UP = 2  # steps: the first makes the optimizer's moments
UNEQUAL = 0.01  # of the numbers of parameters, at most


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = turns.parser(__doc__, PEERS)
    precisions = turns.names(PRECISIONS)
    parser.add_argument(
        "--workload", default="eight", choices=workload.SECONDS, help="default eight"
    )
    parser.add_argument(
        "--precision", type=precisions, default=PRECISIONS, help="ours: fp32,bf16 (default)"
    )
    parser.add_argument(
        "--peer-precision", type=precisions, default=["fp32"], help="peers': fp32 (default), bf16"
    )
    parser.add_argument(
        "--compile", type=int, choices=[0, 1], default=0, help="1: torch.compile ours (default 0)"
    )
    parser.add_argument("--d-model", type=int, help="instead of 256; heads stay 64 wide")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--peak-tflops", type=float, help="of the device, to tell shares of")
    return parser.parse_args()


def start(args: argparse.Namespace, script: str, options: dict, own: dict) -> list[Worker]:
    """Start all implementations, ours first.

    script   name of their scripts, before that of the implementation
    options  of all workers; own: of ours beside
    """
    options = {"threads": args.threads, "device": args.device, **options}
    kinds = [
        (name, sys.executable, "ours", {**options, **own, "precision": p}, root)
        for p in args.precision
        for name, root in turns.checkouts(args).items()
    ]
    kinds += [
        (peer, turns.python(peer), peer, {**options, "precision": p}, report.ROOT)
        for peer in args.peers
        for p in args.peer_precision
    ]
    return [
        Worker(f"{name}-{options['precision']}", python, f"{script}_{side}", options, root)
        for name, python, side, options, root in kinds
    ]


def measure(args: argparse.Namespace, workers: list[Worker]) -> list[Row]:
    """Take all samples, one step each; the operations are counted last, for that needs memory."""
    rows = [Row(args.workload, "step", worker.name) for worker in workers]
    for worker in workers:
        for _ in range(WARM_UP):
            worker.ask({"workload": args.workload})
    for _ in range(args.repeats):
        turns.turn(rows, workers, lambda name: {"workload": args.workload}, args)
    for row, worker in zip(rows, workers, strict=True):
        answer, _ = worker.ask({"workload": args.workload, "flops": True})
        row.samples[-1].update(answer)
    return rows


def check(rows: list[Row]) -> None:
    """Refuse models of different sizes, and losses that don't fall."""
    expected = rows[0].samples[0]["parameters"]
    for row in rows:
        found, losses = row.samples[0]["parameters"], [sample["loss"] for sample in row.samples]
        if abs(found - expected) > UNEQUAL * expected:
            sys.exit(
                f"bench: {row.name} has {found} parameters, {rows[0].name} {expected}; expected the same to 1 %"
            )
        if not losses[-1] < losses[0]:
            sys.exit(
                f"bench: the loss of {row.name} went from {losses[0]:.3f} to {losses[-1]:.3f}; expected a fall"
            )


def summary(rows: list[Row]) -> list[dict]:
    """The figures of the table; ratios are to the first implementation, which is ours."""
    audio = sum(workload.SECONDS[rows[0].workload])
    return [
        {
            "name": row.name,
            "seconds": row.median,
            "span": row.span,
            "speed": audio / row.median,
            "ratio": row.median / rows[0].median,
            "peak_mb": max(sample["peak_mb"] for sample in row.samples),
            "parameters": row.samples[0]["parameters"],
            "flops": row.samples[-1]["flops"],
            "rate": row.samples[-1]["flops"] / row.median,
            "losses": [row.samples[0]["loss"], row.samples[-1]["loss"]],
            "others": row.busiest,
        }
        for row in rows
    ]


def lay_out(lines: list[dict], peak_tflops: float | None) -> str:
    """The table for people."""
    heads = (
        "",
        "seconds",
        "min to max",
        "audio s/s",
        "ratio",
        "MB",
        "M params",
        "GFLOP",
        "GFLOP/s",
    )
    heads += ("% of peak",) if peak_tflops else ()
    rows = []
    for x in lines:
        figures = (
            f"{x['seconds']:.3f}",
            x["span"],
            f"{x['speed']:.1f}",
            f"{x['ratio']:.2f}",
            f"{x['peak_mb']}",
        )
        work = (f"{x['parameters'] / 1e6:.2f}", f"{x['flops'] / 1e9:.0f}", f"{x['rate'] / 1e9:.0f}")
        share = (f"{100 * x['rate'] / (peak_tflops * 1e12):.1f}",) if peak_tflops else ()
        losses = f"{x['losses'][0]:.2f} to {x['losses'][1]:.2f}"
        rows.append((x["name"], *figures, *work, *share, losses, f"{x['others']:.2f}"))
    return report.table((*heads, "loss", "others"), rows)


def present(args: argparse.Namespace, lines: list[dict]) -> None:
    """Print the table, and what was computed."""
    seconds = workload.SECONDS[args.workload]
    print(
        f"medians of {args.repeats} steps on {len(seconds)} utterances, {sum(seconds):.0f} s of audio\n"
    )
    print(lay_out(lines, args.peak_tflops))


def main() -> None:
    """Measure and tell."""
    args = arguments()
    facts = report.circumstances(args.device)
    workers = start(args, "train", {"d_model": args.d_model}, {"compile": args.compile})
    rows = measure(args, workers)
    for worker in workers:
        worker.stop()
    check(rows)
    lines = summary(rows)
    turns.tell(args, facts, workers, rows, lines)
    present(args, lines)


if __name__ == "__main__":
    main()
