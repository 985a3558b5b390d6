"""Print a recipe's result line from finished work.

    python -m scripts.result RECIPE SET MODE REF HYP DATA OUTPUT... [--unit char]

DATA (manifests) and OUTPUT... (tokenizer, model) are the folders that led to HYP: `seconds` is what
their making, that of HYP and that of the language model it was decoded with took by their stamps
(of a language model from elsewhere nothing is known), `rtf` what the decoding took per second of
audio. A corpus that has a version, in a file VERSION of its folder, is named at the end:
corpus=mini-1. --unit: of the errors, as of asr-score.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from asr import stamp
from asr.cli.command import command
from asr.scoring.report import UNITS, Score, score

COUNTED = {"word": "words", "char": "chars"}


def headline(ref: str, hyp: str, unit: str | None) -> Score:
    """The one error rate of a result: in `unit`, or else the first that asr-score tells."""
    report = score(ref, hyp, unit=unit) if unit else score(ref, hyp)
    return next(iter(report.scores.values()))


def version(data: str) -> str:
    """The version of the corpus that asr-prepare made a folder of manifests from; empty if it has none."""
    file = Path(stamp.read(data)["arguments"].get("source", "")) / "VERSION"
    return file.read_text(encoding="utf-8").split()[0] if file.is_file() else ""


def seconds(outputs: Sequence[str], hyp: str) -> float:
    """What the making of these, of a decoded text, and of the language model it was decoded with took."""
    decoded = stamp.read(hyp)
    lm = decoded["arguments"].get("lm")
    made = [
        stamp.read(output) for output in (*outputs, *([lm] if lm and stamp.is_stamped(lm) else []))
    ]
    return sum(one["made"]["seconds"] for one in (*made, decoded))


def arguments() -> argparse.ArgumentParser:
    """Describe the arguments; they stand in the head of this file."""
    args = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("recipe", "set", "mode", "ref", "hyp", "data"):
        args.add_argument(name)
    args.add_argument("outputs", nargs="*")
    args.add_argument("--unit")
    return args


@command
def main(argv: list[str]) -> None:
    """Score, and print one line for people and programs."""
    args = arguments().parse_args(argv)
    found = headline(args.ref, args.hyp, args.unit)
    corpus = f" corpus={name}" if (name := version(args.data)) else ""
    print(
        f"result recipe={args.recipe} set={args.set} mode={args.mode} "
        f"{UNITS[found.unit].lower()}={100 * found.total.rate:.2f} lo={100 * found.low:.2f} hi={100 * found.high:.2f} "
        f"{COUNTED.get(found.unit, 'units')}={found.total.reference} rtf={stamp.read(args.hyp)['made']['rtf']:.3f} "
        f"seconds={seconds((args.data, *args.outputs), args.hyp):.0f}{corpus}"
    )


if __name__ == "__main__":
    main()
