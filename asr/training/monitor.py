"""What a person sees of a training: the progress bar, messages, and in the run's folder its metrics and plots."""

import hashlib
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path

from torch import Tensor
from tqdm import tqdm

from asr.errors import UserError
from asr.files import append_text, make_folder
from asr.logging import logger, progress_bar
from asr.training import metrics as shown
from asr.training import plots
from asr.training.metrics import MetricsFile, RunningMeans
from asr.training.tensorboard import Board

MOST_SKIPPED = 10  # steps in a row
LONGEST = 120  # bytes of a file's name, to which others are added
BAR = "{desc} {percentage:3.0f}%|{bar:6}| {remaining} left{postfix}"


class Monitor:
    """Collect the metrics of a run in the folder `out`.

    metrics.jsonl   metrics, one line each log_every steps and each validation
                    (asr/training/metrics.py)
    train.log       all messages and the same lines in words, with date and time; never rewound
    tensorboard/    the metrics as curves, alignments as images
    curves.png      the metrics as curves (asr/training/plots.py)
    alignments/     the last alignments, a plot for each utterance

    sums:    names of the loss's sums, "correct" and "tokens" among them
    unit:    of throughput: "s" of audio, or "tokens"
    speaks:  whether this process leads; others only keep the state
    """

    def __init__(
        self, out: Path, sums: Sequence[str], unit: str, log_every: int, speaks: bool = True
    ):
        self.out, self.unit, self.log_every, self.speaks = out, unit, log_every, speaks
        self.names = tuple(sums)
        self.since_validation, self.since_line = self._zeros(), self._zeros()
        self.validated_at, self.skipped_in_a_row = 0, 0
        self.metrics, self.board = (
            MetricsFile(out / "metrics.jsonl"),
            Board(out / "tensorboard", self.log),
        )
        self.plots, self.logs = plots.Plots(self.log), True
        self.epochs, self.shown_bar = 0, None
        self.first: tuple[float, float] | None = (
            None  # epochs done and the time at this process' first step
        )
        if speaks:
            make_folder(out)

    @property
    def state(self) -> dict:
        """What a checkpoint keeps, for JSON: running sums, the last validation's step, steps skipped in a row."""
        return {
            "since_validation": asdict(self.since_validation),
            "since_line": asdict(self.since_line),
            "validated_at": self.validated_at,
            "skipped_in_a_row": self.skipped_in_a_row,
        }

    @state.setter
    def state(self, state: dict) -> None:
        self.since_validation = RunningMeans(**state["since_validation"])
        self.since_line = RunningMeans(**state["since_line"])
        self.validated_at, self.skipped_in_a_row = state["validated_at"], state["skipped_in_a_row"]

    def step(
        self,
        sums: Mapping[str, float],
        norm: float,
        lr: float,
        step: int,
        epoch: float,
        amount: float,
        wait: float,
        seconds: float,
    ) -> None:
        """Take one optimizer step of all processes; every log_every-th writes the means since the last written one.

        sums:     of the loss; norm: of the gradient. What isn't finite is left out of the means
        lr:       learning rate of this step
        step:     from 1; epoch: epochs done, with their fraction
        amount:   in `unit`; wait: seconds of `seconds` that were spent waiting for data
        """
        if math.isfinite(norm) and all(map(math.isfinite, sums.values())):
            self.skipped_in_a_row = 0
        for running in (self.since_validation, self.since_line):
            running.add(sums, norm, amount, wait, seconds)
        now = time.monotonic()
        self.first = self.first or (epoch, now)
        if self.shown_bar is not None:
            self.shown_bar.set_postfix_str(
                self._time_left(self.first, epoch, now) + self.line(), refresh=False
            )
        if step % self.log_every == 0:
            self._write_line(lr, step, epoch)
            self.since_line = self._zeros()

    def _write_line(self, lr: float, step: int, epoch: float) -> None:
        if not self.speaks:
            return
        losses, times = self.since_line.losses(), self.since_line.times(self.unit)
        rates = {"gradient_norm": self.since_line.gradient_norm(), "lr": lr}
        self.metrics.write("train", step, epoch, **losses, **rates, **times)
        self.board.scalars("train", {**losses, **rates, **times}, step)
        parts = " | ".join(shown.line(metrics) for metrics in (losses, rates, times) if metrics)
        self._write_log(f"epoch {epoch:6.2f} step {step:6d} | {parts}")

    def line(self) -> str:
        """The running means since the last validation, throughput and share of waiting: for the progress bar."""
        running = self.since_validation
        return " | ".join(
            filter(None, map(shown.line, (running.losses(), running.times(self.unit))))
        )

    def bar(self, total: int, done: int, epoch: int, epochs: int) -> tqdm:
        """The progress bar of an epoch, for `update`; each step shows `line()` there and how long all epochs will take.

        total, done:    batches
        epoch, epochs:  whole epochs done, and wanted
        """
        self.epochs = epochs
        settings = {"bar_format": BAR, "mininterval": 0.5, "dynamic_ncols": True} | (
            {} if self.speaks else {"disable": True}
        )
        self.shown_bar = progress_bar(
            total=total, initial=done, desc=f"epoch {epoch + 1}/{epochs}", **settings
        )
        return self.shown_bar

    def _time_left(self, first: tuple[float, float], epoch: float, now: float) -> str:
        """Of the whole training, validations included, at the mean pace since this process' first step."""
        epochs, seconds = epoch - first[0], now - first[1]
        if epochs <= 0:
            return ""
        return f"in all {tqdm.format_interval(max(0.0, self.epochs - epoch) * seconds / epochs)} | "

    def skipped(self, names: str, step: int, what: str) -> None:
        """Say that a step was left out.

        names:   of its examples; what: the reason, "its gradient isn't finite"
        raises   UserError if it is the MOST_SKIPPED-th in a row
        """
        self.skipped_in_a_row += 1
        self.log(f"step {step} left out: {what}; {names}")
        if self.skipped_in_a_row >= MOST_SKIPPED:
            message = (
                f"training: {MOST_SKIPPED} steps in a row were left out, the last because {what}; "
                f"lower optimizer.lr or training.clip, or use training.precision=fp32"
            )
            self._write_log(message)
            raise UserError(message)

    def check_applied(self, steps: int) -> None:
        """See that a training's steps have changed the weights.

        raises   UserError if all of them were left out
        """
        if steps and self.skipped_in_a_row == steps:
            message = (
                f"training: all {steps} steps were left out, so the weights are those it began with; train.log "
                "names their examples and the reasons"
            )
            self._write_log(message)
            raise UserError(message)

    def validated(self, metrics: Mapping[str, float], epoch: int, step: int, best: bool) -> None:
        """Report a validation, its line with a star if it is the best so far, and begin new running sums."""
        if self.speaks:
            star = " *" if best else ""
            line = f"train {self.line()} | dev {shown.line(metrics)}{star}"
            self.log(f"epoch {epoch:3d} step {step:6d} | {line}")
            self.metrics.write("dev", step, epoch, **metrics)
            self.board.scalars("dev", metrics, step)
            self.plots.offer("curves", self._draw_curves)
        self.since_validation, self.validated_at = self._zeros(), step

    def chosen(
        self,
        name: str,
        metrics_by_candidate: Mapping[str, Mapping[str, float]],
        epoch: int,
        step: int,
    ) -> None:
        """Report which candidate's weights are the model, and the dev metrics of all that were judged."""
        if not self.speaks:
            return
        self.log(f"the model is: {name}")
        if metrics_by_candidate:
            self.log(shown.table(metrics_by_candidate, name, "<- the model"))
        for candidate, metrics in metrics_by_candidate.items():
            self.metrics.write(
                "candidate", step, epoch, name=candidate, chosen=candidate == name, **metrics
            )

    def alignments(self, maps: Mapping[str, Tensor], step: int) -> None:
        """Draw attention weights, (U, T') of each utterance id; in TensorBoard, and the last as files."""
        if self.speaks and maps:
            self.plots.offer("alignments", partial(self._draw_alignments, maps, step))

    def _draw_curves(self) -> None:
        metrics = self.metrics.read()
        if metrics:
            plots.save(plots.pixels(plots.curves(metrics)), self.out / "curves.png")

    def _draw_alignments(self, maps: Mapping[str, Tensor], step: int) -> None:
        for id, weights in maps.items():
            image = plots.pixels(plots.alignment(f"{id[:80]}, step {step}", weights))
            self.board.image(f"alignment/{id}", image, step)
            plots.save(image, self.out / "alignments" / f"{file_name(id)}.png")

    def log(self, message: str) -> None:
        """Print to stderr, above the progress bar, and to train.log."""
        if self.speaks:
            logger.info(message)
            self._write_log(message)

    def _write_log(self, message: str) -> None:
        if not self.speaks or not self.logs:
            return
        date = datetime.now().isoformat(" ", "seconds")
        try:
            append_text(
                self.out / "train.log", "".join(f"{date} {line}\n" for line in message.splitlines())
            )
        except UserError as error:  # a log is no reason to end a training
            self.logs = False
            logger.warning(f"nothing more is logged: {error}")

    def rewind(self, step: int) -> None:
        """Forget the metrics after a step, which a continued run comes to again; the state is restored before this."""
        if self.speaks:
            self.metrics.rewind(step, self.validated_at)
            self.board.rewind(step)

    def close(self, draw: bool = True) -> None:
        """Close the bar and the curves, and draw what hasn't been drawn yet."""
        if self.shown_bar is not None:
            self.shown_bar.close()
        if self.speaks and draw:
            self.plots.offer("curves", self._draw_curves)
            self.plots.finish()
        self.board.close()

    def _zeros(self) -> RunningMeans:
        return RunningMeans(dict.fromkeys(self.names, 0.0))


def file_name(id: str) -> str:
    """A name for a file of an utterance, whose id may have slashes, and be longer than names may be.

    >>> file_name("a/b x")
    'a_b_x'
    """
    name = re.sub(r"[^\w.-]", "_", id)
    if len(name.encode()) <= LONGEST:
        return name
    return (
        name.encode()[:LONGEST].decode(errors="ignore")
        + "-"
        + hashlib.sha256(id.encode()).hexdigest()[:8]
    )
