"""The run of an experiment: its folder, its processes, what it leaves behind."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from asr import device as devices
from asr import provenance
from asr.config import Settings, dump
from asr.files import write_text
from asr.logging import logger
from asr.models.folder import VERSIONS
from asr.stamp import Stamp
from asr.training import memory
from asr.training.build import build, choose_device, count_parameters, fine_tune
from asr.training.checkpoint import Checkpoints
from asr.training.distributed import launch
from asr.training.distributed.fsdp import ShardedModel
from asr.training.distributed.group import Group
from asr.training.distributed.replicas import WholeModel
from asr.training.folder import (
    added,
    check_folder,
    continues,
    has_checkpoint,
    open_folder,
    versions,
)
from asr.training.layers import compile_layers
from asr.training.session import STATES
from asr.training.task import Examples, Experiment
from asr.training.trainer import Trainer


@dataclass(frozen=True)
class Data:
    """What the leading process has read, for all: the examples, and the statistics that the model holds of them."""

    examples: Examples
    statistics: dict[str, list]


def train(experiment: Experiment, stamp: Stamp) -> Any:
    """Run an experiment, or continue it: train, then write the model folder `experiment.out`.

    Under torchrun this is one of several processes that do so together.

    stamp    identifies the run: a folder begun under another one is moved aside
    returns  the model with the weights that were chosen
    raises   UserError for everything that is wrong with the settings or the data, before training
             begins
    """
    settings, out = experiment.training, Path(experiment.out)
    with ExitStack() as held:
        group = (
            held.enter_context(launch.joined(settings.accumulate)) if launch.launched() else Group()
        )
        device, which = group.share(lambda: choose_device(experiment))
        experiment = group.share(partial(resolve, experiment, stamp))
        size = group.size
        if not launch.launched():
            size = launch.count(settings.processes, settings.accumulate, device)
        data = group.share(lambda: prepare(experiment, stamp, (device, which), size, held))
        threads = launch.threads_each(size, settings.accumulate, device)
        if size > group.size:
            launch.spawn(train_member, size, experiment, data, device, threads=threads)
        else:
            with launch.computing_with(threads), memory.explain_oom():
                trainer(group, experiment, data, device).fit(out)
        group.share(lambda: finish(experiment, data.examples.train, out, stamp))
    return experiment.Model.load(out)


def resolve(experiment: Experiment, stamp: Stamp) -> Experiment:
    """Complete the settings by the files of others that they name, or by those of the run that continues."""
    out = Path(experiment.out)
    check_folder(out)
    return experiment.resolved(continues(out, stamp))


def prepare(
    experiment: Experiment, stamp: Stamp, on: tuple[torch.device, str], size: int, held: ExitStack
) -> Data:
    """Read and check the data, open the run's folder, which is kept from others while `held` lasts, describe the run.

    on, size   the device, with it in words, and the number of processes
    """
    device, which = on
    out = Path(experiment.out)
    model = build(experiment)
    continued = continues(out, stamp)
    transfer = fine_tune(experiment, model, continued)
    examples = experiment.read(model, looked=continued)
    out, lock = open_folder(out, stamp)
    held.enter_context(lock)
    logger.info(f"{which}, {size} processes; {count_parameters(model)}; everything goes to {out}")
    write_text(out / "dropped.tsv", examples.dropped)
    if transfer:
        logger.info(f"{transfer.message}\n  transfer.tsv lists all")
        write_text(out / "transfer.tsv", transfer.lines())
    statistics = experiment.statistics(model)
    if statistics and transfer and transfer.has_statistics:
        logger.info(
            f"CMVN: the statistics are those of {experiment.init_from}, which its weights expect"
        )
    elif not continued:
        experiment.fit_statistics(model, examples.train)
    model.describe(out, dump(cast(Settings, experiment)))
    session = {"commit": provenance.commit(), "hardware": devices.hardware(device, size)}
    facts = versions(which, experiment.seed) | {
        name: added(out, name, now) for name, now in session.items()
    }
    facts |= experiment.facts(examples.train)
    write_text(out / VERSIONS, json.dumps(facts, indent=1) + "\n")
    return Data(
        examples,
        {name: x.tolist() for name, x in statistics.state_dict().items()} if statistics else {},
    )


def finish(experiment: Experiment, train: Any, out: Path, stamp: Stamp) -> None:
    """Complete the model folder, and stamp the finished run."""
    experiment.complete(experiment.Model.load(out), train)
    state = Checkpoints(out / STATES, 1, logger.info).load()
    assert state, "a finished run has saved one"
    trained = state["progress"]["seconds"]  # over all sessions
    sessions = json.loads((out / VERSIONS).read_text(encoding="utf-8"))
    stamp.write(seconds=round(trained, 1), commit=sessions["commit"], hardware=sessions["hardware"])
    logger.info(f"finished: {out} holds the model")


def train_member(group: Group, experiment: Experiment, data: Data, device: torch.device) -> None:
    """Train as one of a group of processes."""
    with memory.explain_oom():
        trainer(group, experiment, data, device).fit(Path(experiment.out))


def trainer(group: Group, experiment: Experiment, data: Data, device: torch.device) -> Trainer:
    """Make a process' own model, with the weights to begin with, and its trainer."""
    settings, device = experiment.training, group.device(device)
    model = build(experiment)
    fine_tune(experiment, model, continued=has_checkpoint(Path(experiment.out)))
    if statistics := experiment.statistics(model):
        statistics.load_state_dict(
            {name: torch.tensor(values) for name, values in data.statistics.items()}
        )
    model.to(device)
    train, dev = data.examples.train, data.examples.dev
    remember = partial(measured_once, group, Path(experiment.out) / "batch_seconds.json")
    task = experiment.settle(model, train, group.size, remember).task(model, train, dev)
    # on a CPU compiling takes minutes to begin with, and no step is faster
    compiled = settings.compile and device.type == "cuda"
    if compiled:  # before PyTorch shards the layers, whose hooks aren't compiled
        compile_layers(model)
    kind = ShardedModel if settings.shard and group.size > 1 else WholeModel
    bf16 = devices.in_bf16(device, settings.precision)
    replicas = kind(model, experiment.optimizer.build, group, bf16, compiled)
    return Trainer(task, replicas, experiment.schedule, settings, experiment.seed, group)


def measured_once(group: Group, path: Path, measure: Callable[[], float]) -> float:
    """Measure in the first process, unless an earlier session of this run has written what it came to."""

    def settle() -> float:
        if not path.exists():
            write_text(path, json.dumps(measure()) + "\n")
        return json.loads(path.read_text(encoding="utf-8"))

    return group.share(settle)
