"""Time our decoding beside ESPnet's and SpeechBrain's, in turn on the same machine, and print ratios.

    bash scripts/bench/environments.sh
    python scripts/bench/decode.py --threads 1 --out bench.json

Each implementation is a process of its own that stays; all take turns (A B C A B C ...), so that a change of the
machine's mood meets all. A sample during which others used the cores is taken again. What is computed stands in
workload.py: sizes, utterances, 30 decoder steps in every search, whatever the weights. Seconds are medians over the
repeats; they include the encoder and leave out features. `ms` is of a decoder step of one utterance, the encoder
subtracted; `others` the cores that others used in the busiest sample that counts.

OMP_* variables are left as they are, and printed: a passive wait policy is wrong for small operations with two threads
on a quiet machine, the default one on a busy machine. Linux only.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import ours
import report
import workload
from load import Load, Mark

HERE = Path(__file__).parent
BENCH = report.ROOT / ".bench"  # environments and logs
PEERS = ("espnet", "speechbrain")
PAUSE = 0.5  # seconds before a sample: threads of the one before have stopped spinning


class Worker:
    """A process that answers requests; what it says beside goes to a log in .bench."""

    def __init__(self, name: str, python: str | Path, script: str, args: argparse.Namespace, precision: str = "fp32"):
        self.name = name
        self.log = BENCH / f"{name}.log"
        self.log.parent.mkdir(exist_ok=True)
        reading, writing = os.pipe()  # for answers alone: libraries print to stdout while they are imported
        options = ["--threads", args.threads, "--device", args.device, "--precision", precision, "--answers", writing]
        threads = {"OMP_NUM_THREADS": str(args.threads), "MKL_NUM_THREADS": str(args.threads)}
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [python, HERE / script, *map(str, options)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                env={**os.environ, **threads},
                pass_fds=[writing],
            )
        os.close(writing)
        self.answers = os.fdopen(reading)
        self.description = self._answer()

    def ask(self, request: dict) -> tuple[dict, Load]:
        """Send a request, wait for the answer; with the load that others were meanwhile."""
        pids = (self.process.pid, os.getpid())
        before = Mark.now(pids)
        print(json.dumps(request), file=self.process.stdin, flush=True)
        answer = self._answer()
        return answer, before.until(Mark.now(pids))

    def _answer(self) -> dict:
        line = self.answers.readline()
        if not line:
            log = self.log.relative_to(report.ROOT)
            sys.exit(f"decode: the worker of {self.name} has failed; the end of {log} says why")
        return json.loads(line)

    def stop(self) -> None:
        """Let it end."""
        self.process.stdin.close()
        self.process.wait()


@dataclass
class Row:
    """All samples of one implementation at one part of a workload; `seconds` are those that count."""

    workload: str
    part: str
    name: str
    samples: list[dict] = field(default_factory=list)

    @property
    def seconds(self) -> list[float]:
        """Of the samples that were kept."""
        return [sample["seconds"] for sample in self.samples if sample["kept"]]

    @property
    def median(self) -> float:
        """Seconds."""
        return statistics.median(self.seconds)

    @property
    def busiest(self) -> float:
        """Cores that others used in the worst of the kept samples."""
        return max(sample["foreign"] + sample["steal"] for sample in self.samples if sample["kept"])

    def sample(self, worker: Worker, request: dict, busy: float, tries: int) -> dict:
        """Take one sample; again while others are busy. The least disturbed one is kept, and returned."""
        taken = []
        for _ in range(tries):
            time.sleep(PAUSE)
            answer, load = worker.ask(request)
            taken.append({**answer, **asdict(load), "kept": False})
            if load.total <= busy:
                break
        kept = min(taken, key=lambda sample: sample["foreign"] + sample["steal"])
        kept["kept"] = True
        self.samples += taken
        return kept


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = lambda text: text.split(",") if text else []  # noqa: E731
    parser.add_argument("--peers", type=names, default=list(PEERS), help="espnet,speechbrain (default), '' for none")
    parser.add_argument("--workload", type=names, default=list(workload.SECONDS), help="eight,many (default)")
    parser.add_argument("--parts", type=names, default=list(workload.PARTS), help="encoder,attention,joint (default)")
    parser.add_argument("--precision", type=names, default=["fp32"], help="ours: fp32 (default), bf16, or fp32,bf16")
    parser.add_argument("--threads", type=int, default=1, help="of each implementation (default 1)")
    parser.add_argument("--repeats", type=int, default=5, help="samples that count (default 5)")
    parser.add_argument("--batch-seconds", type=float, default=120.0, help="of padded audio a batch (default 120)")
    parser.add_argument("--busy", type=float, default=0.1, help="cores that others may use (default 0.1)")
    parser.add_argument("--tries", type=int, default=4, help="for one sample on a busy machine (default 4)")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--out", metavar="JSON", help="write all samples there")
    args = parser.parse_args()
    known = {"peers": PEERS, "workload": workload.SECONDS, "parts": workload.PARTS, "precision": ("fp32", "bf16")}
    for option, names in known.items():
        for name in getattr(args, option):
            if name not in names:
                parser.error(f"--{option}: got {name!r}, expected some of {', '.join(names)}")
    return args


def start(args: argparse.Namespace) -> list[Worker]:
    """Start all implementations, ours first."""
    pythons = {peer: BENCH / peer / "bin" / "python" for peer in args.peers}
    for peer, python in pythons.items():
        if not python.exists():
            sys.exit(f"decode: {peer} has no environment; `bash scripts/bench/environments.sh {peer}` makes it")
    workers = [Worker(f"ours-{p}", sys.executable, "worker_ours.py", args, p) for p in args.precision]
    return workers + [Worker(peer, python, f"worker_{peer}.py", args) for peer, python in pythons.items()]


def request(name: str, part: str, implementation: str, batch_seconds: float, first: bool = False) -> dict:
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
        for n in range(args.repeats):
            for part in args.parts:
                for row, worker in zip(group[part], workers, strict=True):
                    what = request(name, part, worker.name, args.batch_seconds)
                    sample = row.sample(worker, what, args.busy, args.tries)
                    note = f"{name} {part} {n + 1}/{args.repeats} {worker.name}: {sample['seconds']:.2f} s"
                    print(note, file=sys.stderr, flush=True)
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
            "low": min(row.seconds),
            "high": max(row.seconds),
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
    heads = ("workload", "part", "", "seconds", "min to max", "RTF", "ratio", "ms", "ratio", "others")
    rows = []
    for x in lines:
        span = f"{x['low']:.2f} to {x['high']:.2f}"
        search = (f"{x['ms']:.2f}", f"{x['ms_ratio']:.2f}") if "ms" in x else ("", "")
        figures = (f"{x['seconds']:.2f}", span, f"{x['rtf']:.4f}", f"{x['ratio']:.2f}", *search, f"{x['others']:.2f}")
        rows.append((x["workload"], x["part"], x["name"], *figures))
    return report.table(heads, rows, texts=3)


def main() -> None:
    """Measure and tell."""
    args = arguments()
    facts = {**vars(args), **report.circumstances(args.device)}
    workers = start(args)
    facts["implementations"] = {worker.name: worker.description["versions"] for worker in workers}
    rows = measure(args, workers)
    for worker in workers:
        worker.stop()
    lines = summary(rows)
    if args.out:
        text = json.dumps({**facts, "table": lines, "samples": [asdict(row) for row in rows]}, indent=1)
        Path(args.out).write_text(text + "\n", encoding="utf-8")
    print(report.heading(facts, args.threads))
    for name, versions in facts["implementations"].items():
        print(f"{name}: " + ", ".join(f"{package} {number}" for package, number in versions.items()))
    print(
        f"medians of {args.repeats}; {workload.STEPS} decoder steps, beam {workload.BEAM}, "
        f"CTC weight {workload.CTC_WEIGHT} in joint search\n"
    )
    print(lay_out(lines))


if __name__ == "__main__":
    main()
