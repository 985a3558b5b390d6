"""Compare encoders and regularization on AN4: trainings of similar time, and their word error rates on dev.

    python -m scripts.ablation OUT [--minutes 10] [--setting NAME ...] [key.path=value ...]

It needs data/an4 and exp/an4/tokenizer, which recipes/an4/run.sh makes. Each setting has a folder
in OUT. First, one epoch measures its pace. Then it is trained for as many epochs as fit into the
minutes, so that its schedule reaches its end, and dev is decoded by CTC greedy and by joint beam
search. An epoch of the base just before shows how much slower the machine has become since the
base's own training; a setting's minutes are multiplied by that. The same command again continues
where it stopped, skips what is finished, and prints the whole table as Markdown. key.path=value
changes all settings.

"base" is conf/an4.yaml with SpecAugment after an eighth of its epochs, the cosine for its schedule
and without its running average, as it was when these settings were chosen by the table in
docs/accuracy.md. Each other setting changes it in one way, but that "consistency" has the 5 masks,
too, as "more_masks" has alone. "s/s" are seconds of audio that a second of training takes in, on
the machine as it was for the base. "minus base's" is a setting's WER less that of the base, where
that one is decoded, with the 95 % interval of the paired bootstrap. The interval is of these two
trainings: how much two differ that have nothing but the seed for a difference, "another_seed"
tells.
"""

import json
import signal
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from asr import config, stamp
from asr.cli.command import command, parser
from asr.data import columns as table
from asr.models import recognizer
from asr.scoring.report import percent, score
from asr.tasks import Experiment

