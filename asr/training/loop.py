"""The training loop: epochs of optimiser steps, validation, checkpoints; exact to resume."""

import itertools
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

from asr.features.noise import utterance_seed
from asr.models.folder import WEIGHTS, save_weights
from asr.training.checkpoint import Checkpoints
from asr.training.device import autocast
from asr.training.monitor import Monitor
from asr.training.processes import Group
from asr.training.settings import LoopSettings
from asr.training.task import Task

BAR = {"leave": False, "mininterval": 0.5}


@dataclass
class Progress:
    """How far a run has come: whole epochs, batches of the running epoch, optimiser steps, and seconds it took."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    seconds: float = 0.0


class Trainer:
    """Train a task's model; the same call on the same folder goes on where it was stopped.

    task:      the model, its data, loss and validation
    schedule:  has factor(step, progress), on the optimiser's learning rate
    out:       folder of checkpoints and curves
    group:     the processes that share the work; their number changes nothing but the speed, for a step is made of
               `accumulate` batches, whichever process takes them, and a dropout mask depends on (seed, step, batch)
    """

    def __init__(
        self,
        task: Task,
        optimizer: torch.optim.Optimizer,
        schedule,
        settings: LoopSettings,
        seed: int,
        out: Path,
        group: Group = Group(),  # noqa: B008 - frozen
    ):
        self.task, self.model, self.optimizer, self.schedule = task, task.model, optimizer, schedule
        self.settings, self.seed = settings, seed
        self.device = next(self.model.parameters()).device
        self.lr = [group["lr"] for group in optimizer.param_groups]
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        self.progress, self.out = Progress(), out
        self.checkpoints = Checkpoints(out / "checkpoints", settings.average, settings.best_by == "accuracy")
        self.group, self.monitor = group, Monitor(out, task.sums, speaks=group.leads)
        self.saved_at = time.monotonic()

    def run(self) -> None:
        """Train to the last epoch, then put the average of the best checkpoints into the model."""
        self._resume()
        while self.progress.epoch < self.settings.epochs:
            self._train_epoch()
            epoch = self.progress.epoch
            if self.group.leads and (epoch % self.settings.validate_every == 0 or epoch == self.settings.epochs):
                self._validate()
                self._save()
        if self.group.leads:
            self.checkpoints.load_average(self.model)
            save_weights(self.model, self.out / WEIGHTS)
            if self.task.judges_average:
                self.monitor.averaged(self.task.validate("fp32"), self.progress.epoch, self.progress.step)
        self.monitor.close()

    def _train_epoch(self) -> None:
        epoch, done = self.progress.epoch, self.progress.batch
        batches = self.task.plan(epoch)
        self.model.train()
        steps = [batches[n : n + self.settings.accumulate] for n in range(done, len(batches), self.settings.accumulate)]
        shares = [step[self.group.rank :: self.group.size] for step in steps]
        stream = self.task.load(epoch, list(itertools.chain(*shares)))
        disabled = None if self.group.leads else True  # None: drawn on a terminal only
        bar = tqdm(
            total=len(batches), initial=done, desc=f"epoch {epoch + 1}/{self.settings.epochs}", **BAR, disable=disabled
        )
        with bar:
            for step, share in zip(steps, shares, strict=True):
                self.progress.step += 1
                batch_fraction = self.progress.batch / len(batches)
                self._step([next(stream) for _ in share], (epoch + batch_fraction) / self.settings.epochs, step)
                self.progress.batch += len(step)
                bar.update(len(step))
                bar.set_postfix_str(self.monitor.line(), refresh=False)
                if self.group.leads and time.monotonic() - self.saved_at > 60 * self.settings.save_minutes:
                    self._save()
        self.progress.epoch, self.progress.batch = epoch + 1, 0

    def _step(self, share: list, progress: float, planned: list[list[int]]) -> None:
        """One optimiser step over this process' share of its batches; the loss is per target token of them all.

        progress:  in 0 .. 1, of the whole training; planned: all the step's batches, for messages
        """
        self.optimizer.zero_grad(set_to_none=False)
        names = self.task.sums
        sums = torch.zeros(len(names), dtype=torch.float64)
        for n, batch in enumerate(share):
            place = n * self.group.size + self.group.rank
            torch.manual_seed(utterance_seed(self.seed, "dropout", self.progress.step, place))
            loss = self._loss(batch.to(self.device))
            loss.total.backward()
            sums += torch.tensor([float(getattr(loss, name)) for name in names], dtype=torch.float64)
        self.group.add([sums])
        totals = dict(zip(names, sums.tolist(), strict=True))
        norm = self._scale_and_clip(totals["tokens"])
        factor = self.schedule.factor(self.progress.step, progress)
        for group, lr in zip(self.optimizer.param_groups, self.lr, strict=True):
            group["lr"] = lr * factor
        if math.isfinite(norm):
            self.optimizer.step()
        else:
            self.monitor.skipped(self.task.name(planned), self.progress.step)
        self.monitor.step(totals, norm, self.lr[0] * factor, self.progress.step)

    def _loss(self, batch: Any) -> Any:
        with autocast(self.device, self.settings.precision):
            return self.task.loss(batch, self.progress.epoch)

    def _scale_and_clip(self, tokens: float) -> float:
        """Turn the gradients of sums into that of the mean per token, clip its norm, return the norm before."""
        gradients = [p.grad for p in self.model.parameters()]
        self.group.add(gradients)
        torch._foreach_div_(gradients, tokens)
        return float(nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip))

    def _validate(self) -> None:
        figures = self.task.validate(self.settings.precision)
        best = self.checkpoints.add(self.model, self.progress.epoch, figures[self.settings.best_by])
        if best:
            save_weights(self.model, self.out / WEIGHTS)  # so that the folder can be decoded with meanwhile
        self.monitor.validated(figures, self.progress.epoch, self.progress.step, best)

    def _save(self) -> None:
        now = time.monotonic()
        self.progress.seconds += now - self.saved_at
        self.saved_at = now
        self.checkpoints.save_state(
            {
                "progress": vars(self.progress).copy(),
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "monitor": json.dumps(self.monitor.state),
            }
        )

    def _resume(self) -> None:
        state = self.checkpoints.load_state()
        if state is None:
            return
        self.progress = Progress(**state["progress"])
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.monitor.state = json.loads(state["monitor"])
        self.monitor.rewind(self.progress.step)
        self.monitor.say(f"continuing at epoch {self.progress.epoch + 1}, batch {self.progress.batch + 1}")
