"""What a person sees of a training: progress line, a line an epoch, TensorBoard curves, a JSON line a validation."""

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from asr.errors import UserError
from asr.files import write_text

MOST_SKIPPED = 10  # steps in a row
SHOWN = {  # figures by name, as a line shows them; the first four are also means per token of the loss's sums
    "ctc": "ctc {:.3f}",
    "attention": "att {:.3f}",
    "nll": "loss {:.3f}",
    "correct": "acc {:.1%}",
    "loss": "loss {:.3f}",
    "accuracy": "acc {:.1%}",
    "wer": "wer {:.2%}",
    "ctc_wer": "ctc-wer {:.2%}",
    "perplexity": "ppl {:.2f}",
    "word_perplexity": "word-ppl {:.2f}",
}


class Monitor:
    """Collect figures of a run in `out`: tensorboard/ and history.jsonl.

    sums:   names of the loss's sums, "correct" and "tokens" among them
    state:  running sums since the last validation, saved with the checkpoint
    """

    def __init__(self, out: Path, sums: Sequence[str], speaks: bool = True):
        self.history, self.speaks, self.writer = out / "history.jsonl", speaks, None
        self.state = dict.fromkeys(sums, 0.0)
        self.skipped_in_a_row = 0
        if speaks:
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(str(out / "tensorboard"))

    def step(self, sums: dict[str, float], norm: float, lr: float, step: int) -> None:
        """Take the sums of one optimiser step."""
        self.skipped_in_a_row *= not math.isfinite(norm)
        for name, value in sums.items():
            self.state[name] += value
        if self.writer:
            means = _per_token(sums)
            accuracy = means.pop("correct")
            figures = {f"{name}_per_token": value for name, value in means.items()}
            figures |= {"accuracy": accuracy, "gradient_norm": norm, "lr": lr}
            for name, value in figures.items():
                self.writer.add_scalar(f"train/{name}", value, step)

    def skipped(self, names: str, step: int) -> None:
        """Say that a step was left out because its gradient isn't finite; too many in a row end the training."""
        self.skipped_in_a_row += 1
        self.say(f"step {step} left out: its gradient isn't finite; {names}")
        if self.skipped_in_a_row >= MOST_SKIPPED:
            raise UserError(
                f"training: the gradient was not finite in {MOST_SKIPPED} steps in a row; "
                f"lower optimizer.lr or training.clip, or use training.precision=fp32"
            )

    def line(self) -> str:
        """The running means, for the progress bar."""
        return _shown(_per_token(self.state))

    def validated(self, figures: dict[str, float], epoch: int, step: int, best: bool) -> None:
        """Report a validation and begin new running sums."""
        for name, value in figures.items():
            self.writer.add_scalar(f"dev/{name}", value, step)
        shown = f"dev {_shown(figures)}{' *' if best else ''}"
        self.say(f"epoch {epoch:3d} step {step:6d} | train {self.line()} | {shown}")
        self._record({"epoch": epoch, "step": step, **figures})
        self.state = dict.fromkeys(self.state, 0.0)
        self.writer.flush()

    def averaged(self, figures: dict[str, float], epoch: int, step: int) -> None:
        """Report the validation of the average of the best checkpoints, once training is over."""
        self.say(f"average of the best checkpoints | dev {_shown(figures)}")
        self._record({"epoch": epoch, "step": step, "average": True, **figures})

    def _record(self, line: dict) -> None:
        with open(self.history, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def rewind(self, step: int) -> None:
        """Forget the validations after a step, which a continued run comes to again."""
        if self.speaks and self.history.exists():
            lines = self.history.read_text(encoding="utf-8").splitlines(keepends=True)
            whole = [line for line in lines if line.endswith("}\n")]  # a kill or a full disk may have cut the last
            read = [(line, json.loads(line)) for line in whole]
            kept = [line for line, facts in read if facts["step"] <= step and "average" not in facts]
            write_text(self.history, "".join(kept))

    def say(self, message: str) -> None:
        """Print to stderr, above the progress bar."""
        if self.speaks:
            tqdm.write(message, file=sys.stderr)

    def close(self) -> None:
        """Flush the curves."""
        if self.writer:
            self.writer.close()


def _per_token(sums: dict[str, float]) -> dict[str, float]:
    """Means of the loss's sums per target token."""
    return {name: value / max(sums["tokens"], 1) for name, value in sums.items() if name != "tokens"}


def _shown(figures: dict[str, float]) -> str:
    return " ".join(SHOWN[name].format(value) for name, value in figures.items())
