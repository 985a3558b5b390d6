"""Print a recipe's result line from finished work.

    python scripts/result.py RECIPE SET MODE REF HYP DATA OUTPUT...

DATA (manifests) and OUTPUT... (tokenizer, model) are the folders that led to HYP: `seconds` is what their making and
that of HYP took by their stamps, `rtf` what the decoding took per second of audio. A corpus that has a version, in a
file VERSION of its folder, is named at the end: corpus=mini-1.
"""

import json
import sys
from pathlib import Path

from asr.scoring.score import score
from asr.stamp import Stamp


def stamp(output: str) -> dict:
    """The stamp that a command left with its output."""
    return json.loads(Stamp(output, "", {}, []).path.read_text())


def made(output: str) -> dict:
    """The figures of an output's making."""
    return stamp(output)["made"]


def version(data: str) -> str:
    """The version of the corpus that asr-prepare made a folder of manifests from; empty if it has none."""
    file = Path(stamp(data)["arguments"].get("source", "")) / "VERSION"
    return file.read_text(encoding="utf-8").split()[0] if file.is_file() else ""


def main(recipe: str, test: str, mode: str, ref: str, hyp: str, *outputs: str) -> None:
    """Score, and print one line for people and programs."""
    words = next(iter(score(ref, hyp).scores.values()))  # WER, or MER where words have no spaces between them
    rate, units = ("wer", "words") if words.unit == "word" else ("mer", "units")
    corpus = f" corpus={name}" if (name := version(outputs[0])) else ""
    seconds = sum(made(output)["seconds"] for output in (*outputs, hyp))
    print(
        f"result recipe={recipe} set={test} mode={mode} "
        f"{rate}={100 * words.total.rate:.2f} lo={100 * words.low:.2f} hi={100 * words.high:.2f} "
        f"{units}={words.total.reference} rtf={made(hyp)['rtf']:.3f} seconds={seconds:.0f}{corpus}"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
