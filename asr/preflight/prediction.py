"""Estimate what a training takes: steps from its plan; memory and seconds from steps of two batches."""

import itertools
import math
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from asr import device as devices
from asr.models.stage import LATE
from asr.training.build import choose_device
from asr.training.distributed import launch
from asr.training.distributed.group import Group
from asr.training.distributed.replicas import WholeModel
from asr.training.layers import all_take_part
from asr.training.memory import free_bytes
from asr.training.task import Experiment
from asr.training.totals import NONE
from asr.training.trainer import MicroBatch, Trainer


@dataclass(frozen=True)
class Prediction:
    """The size of a training; sizes are seconds of audio, or tokens of a text.

    examples    usable ones of the training set; `size`: of all of them, in `unit` (s or tokens)
    batches     of the first epoch, `steps` of the optimizer; later epochs may differ by a few
    padding     share of the padded size of the batches
    parameters  of the model; `trained`: without frozen ones
    """

    examples: int
    size: float
    unit: str
    batches: int
    steps: int
    epochs: int
    padding: float
    parameters: int
    trained: int


@dataclass(frozen=True)
class Seconds:
    """Seconds of an optimizer step of one batch: read it, forward and backward, the optimizer's update."""

    read: float
    compute: float
    update: float


@dataclass(frozen=True)
class Measurement:
    """The measured cost of a training.

    largest    the most expensive batch
    median     the batch of median cost
    step       seconds of a step of the training: its batches, as the median, shared by the
               processes
    weights, gradients, states   bytes; states are the optimizer's
    peak       bytes of the GPU's memory, or of this process; None if unknown
    processes  that share a step's batches, each with its own memory
    larger     settings of the same step in larger batches, which suit a GPU; empty where there are
               none, or memory doesn't allow them
    """

    device: str
    largest: Seconds
    median: Seconds
    step: float
    weights: int
    gradients: int
    states: int
    peak: int | None
    processes: int
    larger: str = ""


def settle(experiment: Experiment, model: nn.Module, train: Any) -> Experiment:
    """Set the size of batches, measured if the settings say `auto`."""
    device, settings = choose_device(experiment)[0], experiment.training
    size = launch.count(settings.processes, settings.accumulate, device)
    return experiment.settle(model.to(device), train, size)


def predict(experiment: Experiment, model: nn.Module, train: Any) -> Prediction:
    """Count examples, batches, steps and parameters."""
    task = experiment.task(model, train, None)
    steps, sizes = task.plan(task.fullest_epoch, experiment.training.accumulate), task.sizes
    batches = list(itertools.chain(*steps))
    padded = sum(len(batch) * sizes[batch].max() for batch in batches)
    parameters = [(p.numel(), p.requires_grad) for p in model.parameters()]
    return Prediction(
        examples=len(sizes),
        size=float(sizes.sum()),
        unit=task.unit,
        batches=len(batches),
        steps=len(steps),
        epochs=experiment.training.epochs,
        padding=1 - float(sizes.sum() / padded),
        parameters=sum(n for n, _ in parameters),
        trained=sum(n for n, trained in parameters if trained),
    )


