"""The metrics of a run: means over steps, the file metrics.jsonl, and how they are shown to a person."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from asr.errors import UserError
from asr.files import append_text, write_text

# these differ from run to run, all others repeat exactly
TIMES = {
    "date",
    "wait",
    "s_per_second",
    "tokens_per_second",
}
SHOWN = {  # metric → its short name and its format
    "ctc": ("ctc", "{:.3f}"),
    "inter": ("inter", "{:.3f}"),
    "cr": ("cr", "{:.3f}"),
    "attention": ("att", "{:.3f}"),
    "nll": ("loss", "{:.3f}"),
    "loss": ("loss", "{:.3f}"),
    "accuracy": ("acc", "{:.1%}"),
    "wer": ("wer", "{:.2%}"),
    "ctc_wer": ("ctc-wer", "{:.2%}"),
    "cer": ("cer", "{:.2%}"),
    "ctc_cer": ("ctc-cer", "{:.2%}"),
    "perplexity": ("ppl", "{:.2f}"),
    "word_perplexity": ("word-ppl", "{:.2f}"),
    "gradient_norm": ("norm", "{:.2f}"),
    "lr": ("lr", "{:.2e}"),
    "wait": ("wait", "{:.0%}"),
}


@dataclass
class RunningMeans:
    """Sums over steps; plain numbers, so that a checkpoint holds them to the bit.

    sums     of the loss, by name, "correct" and "tokens" among them; of steps where all of them are
             finite
    norm     of the gradients, over `steps`: those where it is finite
    amount   in the unit of throughput
    wait     seconds of waiting for data, of `seconds` in all
    """

    sums: dict[str, float] = field(default_factory=dict)
    norm: float = 0.0
    steps: int = 0
    amount: float = 0.0
    wait: float = 0.0
    seconds: float = 0.0

    def add(
        self, sums: Mapping[str, float], norm: float, amount: float, wait: float, seconds: float
    ) -> None:
        """Add a step."""
        if all(map(math.isfinite, sums.values())):
            for name, value in sums.items():
                self.sums[name] = self.sums.get(name, 0.0) + value
        if math.isfinite(norm):
            self.norm, self.steps = self.norm + norm, self.steps + 1
        self.amount, self.wait, self.seconds = (
            self.amount + amount,
            self.wait + wait,
            self.seconds + seconds,
        )

    def losses(self) -> dict[str, float]:
        """Means per target token of the loss's sums, and `accuracy`, the share of targets that were right."""
        means = {
            name: value / max(self.sums["tokens"], 1)
            for name, value in self.sums.items()
            if name != "tokens"
        }
        if "correct" in means:
            means["accuracy"] = means.pop("correct")
        return means

    def gradient_norm(self) -> float:
        """Mean over the steps where it is finite; NaN if there's none."""
        return self.norm / self.steps if self.steps else math.nan

    def times(self, unit: str) -> dict[str, float]:
        """Throughput, and the share of time spent waiting for data; nothing before a second has been counted."""
        if not self.seconds:
            return {}
        return {f"{unit}_per_second": self.amount / self.seconds, "wait": self.wait / self.seconds}


class MetricsFile:
    """The file metrics.jsonl. All its lines have `kind`, `date`, `step` (optimizer steps done) and `epoch` (done).

    kind train      means of the steps since the last such line, but for `lr`, which is this step's
    kind dev        metrics of a validation
    kind candidate  dev metrics of weights that could have become the model: `name`, and `chosen`
                    for the one that did
    A number that isn't finite is null.
    """

    def __init__(self, path: Path):
        self.path = path

    def write(self, kind: str, step: int, epoch: float, **facts: object) -> None:
        """Append a line."""
        date = datetime.now().astimezone().isoformat(timespec="seconds")
        facts = {"kind": kind, "date": date, "step": step, "epoch": epoch, **facts}
        facts = {name: fact if _in_json(fact) else None for name, fact in facts.items()}
        append_text(self.path, json.dumps(facts, allow_nan=False) + "\n")

    def read(self) -> list[dict]:
        """The whole lines; a kill or a full disk may have cut the last.

        raises   UserError that names a line which is damaged otherwise
        """
        if not self.path.exists():
            return []
        lines = self.path.read_bytes().splitlines(keepends=True)
        return [
            self._parse(number, line)
            for number, line in enumerate(lines, 1)
            if line.endswith(b"}\n")
        ]

    def _parse(self, number: int, line: bytes) -> dict:
        try:
            found = json.loads(line)
            if isinstance(found, dict) and {"kind", "step"} <= found.keys():
                return found
        except (ValueError, RecursionError):
            pass
        raise UserError(
            f"{self.path}:{number}: damaged, not a line of metrics; take it out; no weights depend on it"
        )

    def rewind(self, step: int, validated: int) -> None:
        """Forget what a run that continues after `step` comes to again.

        validated:  step of its last validation; one at `step` itself may be still to come
        """
        if not self.path.exists():
            return
        last = {"train": step, "dev": min(validated, step), "candidate": -1}
        kept = [line for line in self.read() if line["step"] <= last[line["kind"]]]
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in kept))


def _in_json(fact: object) -> bool:
    return not isinstance(fact, float) or math.isfinite(fact)


def label(name: str) -> str:
    """Short name of a metric; of one that isn't in SHOWN, its own."""
    return SHOWN[name][0] if name in SHOWN else name


def value(name: str, number: float) -> str:
    """A metric's number, as SHOWN has it or to four digits.

    >>> value("wer", 0.08312), value("s_per_second", 142.4), value("anything", 2 / 3)
    ('8.31%', '142', '0.6667')
    """
    if name.endswith("_per_second"):
        return f"{number:.0f}" if number >= 10 else f"{number:.1f}"
    return SHOWN[name][1].format(number) if name in SHOWN else f"{number:.4g}"


def line(metrics: Mapping[str, float]) -> str:
    """Metrics one after the other; throughput with its unit.

    >>> line({"accuracy": 0.913, "s_per_second": 142.4, "wait": 0.03})
    'acc 91.3% 142 s/s wait 3%'
    """
    return " ".join(_entry(name, number) for name, number in metrics.items())


def table(rows: Mapping[str, Mapping[str, float]], marked: str, mark: str) -> str:
    """One line per row, `mark` after the marked one; one column per metric, "-" where a row lacks it."""
    names = list(dict.fromkeys(name for metrics in rows.values() for name in metrics))
    cells = [["", *map(label, names)]]
    for row, metrics in rows.items():
        cells.append(
            [row, *(value(name, metrics[name]) if name in metrics else "-" for name in names)]
        )
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    marks = ["", *(mark if row == marked else "" for row in rows)]
    lines = []
    for (row, *numbers), end in zip(cells, marks, strict=True):
        aligned = [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
        lines.append("  ".join([f"  {row.ljust(widths[0])}", *aligned, end]).rstrip())
    return "\n".join(lines)


def _entry(name: str, number: float) -> str:
    unit, throughput, _ = name.partition("_per_second")
    return (
        f"{value(name, number)} {unit}/s" if throughput else f"{label(name)} {value(name, number)}"
    )
