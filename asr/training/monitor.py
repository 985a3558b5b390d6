"""What a person sees of a training: progress line, a line an epoch, TensorBoard curves, a JSON line a validation."""

import json
import math
import sys
from pathlib import Path

from tqdm import tqdm

from asr.errors import UserError, shorten
from asr.files import write_text

MOST_SKIPPED = 10  # steps in a row
SUMS = ("ctc", "attention", "correct", "tokens")  # of the loss, over the batches of a step


class Monitor:
    """Collect figures of a run in `out`: tensorboard/ and history.jsonl.

    state:  running sums since the last validation, saved with the checkpoint
    """

    def __init__(self, out: Path, speaks: bool = True):
        self.history, self.speaks, self.writer = out / "history.jsonl", speaks, None
        self.state = dict.fromkeys(SUMS, 0.0)
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
            per_token = {name: sums[name] / sums["tokens"] for name in ("ctc", "attention")}
            figures = {f"{name}_per_token": value for name, value in per_token.items()}
            figures |= {"accuracy": sums["correct"] / sums["tokens"], "gradient_norm": norm, "lr": lr}
            for name, value in figures.items():
                self.writer.add_scalar(f"train/{name}", value, step)

    def skipped(self, ids: list[str], step: int) -> None:
        """Say that a step was left out because its gradient isn't finite; too many in a row end the training."""
        self.skipped_in_a_row += 1
        self.say(f"step {step} left out: its gradient isn't finite; utterances {shorten(ids)}")
        if self.skipped_in_a_row >= MOST_SKIPPED:
            raise UserError(
                f"training: the gradient was not finite in {MOST_SKIPPED} steps in a row; "
                f"lower optimizer.lr or training.clip, or use training.precision=fp32"
            )

    def line(self) -> str:
        """The running means, for the progress bar."""
        tokens = max(self.state["tokens"], 1)
        means = {name: self.state[name] / tokens for name in ("ctc", "attention", "correct")}
        return f"ctc {means['ctc']:.3f} att {means['attention']:.3f} acc {means['correct']:.1%}"

    def validated(self, figures: dict[str, float], epoch: int, step: int, best: bool) -> None:
        """Report a validation and begin new running sums."""
        for name, value in figures.items():
            self.writer.add_scalar(f"dev/{name}", value, step)
        shown = (
            f"dev loss {figures['loss']:.3f} acc {figures['accuracy']:.1%} "
            f"wer {figures['wer']:.2%} ctc-wer {figures['ctc_wer']:.2%}"
        )
        self.say(f"epoch {epoch:3d} step {step:6d} | train {self.line()} | {shown}{' *' if best else ''}")
        with open(self.history, "a", encoding="utf-8") as file:
            file.write(json.dumps({"epoch": epoch, "step": step, **figures}) + "\n")
        self.state = dict.fromkeys(SUMS, 0.0)
        self.writer.flush()

    def rewind(self, step: int) -> None:
        """Forget the validations after a step, which a continued run comes to again."""
        if self.speaks and self.history.exists():
            lines = self.history.read_text(encoding="utf-8").splitlines(keepends=True)
            whole = [line for line in lines if line.endswith("}\n")]  # a kill or a full disk may have cut the last
            write_text(self.history, "".join(line for line in whole if json.loads(line)["step"] <= step))

    def say(self, message: str) -> None:
        """Print to stderr, above the progress bar."""
        if self.speaks:
            tqdm.write(message, file=sys.stderr)

    def close(self) -> None:
        """Flush the curves."""
        if self.writer:
            self.writer.close()
