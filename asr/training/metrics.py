"""The figures of a run as a file, a JSON object a line."""

import json
import math
from datetime import datetime
from pathlib import Path

from asr.files import append_text, write_text

TIMES = {"date", "wait", "s_per_second", "tokens_per_second"}  # these differ from run to run, all others repeat exactly


class Metrics:
    """The file metrics.jsonl. All its lines have `kind`, `date`, `step` (optimiser steps done) and `epoch` (done).

    kind train      means of the steps since the last such line, but for `lr`, which is this step's
    kind dev        figures of a validation
    kind candidate  dev figures of weights that could have become the model: `name`, and `chosen` for the one that did
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
        """The whole lines; a kill or a full disk may have cut the last."""
        if not self.path.exists():
            return []
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("}\n")]

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
