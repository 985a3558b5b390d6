"""Where the time of our decoding goes, and what an utterance costs against its length.

    python -m scripts.bench.search_parts --threads 1 --out parts

Shares: one batch of 8 utterances; encoder, and each scorer's methods as the search calls them;
bookkeeping is what is left. Measuring costs a little, on a GPU more, where each call must be waited
for: the first line tells how much. Lengths: 5 to 60 s, 3 labels a second, no end before the limit;
one utterance alone, and a batch of as many as asr-decode puts together. Seconds are of an
utterance, the encoder included; memory is what the call needed above what stood before: on a GPU
PyTorch's own count, on a CPU that of the system, where Linux tells.

Writes OUT.shares.tsv, OUT.lengths.tsv, and OUT.lengths.png where matplotlib is installed.
"""

import argparse
import contextlib
import ctypes
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from asr.models.hybrid import Hybrid
from asr.transcription.encoding import encode_features
from asr.transcription.searcher import for_search
from scripts.bench import ours, report, workload
from scripts.bench.place import output

LABELS_HZ = 3  # of English speech in a vocabulary of 5000
LENGTHS = (5, 10, 15, 20, 30, 40, 50, 60)  # seconds


class Stopwatch:
    """Seconds by name. Of calls within calls, only the outer one counts."""

    def __init__(self, device: str):
        self.device, self.seconds, self.running = device, Counter(), False

    @contextlib.contextmanager
    def time(self, name: str) -> Iterator[None]:
        """Add the time that this takes."""
        if self.running:
            yield
            return
        self.running = True
        begun = now(self.device)
        yield
        self.seconds[name] += now(self.device) - begun
        self.running = False

    def wrap(self, name: str, scorer: object) -> "Timed":
        """The scorer with its methods timed."""
        return Timed(name, scorer, self)


class Timed:
    """A scorer whose methods are timed, whichever the search calls."""

    def __init__(self, name: str, scorer: object, stopwatch: Stopwatch):
        self._name, self._scorer, self._stopwatch = name, scorer, stopwatch

    def __getattr__(self, attribute: str):
        value = getattr(self._scorer, attribute)
        if not callable(value):
            return value

        def timed(*args, **kwargs):
            with self._stopwatch.time(f"{self._name} {attribute}"):
                return value(*args, **kwargs)

        return timed


@dataclass(frozen=True)
class Cost:
    """Of one utterance in a batch: seconds, and the batch's memory in MB (None where it can't be told)."""

    length: int
    batch: int
    seconds: float
    megabytes: float | None


def now(device: str) -> float:
    """The time when all that was begun is done."""
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter()


def random_batch(frames: int, B: int, device: str) -> tuple[Tensor, Tensor]:
    """Features (B, T, MELS) and lengths (B,)."""
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(B, frames, workload.MELS, generator=generator)
    return X.to(device), torch.full((B,), frames, device=device)


def decode(
    model: Hybrid, X: Tensor, X_lens: Tensor, labels: int, args: argparse.Namespace, stopwatch=None
) -> None:
    """Encode and search; timed in parts where there is a stopwatch."""
    with torch.no_grad():
        with stopwatch.time("encoder") if stopwatch else contextlib.nullcontext():
            encoded = encode_features(model.encoder, X, X_lens, args.precision)
        H, H_lens = encoded.H, encoded.H_lens
        wrap = {"wrap": stopwatch.wrap} if stopwatch else {}
        ours.search(model, H, H_lens, torch.full_like(H_lens, labels), args.mode == "joint", **wrap)


def measure_shares(model: Hybrid, args: argparse.Namespace) -> tuple[dict[str, float], float]:
    """Seconds by part, bookkeeping last, in the median over repeats; and the seconds of a run that isn't timed."""
    X, X_lens = (x.to(args.device) for x in workload.pad(workload.features("eight")))
    labels, plain, parts = workload.STEPS - 1, [], []
    decode(model, X, X_lens, labels, args)  # warm up
    for _ in range(args.repeats):
        begun = now(args.device)
        decode(model, X, X_lens, labels, args)
        plain.append(now(args.device) - begun)
        stopwatch = Stopwatch(args.device)
        begun = now(args.device)
        decode(model, X, X_lens, labels, args, stopwatch)
        total = now(args.device) - begun
        parts.append({**stopwatch.seconds, "bookkeeping": total - stopwatch.seconds.total()})
    medians = {name: statistics.median(part[name] for part in parts) for name in parts[0]}
    return medians, statistics.median(plain)


