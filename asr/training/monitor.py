"""What a person sees of a training: progress line, a line an epoch, TensorBoard curves, a JSON line a validation."""

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from asr.errors import UserError, shorten
from asr.models.loss import Loss

MOST_SKIPPED = 10  # steps in a row


class Monitor:
    """Collect figures of a run in `out`: tensorboard/ and history.jsonl.

    state:  running sums since the last validation, saved with the checkpoint
    """

    def __init__(self, out: Path):
        from torch.utils.tensorboard import SummaryWriter

        self.history = out / "history.jsonl"
        self.writer = SummaryWriter(str(out / "tensorboard"))
        self.state = {"ctc": 0.0, "attention": 0.0, "correct": 0, "tokens": 0}
        self.skipped_in_a_row = 0

    def step(self, losses: Sequence[Loss], norm: float, lr: float, step: int) -> None:
        """Take the losses of one optimiser step."""
        self.skipped_in_a_row *= not math.isfinite(norm)
        sums = {name: sum(float(getattr(x, name)) for x in losses) for name in self.state}
        for name, value in sums.items():
            self.state[name] += value
        for name in ("ctc", "attention"):
            self.writer.add_scalar(f"train/{name}_per_token", sums[name] / sums["tokens"], step)
        self.writer.add_scalar("train/accuracy", sums["correct"] / sums["tokens"], step)
        self.writer.add_scalar("train/gradient_norm", norm, step)
        self.writer.add_scalar("train/lr", lr, step)

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
        self.state = dict.fromkeys(self.state, 0)
        self.writer.flush()

    def say(self, message: str) -> None:
        """Print to stderr, above the progress bar."""
        tqdm.write(message, file=sys.stderr)

    def close(self) -> None:
        """Flush the curves."""
        self.writer.close()
