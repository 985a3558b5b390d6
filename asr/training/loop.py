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
from asr.models.recognizer import WEIGHTS, Recognizer, save_weights
from asr.training.checkpoint import Checkpoints
from asr.training.device import autocast
from asr.training.monitor import Monitor
from asr.training.settings import DataSettings, TrainingSettings
from asr.training.validation import validate

BAR = {"leave": False, "disable": None, "mininterval": 0.5}  # drawn on a terminal only


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
    """How far a run has come: whole epochs, batches of the running epoch, optimiser steps."""

    epoch: int = 0
    batch: int = 0
    step: int = 0


class Trainer:
    """Train a recogniser; the same call on the same folder goes on where it was stopped.

    schedule:  has factor(step, progress), on the optimiser's learning rate
    out:       folder of checkpoints and curves
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
    ):
        self.recognizer, self.optimizer, self.schedule = recognizer, optimizer, schedule
        self.settings, self.data, self.train_split, self.dev_split, self.seed = settings, data, train, dev, seed
        self.device = next(recognizer.parameters()).device
        self.lr = [group["lr"] for group in optimizer.param_groups]
        self.progress, self.out = Progress(), out
        self.checkpoints = Checkpoints(out / "checkpoints", settings.average, settings.best_by == "accuracy")
        self.monitor = Monitor(out)
        self.saved_at = time.monotonic()

    def run(self) -> None:
        """Train to the last epoch, then put the average of the best checkpoints into the recogniser."""
        self._resume()
        while self.progress.epoch < self.settings.epochs:
            self._train_epoch()
            epoch = self.progress.epoch
            if epoch % self.settings.validate_every == 0 or epoch == self.settings.epochs:
                self._validate()
            self._save()
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
        stream = load(dataset, batches[done:], self.data.workers, pin=self.device.type == "cuda")
        with tqdm(total=len(batches), initial=done, desc=f"epoch {epoch + 1}/{self.settings.epochs}", **BAR) as bar:
            while group := list(itertools.islice(stream, self.settings.accumulate)):
                self.progress.step += 1
                self._step(group, (epoch + self.progress.batch / len(batches)) / self.settings.epochs)
                self.progress.batch += len(group)
                bar.update(len(group))
                bar.set_postfix_str(self.monitor.line(), refresh=False)
                if time.monotonic() - self.saved_at > 60 * self.settings.save_minutes:
                    self._save()
        self.progress.epoch, self.progress.batch = epoch + 1, 0

    def _step(self, group: list[Batch], progress: float) -> None:
        """One optimiser step over accumulated batches; the loss is per target token of them all."""
        torch.manual_seed(utterance_seed(self.seed, "dropout", self.progress.step))
        self.optimizer.zero_grad(set_to_none=True)
        losses = []
        for batch in group:
            batch = batch.to(self.device)
            masked = self.progress.epoch >= self.settings.mask_after
            with autocast(self.device, self.settings.precision):
                loss = self.recognizer.loss(
                    batch.waveforms, batch.wave_lens, batch.Y, batch.Y_lens, batch.seeds, masked
                )
            loss.total.backward()
            losses.append(loss)
        tokens = sum(loss.tokens for loss in losses)
        norm = self._scale_and_clip(tokens)
        factor = self.schedule.factor(self.progress.step, progress)
        for group_, lr in zip(self.optimizer.param_groups, self.lr, strict=True):
            group_["lr"] = lr * factor
        if math.isfinite(norm):
            self.optimizer.step()
        else:
            self.monitor.skipped([name for batch in group for name in batch.ids], self.progress.step)
        self.monitor.step(losses, norm, self.lr[0] * factor, self.progress.step)

    def _scale_and_clip(self, tokens: torch.Tensor) -> float:
        """Turn the gradient of the sum into that of the mean per token, clip its norm, return the norm before."""
        gradients = [p.grad for p in self.recognizer.parameters() if p.grad is not None]
        torch._foreach_div_(gradients, float(tokens))
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
        self.checkpoints.save_state(
            {
                "progress": vars(self.progress).copy(),
                "model": self.recognizer.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "monitor": json.dumps(self.monitor.state),
            }
        )
        self.saved_at = time.monotonic()

    def _resume(self) -> None:
        state = self.checkpoints.load_state()
        if state is None:
            return
        self.progress = Progress(**state["progress"])
        self.recognizer.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.monitor.state = json.loads(state["monitor"])
        self.monitor.say(f"continuing at epoch {self.progress.epoch + 1}, batch {self.progress.batch + 1}")
