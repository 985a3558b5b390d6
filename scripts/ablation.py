"""Compare encoders and settings on a recipe's corpus: trainings of similar time, and their word error rates on dev.

    python -m scripts.ablation OUT [--plan FILE.yaml] [--minutes 10] [--setting NAME ...] [key.path=value ...]

The plan names a configuration, whose data and tokenizer the recipe has made, and the settings; that of
AN4 unless given (scripts/ablations/). Each setting has a folder in OUT. First, one epoch measures its
pace. Then it is trained for as many epochs as fit into the minutes, so that its schedule reaches its
end, and dev is decoded by CTC greedy and by joint beam search. An epoch of the base just before shows
how much slower the machine has become since the base's own training; a setting's minutes are multiplied
by that. The same command again continues where it stopped, skips what is finished, and prints the whole
table as Markdown. key.path=value changes all settings.

"base" is the configuration with the changes that the plan makes to all. Each other setting changes it in
one way. "s/s" are seconds of audio that a second of training takes in, on the machine as it was for the
base. Errors are counted as MER, which equals WER where words have spaces between them. "minus base's" is
a setting's error rate less that of the base, where that one is decoded, with the 95 % interval of the
paired bootstrap. The interval is of these two trainings: how much two differ that have nothing but the
seed for a difference, "another_seed" tells.
"""

import json
import shlex
import signal
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from asr import config, stamp
from asr.cli.command import command, parser
from asr.config import Settings
from asr.data import columns as table
from asr.errors import UserError
from asr.models import recognizer
from asr.scoring.report import percent, score
from asr.tasks import Experiment

PLANS = Path(__file__).parent / "ablations"
VALIDATIONS = 10  # of a training
HEAD = [
    "dev MER %",
    "M par.",
    "s/s",
    "epochs",
    "minutes",
    "CTC greedy",
    "minus base's",
    "joint",
    "minus base's",
    "RTF",
]
WIDTHS = [18, 6, 4, 6, 7, 10, 22, 6, 22, 6]
BASE = "base"


class Plan(Settings):
    """What is compared.

    config    YAML of the training, in the toolkit's folder or absolute
    search    options of the joint search
    base      key.path=value for all settings
    settings  name → key.path=value
    """

    config: str
    search: str
    base: list[str]
    settings: dict[str, list[str]]

    @property
    def path(self) -> Path:
        """Of the configuration."""
        return PLANS.parents[1] / self.config

    def experiment(self, overrides: Sequence[str]) -> Any:
        """The experiment of some changes."""
        return config.load(Experiment, self.path, overrides)

    @property
    def searches(self) -> dict[str, list[str]]:
        """Options of each way to decode."""
        return {"ctc-greedy": [], "joint": shlex.split(self.search)}


def run(name: str, *arguments: object) -> None:
    """Run one of the toolkit's commands; end where it fails, at Ctrl-C when it has saved what it has."""
    before = signal.signal(
        signal.SIGINT, lambda *_: None
    )  # else it would be killed a quarter of a second later
    try:
        done = subprocess.run([sys.executable, "-m", f"asr.cli.{name}", *map(str, arguments)])
    finally:
        signal.signal(signal.SIGINT, before)
    if done.returncode:
        sys.exit(done.returncode)


def train(plan: Plan, folder: Path, overrides: Sequence[str]) -> float:
    """Train the model in folder/model; the seconds that it took."""
    run("train", "--config", plan.path, *overrides, f"out={folder / 'model'}")
    return stamp.read(folder / "model")["made"]["seconds"]


def pace(plan: Plan, folder: Path, overrides: Sequence[str]) -> tuple[float, float]:
    """Train an epoch as late ones are: seconds of audio a second of its steps, and the seconds of all the rest."""
    short = [f"training.{setting}" for setting in ("epochs=1", "validate_every=1", "log_every=3")]
    late = [
        "data.sorted_epochs=0",
        "model.flat_start_epochs=0",
        *begun_at(plan, overrides, 0),
        *short,
    ]
    seconds = train(plan, folder, [*overrides, *late])
    lines = [json.loads(line) for line in (folder / "model/metrics.jsonl").read_text().splitlines()]
    rate = statistics.median(line["s_per_second"] for line in lines if line["kind"] == "train")
    return rate, max(0.0, seconds - audio(plan, overrides) / rate)


def begun_at(plan: Plan, overrides: Sequence[str], share: float) -> list[str]:
    """Let masks and joined utterances begin at a share of their epochs; nothing where there are none."""
    base = plan.experiment(overrides)
    late = {
        "features.specaugment": base.features.specaugment,
        "data.concatenate": base.data.concatenate,
    }
    return [f"{n}.from_epoch={round(share * part.from_epoch)}" for n, part in late.items() if part]


def audio(plan: Plan, overrides: Sequence[str]) -> float:
    """Seconds of audio of an epoch, as recorded."""
    return float(table.read(plan.experiment(overrides).data.train).durations.sum())


