"""The training loop: epochs of optimiser steps, validation, checkpoints; exact to resume."""

import itertools
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from tqdm import tqdm

from asr.data.batches import Batch, SpeechDataset, load, plan
from asr.data.manifest import Utterance
from asr.features.noise import utterance_seed
from asr.models.folder import WEIGHTS, save_weights
from asr.models.loss import Loss
from asr.models.recognizer import Recognizer
from asr.training.checkpoint import Checkpoints
from asr.training.device import autocast
from asr.training.monitor import SUMS, Monitor
from asr.training.processes import Group
from asr.training.settings import DataSettings, TrainingSettings
from asr.training.validation import validate

BAR = {"leave": False, "mininterval": 0.5}


@dataclass(frozen=True)
class Split:
    """Utterances and the token ids of their texts."""

    utterances: Sequence[Utterance]
    labels: Sequence[Sequence[int]]

    def plan(self, batch_seconds: float, seed: int, epoch: int) -> list[list[int]]:
        """The batches of an epoch, as lists of indices."""
        return plan([u.duration for u in self.utterances], [u.id for u in self.utterances], batch_seconds, seed, epoch)


@dataclass
class Progress:
    """How far a run has come: whole epochs, batches of the running epoch, optimiser steps, and seconds it took."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    seconds: float = 0.0


class Trainer:
    """Train a recogniser; the same call on the same folder goes on where it was stopped.

    schedule:  has factor(step, progress), on the optimiser's learning rate
    out:       folder of checkpoints and curves
    group:     the processes that share the work; their number changes nothing but the speed, for a step is made of
               `accumulate` batches, whichever process takes them, and a dropout mask depends on (seed, step, batch)
    """

    def __init__(
        self,
        recognizer: Recognizer,
        optimizer: torch.optim.Optimizer,
        schedule,
        settings: TrainingSettings,
        data: DataSettings,
        train: Split,
        dev: Split,
        seed: int,
        out: Path,
        group: Group = Group(),  # noqa: B008 - frozen
    ):
        self.recognizer, self.optimizer, self.schedule = recognizer, optimizer, schedule
        self.settings, self.data, self.train_split, self.dev_split, self.seed = settings, data, train, dev, seed
        self.device = next(recognizer.parameters()).device
        self.lr = [group["lr"] for group in optimizer.param_groups]
        for parameter in recognizer.parameters():
            parameter.grad = torch.zeros_like(parameter)
        self.progress, self.out = Progress(), out
        self.checkpoints = Checkpoints(out / "checkpoints", settings.average, settings.best_by == "accuracy")
        self.group, self.monitor = group, Monitor(out, speaks=group.leads)
        self.saved_at = time.monotonic()

    def run(self) -> None:
        """Train to the last epoch, then put the average of the best checkpoints into the recogniser."""
        self._resume()
        while self.progress.epoch < self.settings.epochs:
            self._train_epoch()
            epoch = self.progress.epoch
            if self.group.leads and (epoch % self.settings.validate_every == 0 or epoch == self.settings.epochs):
                self._validate()
                self._save()
        if self.group.leads:
            self.checkpoints.load_average(self.recognizer)
            save_weights(self.recognizer, self.out / WEIGHTS)
        self.monitor.close()

    def _train_epoch(self) -> None:
        epoch, done = self.progress.epoch, self.progress.batch
        batches = self.train_split.plan(self.data.batch_seconds, self.seed, epoch)
        dataset = SpeechDataset(
            *(self.train_split.utterances, self.train_split.labels, self.recognizer.sample_rate),
            *(self.seed, epoch, self.data.speeds),
        )
        self.recognizer.train()
        steps = [batches[n : n + self.settings.accumulate] for n in range(done, len(batches), self.settings.accumulate)]
        shares = [step[self.group.rank :: self.group.size] for step in steps]
        stream = load(dataset, list(itertools.chain(*shares)), self.data.workers, pin=self.device.type == "cuda")
        disabled = None if self.group.leads else True  # None: drawn on a terminal only
        bar = tqdm(
            total=len(batches), initial=done, desc=f"epoch {epoch + 1}/{self.settings.epochs}", **BAR, disable=disabled
        )
        with bar:
            for step, share in zip(steps, shares, strict=True):
                self.progress.step += 1
                batch_fraction = self.progress.batch / len(batches)
                ids = [self.train_split.utterances[n].id for batch in step for n in batch]
                self._step([next(stream) for _ in share], (epoch + batch_fraction) / self.settings.epochs, ids)
                self.progress.batch += len(step)
                bar.update(len(step))
                bar.set_postfix_str(self.monitor.line(), refresh=False)
                if self.group.leads and time.monotonic() - self.saved_at > 60 * self.settings.save_minutes:
                    self._save()
        self.progress.epoch, self.progress.batch = epoch + 1, 0

    def _step(self, share: list[Batch], progress: float, ids: list[str]) -> None:
        """One optimiser step over this process' share of its batches; the loss is per target token of them all.

        progress:  in 0 .. 1, of the whole training; ids: of all the step's utterances, for messages
        """
        self.optimizer.zero_grad(set_to_none=False)
        sums = torch.zeros(len(SUMS), dtype=torch.float64)
        for n, batch in enumerate(share):
            place = n * self.group.size + self.group.rank
            torch.manual_seed(utterance_seed(self.seed, "dropout", self.progress.step, place))
            loss = self._loss(batch.to(self.device))
            loss.total.backward()
            sums += torch.tensor([float(getattr(loss, name)) for name in SUMS], dtype=torch.float64)
        self.group.add([sums])
        totals = dict(zip(SUMS, sums.tolist(), strict=True))
        norm = self._scale_and_clip(totals["tokens"])
        factor = self.schedule.factor(self.progress.step, progress)
        for group, lr in zip(self.optimizer.param_groups, self.lr, strict=True):
            group["lr"] = lr * factor
        if math.isfinite(norm):
            self.optimizer.step()
        else:
            self.monitor.skipped(ids, self.progress.step)
        self.monitor.step(totals, norm, self.lr[0] * factor, self.progress.step)

    def _loss(self, batch: Batch) -> Loss:
        masked = self.progress.epoch >= self.settings.mask_after
        with autocast(self.device, self.settings.precision):
            return self.recognizer.loss(batch.waveforms, batch.wave_lens, batch.Y, batch.Y_lens, batch.seeds, masked)

    def _scale_and_clip(self, tokens: float) -> float:
        """Turn the gradients of sums into that of the mean per token, clip its norm, return the norm before."""
        gradients = [p.grad for p in self.recognizer.parameters()]
        self.group.add(gradients)
        torch._foreach_div_(gradients, tokens)
        return float(nn.utils.clip_grad_norm_(self.recognizer.parameters(), self.settings.clip))

    def _validate(self) -> None:
        dataset = SpeechDataset(self.dev_split.utterances, self.dev_split.labels, self.recognizer.sample_rate)
        batches = self.dev_split.plan(self.data.batch_seconds, 0, 0)
        figures = validate(self.recognizer, load(dataset, batches, self.data.workers), self.settings.precision)
        best = self.checkpoints.add(self.recognizer, self.progress.epoch, figures[self.settings.best_by])
        if best:
            save_weights(self.recognizer, self.out / WEIGHTS)  # so that the folder can be decoded with meanwhile
        self.monitor.validated(figures, self.progress.epoch, self.progress.step, best)

    def _save(self) -> None:
        now = time.monotonic()
        self.progress.seconds += now - self.saved_at
        self.saved_at = now
        self.checkpoints.save_state(
            {
                "progress": vars(self.progress).copy(),
                "model": self.recognizer.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "monitor": json.dumps(self.monitor.state),
            }
        )

    def _resume(self) -> None:
        state = self.checkpoints.load_state()
        if state is None:
            return
        self.progress = Progress(**state["progress"])
        self.recognizer.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.monitor.state = json.loads(state["monitor"])
        self.monitor.rewind(self.progress.step)
        self.monitor.say(f"continuing at epoch {self.progress.epoch + 1}, batch {self.progress.batch + 1}")