def measure_length(model: Hybrid, length: int, B: int, args: argparse.Namespace) -> Cost:
    """What an utterance of some seconds costs in a batch of B."""
    X, X_lens = random_batch(length * workload.FRAMES_HZ, B, args.device)
    decode(model, X, X_lens, 1, args)  # warm up
    megabytes = memory(lambda: decode(model, X, X_lens, LABELS_HZ * length, args), args.device)
    seconds = []
    for _ in range(args.repeats):
        begun = now(args.device)
        decode(model, X, X_lens, LABELS_HZ * length, args)
        seconds.append(now(args.device) - begun)
    return Cost(length, B, statistics.median(seconds) / B, megabytes)


def memory(call: Callable[[], None], device: str) -> float | None:
    """MB at the peak of a call above what stood before it."""
    if device != "cpu":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        call()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # what is free already must not hide what is needed
        Path("/proc/self/clear_refs").write_text("5")  # sets the peak back to what is used now
    except (OSError, AttributeError):
        call()
        return None
    before = resident("VmRSS")
    call()
    return (resident("VmHWM") - before) / 1024


def resident(field: str) -> int:
    """A line of /proc/self/status, KB."""
    return next(
        int(line.split()[1]) for line in Path("/proc/self/status").open() if line.startswith(field)
    )


def write(path: str, heads: tuple, rows: list[tuple]) -> None:
    """Write a table, and print it."""
    rows = [tuple("" if cell is None else f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row)
            for row in rows]  # fmt: skip
    Path(path).write_text(
        "".join("\t".join(row) + "\n" for row in (heads, *rows)), encoding="utf-8"
    )
    print(report.table(heads, rows) + "\n")


def plot(path: str, costs: list[Cost], mode: str) -> None:
    """Draw seconds and memory against length; without matplotlib, nothing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return print(f"no {path}: matplotlib is not installed")
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    seconds, megabytes = figure.subplots(1, 2)
    for alone, name in ((True, "alone"), (False, "in a batch of asr-decode's size")):
        line = [cost for cost in costs if (cost.batch == 1) == alone]
        seconds.plot([c.length for c in line], [c.seconds for c in line], "o-", label=name)
        megabytes.plot(
            [c.length for c in line], [c.megabytes or 0.0 for c in line], "o-", label=name
        )
    for axes, what in (
        (seconds, f"seconds an utterance, {mode} search"),
        (megabytes, "memory of the batch, MB"),
    ):
        axes.set(xlabel="length of the utterance, s", ylabel=what, xlim=0, ylim=0)
        axes.legend()
    figure.savefig(path, dpi=120)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mode", default="joint", choices=["joint", "attention"])
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=1, help="default 1")
    parser.add_argument("--repeats", type=int, default=3, help="medians are taken of (default 3)")
    parser.add_argument(
        "--lengths", type=int, nargs="*", default=LENGTHS, metavar="S", help="none: shares only"
    )
    parser.add_argument(
        "--batch-seconds", type=float, default=120.0, help="of audio a batch (default 120)"
    )
    parser.add_argument(
        "--out", type=output, default="parts", help="beginning of the files' names (default parts)"
    )
    return parser.parse_args()


def main() -> None:
    """Measure and tell."""
    args = arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    model = for_search(ours.build_endless(args.device), args.precision)
    print(report.heading(report.circumstances(args.device), args.threads))
    parts, plain = measure_shares(model, args)
    total = sum(parts.values())
    print(
        f"{args.mode} search, {args.precision}, 8 utterances: {plain:.2f} s, {total:.2f} s while measured in parts\n"
    )
    heads = ("part", "seconds", "share_%")
    write(
        f"{args.out}.shares.tsv", heads, [(name, s, 100 * s / total) for name, s in parts.items()]
    )
    groups = Counter()
    for name, s in parts.items():
        groups[name.split()[0]] += s
    print(", ".join(f"{name} {100 * s / total:.0f} %" for name, s in groups.items()) + "\n")
    costs = []
    for length in args.lengths:
        for B in sorted({1, max(1, int(args.batch_seconds // length))}):
            costs.append(measure_length(model, length, B, args))
    if costs:
        heads = ("length_s", "batch", "seconds_per_utterance", "memory_MB")
        write(
            f"{args.out}.lengths.tsv",
            heads,
            [(c.length, c.batch, c.seconds, c.megabytes) for c in costs],
        )
        plot(f"{args.out}.lengths.png", costs, args.mode)


if __name__ == "__main__":
    main()
