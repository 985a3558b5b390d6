"""Time our log-mel features beside those of torchaudio, lhotse, ESPnet and SpeechBrain, in turn, and print ratios.

    bash scripts/bench/environments.sh
    python -m scripts.bench.features --threads 1 --out features.json

64 random waveforms of 2 to 25 s, 16 kHz. Ours, ESPnet and SpeechBrain compute padded batches as
asr-train plans them (lengths alike together), torchaudio and lhotse one waveform after the other.
Seconds are medians over the repeats; padding is the batches' loss: seconds of audio are of the
waveforms alone. Ours and torchaudio's are the same features, whose greatest difference is printed;
the others' differ in window, edges or scale. Linux only.
"""

import argparse
import sys

import torch

from asr.data.bucketing import plan
from scripts.bench import features_worker, report, turns, workload
from scripts.bench.turns import Row, Worker

PEERS = ("torchaudio", "lhotse", "espnet", "speechbrain")
ALONE = ("torchaudio", "lhotse")  # compute one waveform at a time, in our own environment
WORKLOAD = "many"


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = turns.parser(__doc__, PEERS)
    parser.add_argument(
        "--batch-seconds", type=float, default=120.0, help="of padded audio a batch (default 120)"
    )
    return parser.parse_args()


def start(args: argparse.Namespace) -> list[Worker]:
    """Start all implementations, ours first."""
    kinds = [(name, sys.executable, "ours", root) for name, root in turns.checkouts(args).items()]
    kinds += [
        (name, sys.executable if name in ALONE else turns.python(name), name, report.ROOT)
        for name in args.peers
    ]
    return [
        Worker(name, python, "features_worker", {"threads": args.threads, "name": kind}, root)
        for name, python, kind, root in kinds
    ]


def batches(name: str, batch_seconds: float) -> list[list[int]]:
    """The numbers of the waveforms that an implementation gets at once."""
    seconds = workload.SECONDS[WORKLOAD]
    if name in ALONE:
        return [[n] for n in range(len(seconds))]
    return [batch for [batch] in plan(seconds, batch_seconds, seed=0, epoch=0)]


def measure(args: argparse.Namespace, workers: list[Worker]) -> list[Row]:
    """Take all samples."""
    rows = [Row(WORKLOAD, "features", worker.name) for worker in workers]
    for n in range(args.repeats + 1):
        if n == 0:
            for worker in workers:  # warm up
                worker.ask({"batches": batches(worker.name, args.batch_seconds)})
        else:
            turns.turn(
                rows, workers, lambda name: {"batches": batches(name, args.batch_seconds)}, args
            )
    return rows


def difference() -> float:
    """The greatest absolute difference of our features, in their batches, from torchaudio's."""
    ours, torchaudio = features_worker.ours(), features_worker.torchaudio()
    waveforms, found = workload.waveforms(WORKLOAD), 0.0
    for batch in batches("ours", 120.0):
        X, X_lens = ours(*workload.pad([waveforms[n] for n in batch]))
        for n, x, T in zip(batch, X, X_lens.tolist(), strict=True):
            found = max(
                found, float((x[:T] - torchaudio(waveforms[n].unsqueeze(0), None)).abs().max())
            )
    return found


def summary(rows: list[Row]) -> list[dict]:
    """The figures of the table; ratios are to the first implementation, which is ours."""
    audio = sum(workload.SECONDS[WORKLOAD])
    return [
        {
            "name": row.name,
            "seconds": row.median,
            "span": row.span,
            "speed": audio / row.median,
            "ratio": row.median / rows[0].median,
            "others": row.busiest,
        }
        for row in rows
    ]


def lay_out(lines: list[dict]) -> str:
    """The table for people."""
    rows = [
        (
            x["name"],
            f"{x['seconds']:.3f}",
            x["span"],
            f"{x['speed']:.0f}",
            f"{x['ratio']:.2f}",
            f"{x['others']:.2f}",
        )
        for x in lines
    ]
    return report.table(("", "seconds", "min to max", "audio s/s", "ratio", "others"), rows)


def main() -> None:
    """Measure and tell."""
    args = arguments()
    facts, workers = report.circumstances("cpu"), start(args)
    rows = measure(args, workers)
    for worker in workers:
        worker.stop()
    lines = summary(rows)
    turns.tell(args, facts, workers, rows, lines)
    print(
        f"medians of {args.repeats}; ours differ from torchaudio's by {difference():.1e} at most\n"
    )
    print(lay_out(lines))


if __name__ == "__main__":
    torch.set_num_threads(1)  # the driver's own
    main()
