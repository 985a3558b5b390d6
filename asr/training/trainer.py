"""The training loop: epochs of optimizer steps, validation, checkpoints; exact to resume."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from asr.device import autocast, tuned
from asr.errors import UserError
from asr.logging import logger
from asr.memory import is_oom
from asr.models.folder import WEIGHTS, save_weights
from asr.models.stage import LATE, Stage
from asr.seeding import utterance_seed
from asr.training.checkpoint import RunningAverage
from asr.training.distributed.group import Group
from asr.training.distributed.replicas import Replicas
from asr.training.layers import all_take_part, never_thaws
from asr.training.session import Progress, Session
from asr.training.settings import LoopSettings
from asr.training.signals import Stopped
from asr.training.task import Task
from asr.training.totals import NONE, Requests, StepResult, StepRows


class MicroBatch(NamedTuple):
    """A batch of an optimizer step, or a part of one that didn't fit in memory.

    path    its slot in the step; then which half of it, which half of that, and so on
    weight  of its loss
    """

    path: tuple[int, ...]
    batch: Any
    weight: float = 1.0

    def halves(self) -> list["MicroBatch"]:
        """Split it into two parts."""
        return [
            MicroBatch((*self.path, n), half, self.weight)
            for n, half in enumerate(self.batch.halves())
        ]


@dataclass(frozen=True)
class PlannedStep:
    """An optimizer step that lies ahead.

    number   from 1 on; place: in its epoch, likewise
    batches  of all processes, each a list of indices of examples, by slot
    share    of this process: (slot, batch, weight)
    stream   yields what is read of the shares
    begin    epochs that are done before it; end: after it
    """

    number: int
    place: int
    batches: Sequence[list[int]]
    share: Sequence[tuple[int, list[int], float]]
    stream: Iterator[Any]
    begin: float
    end: float

    def read(self) -> list[MicroBatch]:
        """Wait for the data of the share."""
        return [MicroBatch((slot,), next(self.stream), weight) for slot, _, weight in self.share]


class Trainer:
    """Train a task's model.

    task:      the model, its data, loss and validation
    replicas:  of the task's model, whole or in shards, with its optimizer
    schedule:  has factor(step, progress), on the optimizer's learning rates
    group:     the processes that share the work; their number changes nothing but the speed, for a
               step is made of `accumulate` batches, whichever process takes them, and a dropout
               mask depends on (seed, step, batch)
    session:   since `fit`; average: of the weights, if settings.ema
    """

    session: Session
    average: RunningAverage | None

    def __init__(
        self,
        task: Task,
        replicas: Replicas,
        schedule: Any,
        settings: LoopSettings,
        seed: int,
        group: Group = Group(),  # noqa: B008 - frozen
        log: Callable[[str], None] = logger.info,
    ):
        self.task, self.replicas, self.schedule, self.settings = task, replicas, schedule, settings
        self.seed, self.group, self.log = seed, group, log
        self.device = next(replicas.model.parameters()).device
        self.progress, self.average = Progress(), None
        self.too_large = math.inf  # elements of a batch that didn't fit in memory

    def fit(self, out: Path) -> None:
        """Train to the last epoch, then choose among the averages of weights by the dev set.

        The same call on the same folder continues where it stopped.

        raises   Stopped if a signal asked to end; what was done is saved. UserError, which names
                 the newest state, if the disk is full, a batch doesn't fit in memory, or the
                 gradient isn't finite for long, or never was
        """
        self.session = session = Session(
            out, self.task.sums, self.task.unit, self.settings, self.group
        )
        self.log = session.monitor.log
        self.average = (
            RunningAverage(self.replicas.model, self.settings.ema) if self.settings.ema else None
        )
        self.resume()
        with session.running(), tuned(self.device):
            if self.device.type == "cuda":
                self.warm_up_largest_batch()
            while self.progress.validated < self.settings.epochs:
                if self._validation_is_due():
                    self.validate()
                    continue
                for step in self._rest_of_epoch():
                    began = time.monotonic()
                    with session.watch.over(partial(self._describe, step), is_step=True):
                        batches, waited = step.read(), time.monotonic() - began
                        requests = session.requests(step.number)
                        result = self.train_step(batches, len(step.batches), step.begin, requests)
                        del batches  # before the next are read
                    self._report(step, result, waited, time.monotonic() - began)
                    self.handle_requests(result.totals.requests)
            session.monitor.check_applied(self.progress.step)
            with session.signals.at_once(), session.watch.over(lambda: "the choice of weights"):
                self.choose_weights()

    def train_step(
        self,
        batches: Sequence[MicroBatch],
        count: int,
        epochs: float = 0.0,
        requests: Requests = NONE,
    ) -> StepResult:
        """Take one optimizer step.

        batches   this process' share of the step; what it accumulates is added over the processes
        count     of the step's batches, over all processes
        epochs    that are done, with their fraction; the learning rate follows from them
        requests  of this process, which all get to know
        """
        progress, replicas, number = self.progress, self.replicas, self.progress.step + 1
        replicas.zero_grad(count)
        stage = Stage(progress.epoch, number)
        rows = self.accumulate(batches, count, stage, number)  # forward, backward
        totals = rows.over(self.group, requests)
        norm = float(replicas.reduce_and_clip(totals.sums["tokens"], self.settings.clip))
        for group in replicas.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * self.schedule.factor(
                number, epochs / self.settings.epochs
            )
        result = StepResult(totals, norm)
        if result.applied:
            with left_out(replicas.optimizer.param_groups, number):
                replicas.optimizer.step()
            if self.average:
                self.average.update(number)
        progress.step, progress.done = number, progress.done + 1
        return result

    def accumulate(
        self, batches: Sequence[MicroBatch], count: int, stage: Stage, number: int
    ) -> StepRows:
        """Add up the gradients of batches; one that doesn't fit in memory is halved, and all begun again.

        stage    of the training, which decides what the loss has
        number   of the step, by which dropout is drawn
        returns  the loss's sums, by slot
        raises   UserError if a single example doesn't fit
        """
        batches = list(batches)
        while True:
            rows = StepRows.zeros(self.task.sums, self.settings.accumulate, self.device)
            for n, (path, batch, weight) in enumerate(batches):  # noqa: B007 - which of them doesn't fit
                if (
                    batch.elements >= self.too_large
                    and self.replicas.independent
                    and len(batch) > 1
                ):
                    break
                try:
                    torch.manual_seed(utterance_seed(self.seed, "dropout", number, *path))
                    with self.replicas.computing(path[0]):
                        with autocast(self.device, self.settings.precision):
                            loss = self.task.loss(self.replicas.model, batch.to(self.device), stage)
                        (loss.total * weight).backward()
                    rows.add(path[0], loss, self.task.amount(batch), weight)
                except RuntimeError as error:  # torch.OutOfMemoryError is one
                    if not is_oom(error):
                        raise
                    self._note_too_large(batch, number, error)
                    break
            else:
                return rows
            loss = batch = None  # and with it the memory that its backward pass would have needed
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            batches[n : n + 1] = batches[n].halves()
            self.replicas.zero_grad(count)

    def _note_too_large(self, batch: Any, step: int, error: Exception) -> None:
        """Remember how large a batch was that didn't fit, or give up."""
        what = f"step {step}: a batch of {len(batch)} examples, {self.task.amount(batch):.0f} {self.task.unit}"
        if not self.replicas.independent or len(batch) == 1:
            how = "smaller batches" if len(batch) > 1 else "a smaller maximal length"
            raise UserError(
                f"{what}, doesn't fit in memory; set {how} in data, training.activation_checkpointing=true, or a "
                "smaller model"
            ) from error
        self.too_large = min(self.too_large, batch.elements)
        self.log(f"{what}, doesn't fit in memory: from now on such batches are computed in halves")

    def warm_up_largest_batch(self) -> None:
        """Compute the gradient of the batch with the longest example and forget it: what doesn't fit shows now."""
        self.group.add(
            torch.zeros(1, device=self.device)
        )  # NCCL takes its memory now, while there is some
        longest, epoch = self.task.longest(1)[0], self.task.fullest_epoch
        steps = self.task.plan(epoch, self.settings.accumulate)
        heaviest = next(batch for step in steps for batch in step if longest in batch)
        [batch] = self.task.load(epoch, [heaviest])
        self.replicas.model.train()
        self.replicas.zero_grad(1)
        with all_take_part(self.replicas.model):
            self.accumulate([MicroBatch((0,), batch)], 1, LATE, number=0)

    def _rest_of_epoch(self) -> Iterator[PlannedStep]:
        """Yield the steps of the running epoch that are left; their data is read ahead."""
        progress, settings = self.progress, self.settings
        plan = self.task.plan(progress.epoch, settings.accumulate)
        if not progress.step and (
            frozen := never_thaws(self.replicas.model, settings.epochs * len(plan))
        ):
            self.log(frozen)
        epoch, left = progress.epoch, range(progress.done, len(plan))
        shares = (self.replicas.share(plan[n]) for n in left)
        stream = self.task.load(epoch, (batch for share in shares for _, batch, _ in share))
        self.replicas.model.train()
        with self.session.monitor.bar(len(plan), progress.done, epoch, settings.epochs) as bar:
            for n in left:
                begin, end = epoch + n / len(plan), epoch + (n + 1) / len(plan)
                yield PlannedStep(
                    progress.step + 1,
                    n + 1,
                    plan[n],
                    self.replicas.share(plan[n]),
                    stream,
                    begin,
                    end,
                )
                bar.update()
        progress.epoch, progress.done = epoch + 1, 0

    def _report(self, step: PlannedStep, result: StepResult, waited: float, seconds: float) -> None:
        """Show a step; seconds: that it took, of which it `waited` for its data."""
        totals, monitor = result.totals, self.session.monitor
        if result.applied:
            lr = self.replicas.optimizer.param_groups[0]["lr"]
            monitor.step(
                totals.sums, result.norm, lr, step.number, step.end, totals.amount, waited, seconds
            )
        else:
            named = [step.batches[slot] for slot in totals.faulty] or step.batches
            what = "loss" if totals.faulty else "gradient"
            monitor.skipped(self.task.name(named), step.number, f"its {what} isn't finite")

    def _describe(self, step: PlannedStep) -> str:
        """Name the step that runs, and what this process does of it."""
        named = self.task.name([batch for _, batch, _ in step.share])
        return f"step {step.number} (epoch {self.progress.epoch + 1}, step {step.place} of it; {named})"

    def handle_requests(self, requests: Requests) -> None:
        """Save if any process asks for it; end if any does.

        raises   Stopped, after saving
        """
        if requests.save or requests.end:
            self.save()
        if requests.end:
            self.group.share(
                lambda: self.log(f"stopped after step {self.progress.step}; all is saved")
            )
            raise Stopped(requests.end)

    def _validation_is_due(self) -> bool:
        epoch, last = self.progress.epoch, self.progress.epoch == self.settings.epochs
        return epoch > self.progress.validated and (
            last or epoch % self.settings.validate_every == 0
        )

    def validate(self) -> None:
        """Judge the weights by the dev set, keep them if they are among the best or the last, and save."""
        progress, session, model = self.progress, self.session, self.replicas.full_model()
        try:
            with (
                session.signals.at_once(),
                session.watch.over(lambda: f"the validation of epoch {progress.epoch}"),
            ):
                metrics = self.task.validate(self.settings.precision, self.group)
        except Stopped:
            if self.replicas.independent:
                self.save()  # the epoch is trained, but not validated
            raise
        if self.group.leads:
            best = session.validated.add(model, progress.epoch, metrics[self.settings.best_by])
            if best:
                save_weights(
                    model, session.out / WEIGHTS
                )  # so that the folder can be decoded with meanwhile
            session.monitor.validated(metrics, progress.epoch, progress.step, best)
            session.monitor.alignments(self.task.alignments(), progress.step)
        progress.validated = progress.epoch
        self.save()

    def choose_weights(self) -> None:
        """Make that one of the averages the model that is best on the dev set, in fp32."""
        model, metrics = self.replicas.full_model(), {}
        candidates = self._candidates(model)
        for name, load in candidates.items():
            load()
            metrics[name] = self.task.validate("fp32", self.group)
        rank = self.session.validated.rank
        chosen = min(metrics, key=lambda name: rank(metrics[name][self.settings.best_by]))
        if self.group.leads:
            candidates[chosen]()
            save_weights(model, self.session.out / WEIGHTS)
            self.session.monitor.chosen(chosen, metrics, self.progress.epoch, self.progress.step)

    def _candidates(self, model: nn.Module) -> dict[str, Callable[[], Any]]:
        """Name → what loads it into the model; the same weights under two names once."""
        best, last = self.group.share(self.session.intact)
        load = self.session.validated.load
        epochs = {
            "the best": best[:1],
            f"average of the {len(best)} best": best,
            f"average of the {len(last)} last": last,
        }
        different = {
            tuple(sorted(chosen)): name for name, chosen in reversed(epochs.items()) if chosen
        }
        candidates: dict[str, Callable[[], Any]] = {
            name: partial(load, model, list(chosen)) for chosen, name in different.items()
        }
        if not candidates:
            now = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            candidates["the last"] = partial(model.load_state_dict, now)
        if self.average:
            candidates["running average"] = self.average.put
        return candidates

    def save(self) -> None:
        """Write a training state."""
        averages = {"average": self.average.averages} if self.average else {}
        self.session.save(self.progress, self.replicas.state() | averages)

    def resume(self) -> None:
        """Continue from the newest good state."""
        session, state = self.session, self.session.load()
        if state is None:
            return session.monitor.rewind(0)
        self.progress = Progress(**state["progress"])
        self.replicas.load(state)
        if self.average:
            self.average.load(state["average"])
        session.restore(state)
        session.monitor.rewind(self.progress.step)
        self.log(self._left())

    def _left(self) -> str:
        """What a continued run begins with, in words."""
        progress = self.progress
        if progress.validated >= self.settings.epochs:
            return f"all {progress.validated} epochs are done; only the choice of weights is left"
        if self._validation_is_due():
            return f"continuing with the validation of epoch {progress.epoch}"
        return f"continuing at epoch {progress.epoch + 1}, step {progress.done + 1} of it"


@contextlib.contextmanager
def left_out(groups: Sequence[dict], step: int) -> Iterator[None]:
    """Within it, parameters that are frozen in a step have no gradient, so that an optimizer passes them over."""
    frozen = [group["params"] for group in groups if step <= group.get("frozen_steps", 0)]
    kept = [(parameter, parameter.grad) for part in frozen for parameter in part]
    for parameter, _ in kept:
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient in kept:
            parameter.grad = gradient
