"""Print a recipe's result line from finished work.

    python scripts/result.py RECIPE SET MODE REF HYP OUTPUT...

OUTPUT... are the folders that led to HYP (manifests, tokenizer, model): `seconds` is what their making and that of HYP
took by their stamps, `rtf` what the decoding took per second of audio.
"""

import json
import sys

from asr.scoring.score import score
from asr.stamp import Stamp


def made(output: str) -> dict:
    """The figures that a command left with its output."""
    return json.loads(Stamp(output, "", {}, []).path.read_text())["made"]


def main(recipe: str, test: str, mode: str, ref: str, hyp: str, *outputs: str) -> None:
    """Score, and print one line for people and programs."""
    words = score(ref, hyp, unit="word").scores["word"]
    seconds = sum(made(output)["seconds"] for output in (*outputs, hyp))
    print(
        f"result recipe={recipe} set={test} mode={mode} "
        f"wer={100 * words.total.rate:.2f} lo={100 * words.low:.2f} hi={100 * words.high:.2f} "
        f"words={words.total.reference} rtf={made(hyp)['rtf']:.3f} seconds={seconds:.0f}"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