def epochs_within(seconds: float, epoch: float, rest: float) -> int:
    """Compute how many epochs fit into the seconds, with validations between them and some four candidates at the end.

    rest   of a validation and one candidate: two of these

    >>> epochs_within(600, epoch=5.0, rest=4.0)
    114
    """
    return max(1, int((seconds - (VALIDATIONS + 4) * rest / 2) / epoch))


def scaled(plan: Plan, overrides: Sequence[str], epochs: int) -> list[str]:
    """Scale the settings to a number of epochs: what is counted in epochs or steps keeps its share."""
    base = plan.experiment(overrides)
    share, flat = epochs / base.training.epochs, base.model.flat_start_epochs
    return [
        *overrides,
        f"training.epochs={epochs}",
        *begun_at(plan, overrides, share),
        f"model.flat_start_epochs={min(flat, max(1, round(share * flat)))}",
        f"training.validate_every={max(1, epochs // VALIDATIONS)}",
        f"schedule.warmup={max(1, round(share * base.schedule.warmup))}",
    ]


def error_rate(dev: str, out: Path, base: Path) -> list[str]:
    """Score a setting on dev: its MER and, once the base is decoded, how much it differs, with the 95 % interval."""
    report = score(dev, out, unit="mixed", against=base if base.exists() and base != out else None)
    rate = percent(report.scores["mixed"].total.rate)
    if not report.differences:
        return [rate, ""]
    found = report.differences["mixed"]
    return [rate, f"{100 * found.value:+.2f} [{100 * found.low:+.2f}, {100 * found.high:+.2f}]"]


def slowness(plan: Plan, folder: Path, base: Sequence[str]) -> float:
    """How many times longer an epoch of the base takes now than it took at first."""
    at_first, _ = pace(plan, folder.parent / BASE / "pace", base)
    now, _ = pace(plan, folder / "base-pace", base)
    return at_first / now


def row(
    plan: Plan, folder: Path, minutes: float, base: Sequence[str], overrides: Sequence[str]
) -> list[str]:
    """Train and decode one setting, as far as that isn't done: the cells of its row; base: the overrides of base."""
    dev = plan.experiment(overrides).data.dev
    slower = slowness(plan, folder, base) if overrides != base else 1.0
    rate, rest = pace(plan, folder / "pace", overrides)
    epochs = epochs_within(60 * minutes * slower, audio(plan, overrides) / rate, rest)
    seconds, rates = train(plan, folder, scaled(plan, overrides, epochs)), []
    for mode, options in plan.searches.items():
        out = folder / f"{mode}.txt"
        run(
            "decode",
            "--model",
            folder / "model",
            "--manifest",
            dev,
            "--mode",
            mode,
            *options,
            "--out",
            out,
        )
        rates += error_rate(dev, out, folder.parent / BASE / out.name)
    millions = sum(p.numel() for p in recognizer.load(folder / "model").parameters()) / 1e6
    size, pace_then, took = f"{millions:.1f}", f"{rate * slower:.0f}", f"{seconds / 60:.1f}"
    rtf = f"{stamp.read(out)['made']['rtf']:.4f}"
    return [folder.name, size, pace_then, str(epochs), took, *rates, rtf]


def line(cells: Sequence[str]) -> str:
    """Lay out a row as Markdown has it.

    >>> line(["base", "6.9", "54", "13", "10.1", "30.12", "", "28.40", "", "0.0110"])[:38]
    '| base               |    6.9 |   54 |'
    """
    name, *figures = cells
    aligned = (figure.rjust(width) for figure, width in zip(figures, WIDTHS[1:], strict=True))
    return f"| {' | '.join([name.ljust(WIDTHS[0]), *aligned])} |"


@command
def main(argv):
    """Run the settings one after the other."""
    args = parser("ablation.py", "Train each setting of a plan for like time; compare.", __doc__)
    args.add_argument("out", metavar="OUT", type=Path)
    args.add_argument(
        "--plan", metavar="YAML", default=PLANS / "an4.yaml", help="default: that of AN4"
    )
    args.add_argument("--minutes", type=float, default=10.0, help="of each training (default: 10)")
    args.add_argument(
        "--setting", action="append", metavar="NAME", help="may be repeated (default: all)"
    )
    args.add_argument("overrides", nargs="*", metavar="key.path=value")
    args = args.parse_intermixed_args(argv)
    plan = config.load(Plan, args.plan)
    settings = {BASE: [], **plan.settings}
    if unknown := [name for name in args.setting or () if name not in settings]:
        raise UserError(f"--setting {unknown[0]}: no such setting; expected {', '.join(settings)}")
    print(
        line(HEAD),
        "|".join(["", *("-" * (width + 2) for width in WIDTHS), ""]),
        sep="\n",
        flush=True,
    )
    base = [*plan.base, *args.overrides]
    for name in args.setting or settings:
        (args.out / name).mkdir(parents=True, exist_ok=True)
        own = [*plan.base, *settings[name], *args.overrides]
        print(line(row(plan, args.out / name, args.minutes, base, own)), flush=True)


if __name__ == "__main__":
    main()
