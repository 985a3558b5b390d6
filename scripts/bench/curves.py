"""Put the validations of several runs side by side, and tell how far each is from the first.

    python -m scripts.bench.curves exp/fp32 exp/bf16 exp/fp32-seed2

The runs have the same epochs. Beside each figure of a run stands its difference to the first run's;
below, the root mean square of the differences. Runs of another seed tell how large chance is.
"""

import argparse
import math
import sys
from pathlib import Path

from asr.training.metrics import MetricsFile
from scripts.bench import report


def validations(run: str) -> dict[int, dict]:
    """Epoch → figures of a run."""
    lines = MetricsFile(Path(run) / "metrics.jsonl").read()
    found = {line["epoch"]: line for line in lines if line["kind"] == "dev"}
    return found or sys.exit(
        f"curves: {run}: no validations in metrics.jsonl; expected the folder of a run"
    )


def main() -> None:
    """Read the runs and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folders of asr-train")
    parser.add_argument("--figure", default="loss", help="loss (default), accuracy, wer or ctc_wer")
    args = parser.parse_args()
    runs = [validations(run) for run in args.runs]
    epochs = sorted(set.intersection(*map(set, runs)))
    values = [[run[epoch][args.figure] for epoch in epochs] for run in runs]
    differences = [
        [value - first for value, first in zip(row, values[0], strict=True)] for row in values
    ]
    rows = [
        [str(epoch)]
        + [
            f"{row[n]:.4f} ({apart[n]:+.4f})"
            for row, apart in zip(values, differences, strict=True)
        ]
        for n, epoch in enumerate(epochs)
    ]
    apart = [math.sqrt(sum(d * d for d in row) / len(row)) for row in differences]
    rows.append(["rms", *(f"{value:.4f}" for value in apart)])
    print(report.table(("epoch", *args.runs), rows, texts=1))


if __name__ == "__main__":
    main()