CONFIG = Path(__file__).parents[1] / "conf" / "an4.yaml"
BASE = [
    "features.specaugment={freq_masks: 2, freq_width: 20, time_masks: 2, time_width: 40, time_ratio: 0.1, "
    "from_epoch: 8}",  # of epochs, of which ten minutes get the shares, and of the warm-up
    "schedule={kind: cosine, warmup: 200}",
    "training.epochs=64",
    "training.ema=null",
]
SIZES = "d_model: 192, heads: 4, dropout: 0.1, channels: 64, subsampling: 4"
HALFWAY = "model.intermediate_ctc.layers=[6]"  # of twelve layers, as the third of the base's six
ENCODERS = {  # of about as many parameters as the base
    "relative": ["kind: conformer, positions: relative, layers: 6, ff: 768, kernel: 15"],
    "transformer": ["kind: transformer, positions: sinusoidal, layers: 12, ff: 768", HALFWAY],
    "transformer_rotary": ["kind: transformer, positions: rotary, layers: 12, ff: 768", HALFWAY],
    "e_branchformer": [
        "kind: e_branchformer, positions: rotary, layers: 6, ff: 576, cgmlp: 768, kernel: 15, merge_kernel: 15"
    ],
}
SETTINGS = {
    "base": [],
    "another_seed": ["seed=2"],
    **{
        name: [f"model.encoder={{{encoder}, {SIZES}}}", *more]
        for name, (encoder, *more) in ENCODERS.items()
    },
    "no_intermediate": ["model.intermediate_ctc=null"],
    "more_ctc": ["model.ctc_weight=0.8"],
    "less_ctc": ["model.ctc_weight=0.2"],
    "consistency": ["features.specaugment.time_masks=5", "model.consistency={weight: 0.2}"],
    "more_masks": [
        "features.specaugment.time_masks=5"
    ],  # 2.5 times as many, as consistency has them
    "layer_dropout": ["model.encoder.layer_dropout=0.1"],
    "ema": ["training.ema=0.999"],
    "no_smoothing": ["model.label_smoothing=0"],
    "one_speed": ["data.speeds=[1.0]"],
    "sorted": ["data.sorted_epochs=1"],
    "bpe_dropout": ["data.bpe_dropout=0.1"],
    "wsd": ["schedule={kind: wsd, warmup: 200}"],
    "noam": ["schedule={kind: noam, warmup: 200}"],
    "adamw": ["optimizer={kind: adamw, lr: 1.5e-3}", "schedule.warmup=800"],
    "no_flat_start": ["model.flat_start_epochs=0"],
    "no_masks": ["features.specaugment=null"],
}
SEARCHES = {
    "ctc-greedy": [],
    "joint": ["--ctc-weight", "0.7", "--length-bonus", "1"],
}  # of the recipe
VALIDATIONS = 10  # of a training
HEAD = [
    "dev WER %",
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
WIDTHS = [max(map(len, SETTINGS)), 6, 4, 6, 7, 10, 22, 6, 22, 6]


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


def train(folder: Path, overrides: Sequence[str]) -> float:
    """Train the model in folder/model; the seconds that it took."""
    run("train", "--config", CONFIG, *overrides, f"out={folder / 'model'}")
    return stamp.read(folder / "model")["made"]["seconds"]


def pace(folder: Path, overrides: Sequence[str]) -> tuple[float, float]:
    """Train an epoch as late ones are: seconds of audio a second of its steps, and the seconds of all the rest."""
    short = [f"training.{setting}" for setting in ("epochs=1", "validate_every=1", "log_every=3")]
    late = ["data.sorted_epochs=0", "model.flat_start_epochs=0", *masks_from(overrides, 0), *short]
    seconds = train(folder, [*overrides, *late])
    lines = [json.loads(line) for line in (folder / "model/metrics.jsonl").read_text().splitlines()]
    rate = statistics.median(line["s_per_second"] for line in lines if line["kind"] == "train")
    return rate, max(0.0, seconds - audio(overrides) / rate)


def masks_from(overrides: Sequence[str], share: float) -> list[str]:
    """Let the masks begin at a share of the epochs before; nothing without masks."""
    masks = config.load(Experiment, CONFIG, overrides).features.specaugment
    return [f"features.specaugment.from_epoch={round(share * masks.from_epoch)}"] if masks else []


def audio(overrides: Sequence[str]) -> float:
    """Seconds of audio of an epoch, as recorded."""
    return float(table.read(config.load(Experiment, CONFIG, overrides).data.train).durations.sum())


def epochs_within(seconds: float, epoch: float, rest: float) -> int:
    """Compute how many epochs fit into the seconds, with validations between them and some four candidates at the end.

    rest   of a validation and one candidate: two of these

    >>> epochs_within(600, epoch=5.0, rest=4.0)
    114
    """
    return max(1, int((seconds - (VALIDATIONS + 4) * rest / 2) / epoch))


def scaled(overrides: Sequence[str], epochs: int) -> list[str]:
    """Scale the settings to a number of epochs: what is counted in epochs or steps keeps its share."""
    base = config.load(Experiment, CONFIG, overrides)
    share, flat = epochs / base.training.epochs, base.model.flat_start_epochs
    return [
        *overrides,
        f"training.epochs={epochs}",
        *masks_from(overrides, share),
        f"model.flat_start_epochs={min(flat, max(1, round(share * flat)))}",
        f"training.validate_every={max(1, epochs // VALIDATIONS)}",
        f"schedule.warmup={max(1, round(share * base.schedule.warmup))}",
    ]


def error_rate(dev: str, out: Path, base: Path) -> list[str]:
    """Score a setting on dev: its WER and, once the base is decoded, how much it differs, with the 95 % interval."""
    report = score(dev, out, unit="word", against=base if base.exists() and base != out else None)
    rate = percent(report.scores["word"].total.rate)
    if not report.differences:
        return [rate, ""]
    found = report.differences["word"]
    return [rate, f"{100 * found.value:+.2f} [{100 * found.low:+.2f}, {100 * found.high:+.2f}]"]


def slowness(folder: Path, base: Sequence[str]) -> float:
    """How many times longer an epoch of the base takes now than it took at first."""
    at_first, _ = pace(folder.parent / "base" / "pace", base)
    now, _ = pace(folder / "base-pace", base)
    return at_first / now


def row(
    name: str, folder: Path, minutes: float, base: Sequence[str], overrides: Sequence[str]
) -> list[str]:
    """Train and decode one setting, as far as that isn't done: the cells of its row; base: the overrides of base."""
    dev = config.load(Experiment, CONFIG, overrides).data.dev
    slower = slowness(folder, base) if overrides != base else 1.0
    rate, rest = pace(folder / "pace", overrides)
    epochs = epochs_within(60 * minutes * slower, audio(overrides) / rate, rest)
    seconds, rates = train(folder, scaled(overrides, epochs)), []
    for mode, options in SEARCHES.items():
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
        rates += error_rate(dev, out, folder.parent / "base" / out.name)
    millions = sum(p.numel() for p in recognizer.load(folder / "model").parameters()) / 1e6
    size, pace_then, took = f"{millions:.1f}", f"{rate * slower:.0f}", f"{seconds / 60:.1f}"
    rtf = f"{stamp.read(out)['made']['rtf']:.4f}"
    return [name, size, pace_then, str(epochs), took, *rates, rtf]


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
    args = parser("ablation.py", "Train AN4 with each setting for like time; compare.", __doc__)
    args.add_argument("out", metavar="OUT", type=Path)
    args.add_argument("--minutes", type=float, default=10.0, help="of each training (default: 10)")
    args.add_argument(
        "--setting", action="append", choices=SETTINGS, help="may be repeated (default: all)"
    )
    args.add_argument("overrides", nargs="*", metavar="key.path=value")
    args = args.parse_intermixed_args(argv)
    print(
        line(HEAD),
        "|".join(["", *("-" * (width + 2) for width in WIDTHS), ""]),
        sep="\n",
        flush=True,
    )
    base = [*BASE, *args.overrides]
    for name in args.setting or SETTINGS:
        (args.out / name).mkdir(parents=True, exist_ok=True)
        own = [*BASE, *SETTINGS[name], *args.overrides]
        print(line(row(name, args.out / name, args.minutes, base, own)), flush=True)


if __name__ == "__main__":
    main()