def measure(experiment: Experiment, model: nn.Module, train: Any) -> Measurement:
    """Run optimizer steps: of the most expensive batch for the memory, of the median for the time.

    The median runs twice, because sizes recur in a training, and the first time takes a CPU half
    as long again.
    raises   UserError if the device can't be used, a recording can't be read, or the memory is too
             small
    """
    task, workers = (
        experiment.task(model, train, None, workers=0),
        experiment.task(model, train, None).workers,
    )
    steps, sizes = task.plan(task.fullest_epoch, experiment.training.accumulate), task.sizes
    settings, device = experiment.training, choose_device(experiment)[0]
    size = launch.count(settings.processes, settings.accumulate, device)
    # as attention's cost
    ordered = sorted(
        itertools.chain(*steps), key=lambda batch: len(batch) * sizes[batch].max() ** 2
    )
    bf16 = devices.in_bf16(device, settings.precision)
    replicas = WholeModel(model.to(device).train(), experiment.optimizer.build, Group(), bf16)
    trainer = Trainer(task, replicas, experiment.schedule, settings, seed=0)
    middle = ordered[len(ordered) // 2]
    largest, _, median = run(trainer, [ordered[-1], middle, middle], size)
    batch = max(median.compute, median.read / workers) if workers else median.compute + median.read
    trained = [p for p in model.parameters() if p.requires_grad]
    states = [
        value
        for state in replicas.optimizer.state.values()
        for value in state.values()
        if torch.is_tensor(value)
    ]
    weights, gradients = count_bytes(model.state_dict().values()), count_bytes(trained)
    kept, most = weights + gradients + count_bytes(states), peak(device)
    times, larger = 1, ""
    if device.type == "cuda" and most and most > kept:
        room = free_bytes(device, size)
        times = mergeable(settings.accumulate, size, room / (most - kept))
    if times > 1:
        name = "batch_seconds" if task.unit == "s" else "batch_tokens"
        value = times * float(getattr(experiment.data, name))
        larger = f"data.{name}={value:g} training.accumulate={settings.accumulate // times}"
    return Measurement(
        device=str(device),
        largest=largest,
        median=median,
        step=math.ceil(settings.accumulate / size) * batch + median.update,
        weights=weights,
        gradients=gradients,
        states=count_bytes(states),
        peak=most,
        processes=size,
        larger=larger,
    )


def mergeable(accumulate: int, processes: int, fit: float) -> int:
    """How many batches may become one, so that all processes still have as many.

    fit  batches that memory holds at once

    >>> [mergeable(8, 2, fit) for fit in (1.5, 3.9, 99)], mergeable(6, 1, 5)
    ([1, 2, 4], 3)
    """
    most = min(accumulate // processes, int(fit))
    even = range(1, most + 1)
    return max((n for n in even if accumulate % (n * processes) == 0), default=1)


def run(trainer: Trainer, batches: list[list[int]], size: int) -> list[Seconds]:
    """Run a step of each batch, as in a late epoch, with the threads of one of `size` processes.

    The first step, which measures the memory, runs without LayerDrop.
    """
    threads = launch.threads_each(size, trainer.settings.accumulate, trainer.device)
    with launch.computing_with(threads), devices.tuned(trainer.device):
        with all_take_part(trainer.task.model):
            first = step(trainer, batches[0])
        return [first, *(step(trainer, batch) for batch in batches[1:])]


def step(trainer: Trainer, batch: list[int]) -> Seconds:
    """Time one optimizer step of one batch, with the loss of a late epoch."""
    times, replicas, settings = [time.perf_counter()], trainer.replicas, trainer.settings
    read = next(iter(trainer.task.load(trainer.task.fullest_epoch, [batch])))
    times.append(time.perf_counter())
    replicas.zero_grad(1)
    rows = trainer.accumulate([MicroBatch((0,), read)], 1, LATE, number=1)
    totals = rows.over(trainer.group, NONE)  # waits for a GPU
    times.append(time.perf_counter())
    if torch.isfinite(replicas.reduce_and_clip(totals.sums["tokens"], settings.clip)):
        replicas.optimizer.step()
    if trainer.device.type == "cuda":
        torch.cuda.synchronize()
    times.append(time.perf_counter())
    return Seconds(*(after - before for before, after in itertools.pairwise(times)))


def count_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Count the bytes of tensors, shared ones once."""
    return sum({t.data_ptr(): t.numel() * t.element_size() for t in tensors}.values())


def peak(device: torch.device) -> int | None:
    """Return the peak memory so far, bytes: of a GPU, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def rows(prediction: Prediction, measurement: Measurement | None) -> list[tuple[str, str]]:
    """Format everything for the terminal."""
    return prediction_rows(prediction) + (
        measurement_rows(measurement, prediction) if measurement else []
    )


def prediction_rows(p: Prediction) -> list[tuple[str, str]]:
    """Format the prediction."""
    size = (
        f"{p.size / 3600:,.2f} hours"
        if p.unit == "s"
        else f"{p.size:,.0f} tokens, ends of sentences included"
    )
    frozen = f", {p.parameters - p.trained:,} of them frozen" if p.trained < p.parameters else ""
    return [
        ("training set", f"{p.examples:,} usable, {size}"),
        (
            "steps",
            f"{p.steps:,} an epoch ({p.batches:,} batches), about {p.steps * p.epochs:,} in {p.epochs} epochs",
        ),
        ("padding", f"{p.padding:.1%} of the batches"),
        ("parameters", f"{p.parameters:,}{frozen}"),
    ]


def measurement_rows(m: Measurement, p: Prediction) -> list[tuple[str, str]]:
    """Format the measurement."""
    where = (
        "the GPU's"
        if m.device.startswith("cuda")
        else "of each process"
        if m.processes > 1
        else "of the process"
    )
    measured = f"; peak {megabytes(m.peak)} ({where})" if m.peak else ""
    parts = f"weights {megabytes(m.weights)}, gradients {megabytes(m.gradients)}, optimizer {megabytes(m.states)}"
    several = f", {m.processes} processes" if m.processes > 1 else ""
    seconds = [sum((s.read, s.compute, s.update)) for s in (m.median, m.largest)]
    epoch = m.step * p.steps
    return [
        ("memory", parts + measured),
        ("a batch", f"median {seconds[0]:.2f} s, largest {seconds[1]:.2f} s, on {m.device}"),
        (
            "time",
            f"{m.step:.2f} s a step{several}; {span(epoch)} an epoch, {span(epoch * p.epochs)} in all, "
            "validation not counted",
        ),
        *(
            [("larger batches", f"{m.larger} is the same step, faster on a GPU")]
            if m.larger
            else []
        ),
    ]


def megabytes(count: int) -> str:
    """Format bytes."""
    return f"{count / 1e6:,.1f} MB" if count < 1e9 else f"{count / 1e9:,.2f} GB"


def span(seconds: float) -> str:
    """Format seconds.

    >>> span(90)
    '1.5 minutes'
    """
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} seconds"
