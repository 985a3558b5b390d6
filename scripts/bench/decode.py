"""Time our decoding beside ESPnet's and SpeechBrain's, in turn on the same machine, and print ratios.

    bash scripts/bench/environments.sh
    python -m scripts.bench.decode --threads 1 --out bench.json

What is computed stands in workload.py: sizes, utterances, 30 decoder steps in every search,
whatever the weights. Seconds are medians over the repeats; they include the encoder and leave out
features. `ms` is of a decoder step of one utterance, the encoder subtracted; `others` the cores
that others used in the busiest sample that counts.

OMP_* variables are left as they are, and printed: a passive wait policy is wrong for small
operations with two threads on a quiet machine, the default one on a busy machine. Linux only.
"""

import argparse
import functools
import sys

from scripts.bench import ours, report, turns, workload
from scripts.bench.turns import Row, Worker

PEERS = ("espnet", "speechbrain")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = turns.parser(__doc__, PEERS)
    workloads, parts, precisions = tuple(workload.SECONDS), workload.PARTS, ("fp32", "bf16")
    parser.add_argument(
        "--workload", type=turns.names(workloads), default=workloads, help="eight,many (default)"
    )
    parser.add_argument(
        "--parts", type=turns.names(parts), default=parts, help="encoder,attention,joint (default)"
    )
    help = "ours: fp32 (default), bf16, or fp32,bf16"
    parser.add_argument("--precision", type=turns.names(precisions), default=["fp32"], help=help)
    parser.add_argument(
        "--batch-seconds", type=float, default=120.0, help="of padded audio a batch (default 120)"
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    return parser.parse_args()


def start(args: argparse.Namespace) -> list[Worker]:
    """Start all implementations, ours first."""
    pythons = {peer: turns.python(peer) for peer in args.peers}
    options = {"threads": args.threads, "device": args.device}
    workers = [
        Worker(f"{name}-{p}", sys.executable, "decode_ours", {**options, "precision": p}, root)
        for p in args.precision
        for name, root in turns.checkouts(args).items()
    ]
    return workers + [
        Worker(peer, python, f"decode_{peer}", options) for peer, python in pythons.items()
    ]


def request(
    name: str, part: str, implementation: str, batch_seconds: float, first: bool = False
) -> dict:
    """Say what to compute: in batches as asr-decode makes them, but ESPnet one by one; or the first batch alone."""
    seconds = workload.SECONDS[name]
    batches = ours.batches(seconds, batch_seconds)
    if implementation == "espnet":
        batches = [[n] for batch in batches for n in batch]
    return {"workload": name, "part": part, "batches": batches[:1] if first else batches}


def measure(args: argparse.Namespace, workers: list[Worker]) -> list[Row]:
    """Take all samples: implementations in turn within parts, and these within repeats."""
    rows = []
    for name in args.workload:
        group = {part: [Row(name, part, worker.name) for worker in workers] for part in args.parts}
        for part in args.parts:
            for worker in workers:  # warm up
                worker.ask(request(name, part, worker.name, args.batch_seconds, first=True))
        for _ in range(args.repeats):
            for part in args.parts:
                what = functools.partial(request, name, part, batch_seconds=args.batch_seconds)
                turns.turn(group[part], workers, what, args)
        rows += [row for part in args.parts for row in group[part]]
    return rows


def summary(rows: list[Row]) -> list[dict]:
    """The figures of the table; ratios are to the first implementation, which is ours."""
    median = {(row.workload, row.part, row.name): row.median for row in rows}
    first = rows[0].name

    def searching(row: Row, name: str) -> float:
        return median[row.workload, row.part, name] - median[row.workload, "encoder", name]

    lines = []
    for row in rows:
        seconds = workload.SECONDS[row.workload]
        line = {
            "workload": row.workload,
            "part": row.part,
            "name": row.name,
            "seconds": row.median,
            "span": row.span,
            "rtf": row.median / sum(seconds),
            "ratio": row.median / median[row.workload, row.part, first],
            "others": row.busiest,
        }
        if row.part != "encoder" and (row.workload, "encoder", row.name) in median:
            line["ms"] = 1000 * searching(row, row.name) / (workload.STEPS * len(seconds))
            line["ms_ratio"] = searching(row, row.name) / searching(row, first)
        lines.append(line)
    return lines


def lay_out(lines: list[dict]) -> str:
    """The table for people."""
    heads = (
        "workload",
        "part",
        "",
        "seconds",
        "min to max",
        "RTF",
        "ratio",
        "ms",
        "ratio",
        "others",
    )
    rows = []
    for x in lines:
        search = (f"{x['ms']:.2f}", f"{x['ms_ratio']:.2f}") if "ms" in x else ("", "")
        figures = (
            f"{x['seconds']:.2f}",
            x["span"],
            f"{x['rtf']:.4f}",
            f"{x['ratio']:.2f}",
            *search,
        )
        rows.append((x["workload"], x["part"], x["name"], *figures, f"{x['others']:.2f}"))
    return report.table(heads, rows, texts=3)


def main() -> None:
    """Measure and tell."""
    args = arguments()
    facts, workers = report.circumstances(args.device), start(args)
    rows = measure(args, workers)
    for worker in workers:
        worker.stop()
    lines = summary(rows)
    turns.tell(args, facts, workers, rows, lines)
    print(
        f"medians of {args.repeats}; {workload.STEPS} decoder steps, beam {workload.BEAM}, "
        f"CTC weight {workload.CTC_WEIGHT} in joint search\n"
    )
    print(lay_out(lines))


if __name__ == "__main__":
    main()
