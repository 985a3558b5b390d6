"""The training loop: epochs of optimiser steps, validation, checkpoints; exact to resume."""

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from asr.errors import UserError
from asr.models.folder import WEIGHTS, save_weights
from asr.training.averages import RunningAverage, Validated
from asr.training.blocks import all_take_part
from asr.training.checkpoint import Checkpoints
from asr.training.monitor import Monitor
from asr.training.processes import Group
from asr.training.settings import LoopSettings
from asr.training.signals import ENDING, Signals, Stopped
from asr.training.step import Report, Step
from asr.training.task import Task

STATES = "checkpoints"  # folder of training states and validated weights, in a run's folder


@dataclass
class Progress:
    """How far a run has come.

    epoch      whole epochs; done: steps of the running one
    step       optimiser steps in all
    validated  the epoch that was validated last
    seconds    that it took, over all its sittings
    """

    epoch: int = 0
    done: int = 0
    step: int = 0
    validated: int = 0
    seconds: float = 0.0


class Trainer:
    """Train a task's model; the same call on the same folder goes on where it was stopped.

    task:      the model, its data, loss and validation
    copies:    Replicas or Shards, of the task's model
    schedule:  has factor(step, progress), on the optimiser's learning rates
    out:       folder of checkpoints and curves
    group:     the processes that share the work; their number changes nothing but the speed, for a step is made of
               `accumulate` batches, whichever process takes them, and a dropout mask depends on (seed, step, batch)
    """

    def __init__(
        self,
        task: Task,
        copies: Any,
        schedule: Any,
        settings: LoopSettings,
        seed: int,
        out: Path,
        group: Group = Group(),  # noqa: B008 - frozen
    ):
        self.task, self.copies, self.schedule, self.settings, self.group = task, copies, schedule, settings, group
        self.progress, self.out, self.saved_at, self.signals = Progress(), out, time.monotonic(), Signals()
        self.average = RunningAverage(copies.model, settings.ema) if settings.ema else None
        self.monitor = Monitor(out, task.sums, task.unit, settings.log_every, speaks=group.leads)
        self.checkpoints = Checkpoints(out / STATES, settings.keep, self.monitor.say)
        self.validated = Validated(out / STATES, settings.average, settings.best_by == "accuracy")
        self.step = Step(
            *(task, copies, group),
            **{"precision": settings.precision, "clip": settings.clip, "seed": seed, "places": settings.accumulate},
            say=self.monitor.say,
        )

    def run(self) -> None:
        """Train to the last epoch, then choose among the averages of weights by the dev set.

        raises   Stopped if a signal asked to end; what was done is saved
        """
        self._resume()
        with contextlib.closing(self.monitor), self.signals:
            if self.step.device.type == "cuda":
                self.rehearse()
            while self.progress.validated < self.settings.epochs:
                if self._validation_is_due():
                    self._validate()
                else:
                    self._train_epoch()
            with self.signals.at_once():
                self._choose()

    def rehearse(self) -> None:
        """Compute the gradient of the batch with the longest example and forget it: what doesn't fit shows now."""
        self.group.add(torch.zeros(1, device=self.step.device))  # NCCL takes its memory now, while there is some
        longest = self.task.longest(1)[0]
        steps = self.task.plan(0, self.settings.accumulate)
        heaviest = next(batch for step in steps for batch in step if longest in batch)
        self.copies.model.train()
        with all_take_part(self.copies.model):
            self.step.gradients([(0, *self.task.load(0, [heaviest]), 1.0)], epoch=self.settings.epochs, step=0)

    def _train_epoch(self) -> None:
        progress, settings = self.progress, self.settings
        steps = self.task.plan(progress.epoch, settings.accumulate)
        shares = (self.copies.share(steps[n]) for n in range(progress.done, len(steps)))
        stream = self.task.load(progress.epoch, (batch for share in shares for _, batch, _ in share))
        self.copies.model.train()
        with self.monitor.bar(len(steps), progress.done, progress.epoch, settings.epochs) as bar:
            for n in range(progress.done, len(steps)):
                report = self._one_step(steps[n], stream, len(steps))
                bar.update()
                self._obey(report)
        progress.epoch, progress.done = progress.epoch + 1, 0

    def _one_step(self, planned: list, stream: Any, steps: int) -> Report:
        """Wait for the data, compute, report."""
        progress, began = self.progress, time.monotonic()
        read = [(place, next(stream), weight) for place, _, weight in self.copies.share(planned)]
        waited, at = time.monotonic() - began, progress.epoch + progress.done / steps
        factor = self.schedule.factor(progress.step + 1, at / self.settings.epochs)
        report = self.step.run(read, progress.epoch, progress.step + 1, factor, self._wishes())
        progress.step, progress.done = progress.step + 1, progress.done + 1
        if report.applied and self.average:
            self.average.update(progress.step)
        lr = self.copies.optimizer.param_groups[0]["lr"]
        done, seconds = progress.epoch + progress.done / steps, time.monotonic() - began
        if report.applied:
            self.monitor.step(report.sums, report.norm, lr, progress.step, done, report.amount, waited, seconds)
        else:
            named = [planned[place] for place in report.faulty] or planned
            what = "loss" if report.faulty else "gradient"
            self.monitor.skipped(self.task.name(named), progress.step, f"its {what} isn't finite")
        return report

    def _wishes(self) -> list[int]:
        """What the group has to agree on: to save, and to end."""
        due = time.monotonic() - self.saved_at > 60 * self.settings.save_minutes and self.group.leads
        every = self.settings.save_steps
        counted = every is not None and (self.progress.step + 1) % every == 0 and self.group.leads
        save, self.signals.save = bool(self.signals.save), 0
        return [save or due or counted, *(self.signals.end == number for number in ENDING)]

    def _obey(self, report: Report) -> None:
        save, *ends = report.asked
        if save or any(ends):
            self._save()
        if any(ends):
            self.group.share(lambda: self.monitor.say(f"stopped after step {self.progress.step}; all is saved"))
            raise Stopped(next(number for number, asked in zip(ENDING, ends, strict=True) if asked))

    def _validation_is_due(self) -> bool:
        epoch, last = self.progress.epoch, self.progress.epoch == self.settings.epochs
        return epoch > self.progress.validated and (last or epoch % self.settings.validate_every == 0)

    def _validate(self) -> None:
        progress, model = self.progress, self.copies.whole()
        try:
            with self.signals.at_once():
                figures = self.task.validate(self.settings.precision, self.group)
        except Stopped:
            if self.copies.independent:
                self._save()  # the epoch is trained, but not validated
            raise
        if self.group.leads:
            best = self.validated.add(model, progress.epoch, figures[self.settings.best_by])
            if best:
                save_weights(model, self.out / WEIGHTS)  # so that the folder can be decoded with meanwhile
            self.monitor.validated(figures, progress.epoch, progress.step, best)
            self.monitor.alignments(self.task.alignments(), progress.step)
        progress.validated = progress.epoch
        self._save()

    def _choose(self) -> None:
        """Make that one of the averages the model that is best on the dev set, in fp32."""
        model, figures = self.copies.whole(), {}
        candidates = self._candidates(model)
        for name, load in candidates.items():
            load()
            figures[name] = self.task.validate("fp32", self.group)
        chosen = min(figures, key=lambda name: self.validated.rank(figures[name][self.settings.best_by]))
        if self.group.leads:
            candidates[chosen]()
            save_weights(model, self.out / WEIGHTS)
            self.monitor.chosen(chosen, figures, self.progress.epoch, self.progress.step)

    def _candidates(self, model: nn.Module) -> dict[str, Callable[[], None]]:
        """Name → what loads it into the model; the same weights under two names once."""
        best, last = self.group.share(lambda: (self.validated.best, self.validated.last))
        load = self.validated.load
        epochs = {
            "the best": best[:1],
            f"average of the {len(best)} best": best,
            f"average of the {len(last)} last": last,
        }
        different = {tuple(sorted(chosen)): name for name, chosen in reversed(epochs.items())}
        candidates = {name: lambda chosen=chosen: load(model, list(chosen)) for chosen, name in different.items()}
        if self.average:
            candidates["running average"] = self.average.put
        return candidates

    def _save(self) -> None:
        now = time.monotonic()
        self.progress.seconds += now - self.saved_at
        self.saved_at = now
        state = self.copies.state()
        if self.group.leads:
            averages = {"average": self.average.averages} if self.average else {}
            own = {"progress": vars(self.progress).copy(), "monitor": json.dumps(self.monitor.state)}
            self.checkpoints.save(state | own | averages)

    def _resume(self) -> None:
        """Continue from the newest good state.

        raises   UserError if another process finds another one, as on machines that share no disk
        """
        state = self.checkpoints.load()
        found = state["progress"] if state else None
        if found != (firsts := self.group.share(lambda: found)):
            raise UserError(
                f"{self.out}: process {self.group.rank} finds {_describe(found)} there, the first {_describe(firsts)}; "
                "all machines need the same folder, on a shared disk"
            )
        if state is None:
            return self.monitor.rewind(0)
        self.progress = Progress(**found)
        self.copies.load(state)
        if self.average:
            self.average.load(state["average"])
        self.monitor.state = json.loads(state["monitor"])
        self.monitor.rewind(self.progress.step)
        self.monitor.say(f"continuing at epoch {self.progress.epoch + 1}, step {self.progress.done + 1} of it")


def _describe(progress: dict | None) -> str:
    return f"the state of step {progress['step']}" if progress else "no training state"
