"""Implementations in turn on the same machine: each a process of its own that stays; the driver's side.

All take turns (A B C A B C ...), so that a change of the machine's mood meets all. A sample during
which others used the cores is taken again. Linux only.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from scripts.bench import report
from scripts.bench.load import Load, Mark
from scripts.bench.place import output

BENCH = report.ROOT / ".bench"  # environments and logs
PAUSE = 0.5  # seconds before a sample: threads of the one before have stopped spinning


class Worker:
    """A process that answers requests; what it says beside goes to a log in .bench.

    options    of its command line, beside `answers`; a value of None leaves one out
    checkout   whose scripts and whose toolkit it runs
    """

    def __init__(
        self,
        name: str,
        python: str | Path,
        script: str,
        options: Mapping[str, object],
        checkout: Path = report.ROOT,
    ):
        self.name = name
        self.log = BENCH / f"{name}.log"
        self.log.parent.mkdir(exist_ok=True)
        reading, writing = (
            os.pipe()
        )  # for answers alone: libraries print to stdout while they are imported
        given = {**options, "answers": writing}
        words = [
            f"--{option.replace('_', '-')}={value}"
            for option, value in given.items()
            if value is not None
        ]
        threads = {
            "OMP_NUM_THREADS": str(options["threads"]),
            "MKL_NUM_THREADS": str(options["threads"]),
        }
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [python, "-m", f"scripts.bench.{script}", *words],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                env={**os.environ, **threads},
                cwd=checkout,
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
            sys.exit(f"bench: the worker of {self.name} has failed; the end of {log} says why")
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
    def kept(self) -> list[dict]:
        """The samples that count."""
        return [sample for sample in self.samples if sample["kept"]]

    @property
    def seconds(self) -> list[float]:
        """Of the samples that were kept."""
        return [sample["seconds"] for sample in self.kept]

    @property
    def median(self) -> float:
        """Seconds."""
        return statistics.median(self.seconds)

    @property
    def span(self) -> str:
        """The least and the greatest of the seconds."""
        return f"{min(self.seconds):.2f} to {max(self.seconds):.2f}"

    @property
    def busiest(self) -> float:
        """Cores that others used in the worst of the kept samples."""
        return max(sample["foreign"] + sample["steal"] for sample in self.kept)

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


def turn(
    rows: Sequence[Row], workers: Sequence[Worker], request: Callable, args: argparse.Namespace
) -> None:
    """One sample of each implementation; request(its name) says what to compute."""
    for row, worker in zip(rows, workers, strict=True):
        sample = row.sample(worker, request(worker.name), args.busy, args.tries)
        note = f"{row.workload} {row.part} {len(row.kept)}/{args.repeats} {worker.name}: {sample['seconds']:.2f} s"
        print(note, file=sys.stderr, flush=True)


def parser(description: str, peers: Sequence[str]) -> argparse.ArgumentParser:
    """The arguments that all benchmarks have."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    text = f"{','.join(peers)} (default), '' for none"
    parser.add_argument("--peers", type=names(peers), default=list(peers), help=text)
    parser.add_argument("--threads", type=int, default=1, help="of each implementation (default 1)")
    parser.add_argument("--repeats", type=int, default=5, help="samples that count (default 5)")
    parser.add_argument(
        "--busy", type=float, default=0.1, help="cores that others may use (default 0.1)"
    )
    parser.add_argument(
        "--tries", type=int, default=4, help="for one sample on a busy machine (default 4)"
    )
    parser.add_argument("--out", type=output, metavar="JSON", help="write all samples there")
    text = "another checkout of this project, e.g. made by git worktree: time it, too"
    parser.add_argument("--before", type=checkout, metavar="FOLDER", help=text)
    return parser


def checkout(path: str) -> Path:
    """Read an argument that names a checkout of this project."""
    if not (Path(path) / "scripts" / "bench" / "worker.py").is_file():
        raise argparse.ArgumentTypeError(f"{path}: no checkout of this project with benchmarks")
    return Path(path).resolve()


def checkouts(args: argparse.Namespace) -> dict[str, Path]:
    """Name → checkout of what is ours, this one first."""
    return {"ours": report.ROOT, **({"before": args.before} if args.before else {})}


def names(known: Sequence[str]) -> Callable[[str], list[str]]:
    """A type of argparse: some of the known names, with commas."""

    def read(text: str) -> list[str]:
        found = text.split(",") if text else []
        for name in found:
            if name not in known:
                raise argparse.ArgumentTypeError(
                    f"got {name!r}, expected some of {', '.join(known)}"
                )
        return found

    return read


def python(peer: str) -> Path:
    """The Python of a peer's environment."""
    path = BENCH / peer / "bin" / "python"
    if not path.exists():
        sys.exit(
            f"bench: {peer} has no environment; `bash scripts/bench/environments.sh {peer}` makes it"
        )
    return path


def tell(
    args: argparse.Namespace,
    facts: dict,
    workers: Sequence[Worker],
    rows: Sequence[Row],
    lines: list,
) -> None:
    """Print where it ran and what with; write that and all samples to a file if one is wanted."""
    versions = {worker.name: worker.description["versions"] for worker in workers}
    if args.out:
        samples = [asdict(row) for row in rows]
        found = {
            **vars(args),
            **facts,
            "implementations": versions,
            "table": lines,
            "samples": samples,
        }
        Path(args.out).write_text(json.dumps(found, indent=1, default=str) + "\n", encoding="utf-8")
    print(report.heading(facts, args.threads))
    if args.before:
        print(f"before: commit {report.commit(args.before)}")
    for name, packages in versions.items():
        print(
            f"{name}: " + ", ".join(f"{package} {number}" for package, number in packages.items())
        )
