"""The run of an experiment: its folder, its processes, what it leaves behind."""

import json
import platform
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import IO

import torch

from asr import __version__, origin
from asr.config import dump
from asr.data.batches import SpeechDataset, load
from asr.data.plan import plan
from asr.data.sentences import Sentences
from asr.errors import UserError
from asr.experiment import (
    Experiment,
    build,
    choose_device,
    count_parameters,
    fine_tune,
    is_open,
    make_task,
    measured,
    read,
    with_batches,
)
from asr.files import hold, make_folder, write_text
from asr.models import lm
from asr.models import recognizer as recognizers
from asr.models.folder import VERSIONS, describe
from asr.models.lm import LanguageModel
from asr.models.recognizer import Recognizer
from asr.say import say
from asr.stamp import Stamp
from asr.training import device as devices
from asr.training import processes
from asr.training.blocks import compile_layers
from asr.training.checkpoint import Checkpoints
from asr.training.loop import STATES, Trainer
from asr.training.optimizer import optimizer
from asr.training.processes import Group
from asr.training.replicas import Replicas
from asr.training.settings import DataSettings
from asr.training.shards import Shards
from asr.training.speech import Split

CMVN_UTTERANCES = 20_000  # the statistics are taken over all training utterances, or so many drawn at random
CMVN_BATCH = 100.0  # seconds of audio, where the training's batches aren't settled yet
BEGUN = "begun.json"


@dataclass(frozen=True)
class Data:
    """What the leading process has read, for all: examples to train on and to judge by, and the CMVN's statistics."""

    train: Split | Sentences
    dev: Split | Sentences
    cmvn: dict[str, list]


def train(experiment: Experiment, stamp: Stamp) -> Recognizer | LanguageModel:
    """Run an experiment, or continue it: train, then write the model folder `experiment.out`.

    Under torchrun this is one of several processes that do so together.

    stamp    identifies the run: a folder begun under another one is moved aside
    returns  the model with the weights that were chosen
    raises   UserError for everything that is wrong with the settings or the data, before training begins
    """
    settings, out = experiment.training, Path(experiment.out)
    with ExitStack() as held:
        if processes.launched():
            with processes.joined(settings.accumulate) as group:
                device, which = group.share(lambda: choose_device(experiment))
                data = group.share(lambda: prepare(experiment, stamp, (device, which), group.size, held))
                train_member(group, experiment, data, device)
                group.share(lambda: finish(out, stamp))
        else:
            device, which = choose_device(experiment)
            size = processes.count(settings.processes, settings.accumulate, device)
            data = prepare(experiment, stamp, (device, which), size, held)
            processes.run(train_member, size, experiment, data, device)
            finish(out, stamp)
    return {"hybrid": recognizers.load, "lm": lm.load}[experiment.model.kind](out)


def prepare(experiment: Experiment, stamp: Stamp, on: tuple[torch.device, str], size: int, held: ExitStack) -> Data:
    """Read and check the data, open the run's folder, which is kept from others while `held` lasts, describe the run.

    on, size   the device, with it in words, and the number of processes
    """
    device, which = on
    model, out = build(experiment), Path(experiment.out)
    continued = continues(out, stamp)
    transfer = fine_tune(experiment, model, continued)
    train, dev, dropped = read(experiment, model, continued)
    out, file = begin(out, stamp)
    held.enter_context(file)
    say(f"{which}, {size} processes; {count_parameters(model)}; everything goes to {out}")
    write_text(out / "dropped.tsv", dropped)
    if transfer:
        say(f"{transfer.message}\n  transfer.tsv lists all")
        write_text(out / "transfer.tsv", transfer.lines())
    if isinstance(model, Recognizer) and not continued:
        if transfer and transfer.has_statistics:
            say(f"CMVN: the statistics are those of {experiment.init_from}, which its weights expect")
        else:
            fit_cmvn(model, train, experiment.data, experiment.seed)
    describe(out, dump(experiment), model.tokenizer)
    sitting = {"commit": origin.commit(), "hardware": devices.hardware(device, size)}
    facts = versions(which, experiment.seed) | {name: added(out, name, now) for name, now in sitting.items()}
    if isinstance(model, Recognizer):
        facts["longest_seconds"] = round(float(train.utterances.durations.max()), 2)
    write_text(out / VERSIONS, json.dumps(facts, indent=1) + "\n")
    return Data(train, dev, statistics(model))


def finish(out: Path, stamp: Stamp) -> None:
    """Stamp the finished run."""
    trained = Checkpoints(out / STATES, 1, say).load()["progress"]["seconds"]  # over all its sittings
    sittings = json.loads((out / VERSIONS).read_text(encoding="utf-8"))
    stamp.write(seconds=round(trained, 1), commit=sittings["commit"], hardware=sittings["hardware"])
    say(f"finished: {out} holds the model")


def train_member(group: Group, experiment: Experiment, data: Data, device: torch.device) -> None:
    """Train as one of a group of processes."""
    settings, device = experiment.training, group.device(device)
    model = build(experiment)
    fine_tune(experiment, model, continued=has_checkpoint(Path(experiment.out)))
    if data.cmvn:
        model.frontend.cmvn.load_state_dict({name: torch.tensor(values) for name, values in data.cmvn.items()})
    model.to(device)
    task = make_task(sized(group, experiment, data, model), model, data.train, data.dev)
    kind = Shards if settings.shard and group.size > 1 else Replicas
    copies = kind(model, partial(optimizer, experiment.optimizer), group)
    if settings.compile and device.type == "cuda":  # on a CPU it takes minutes to begin with, and no step is faster
        compile_layers(copies.model)
    trainer = Trainer(task, copies, experiment.schedule, settings, experiment.seed, Path(experiment.out), group)
    with devices.tuned(device):
        trainer.run()


def sized(group: Group, experiment: Experiment, data: Data, model: Recognizer | LanguageModel) -> Experiment:
    """Settle `data.batch_seconds: auto` as an earlier sitting of this run has, or by measuring."""
    path = Path(experiment.out) / "batch_seconds.json"

    def settle() -> float:
        if not path.exists():
            settled = measured(experiment, model, data.train, group.size).data.batch_seconds
            write_text(path, json.dumps(settled) + "\n")
        return json.loads(path.read_text(encoding="utf-8"))

    return with_batches(experiment, group.share(settle)) if is_open(experiment) else experiment


def statistics(model: Recognizer | LanguageModel) -> dict[str, list]:
    """The statistics of a recogniser's CMVN; of a language model none."""
    tensors = model.frontend.cmvn.state_dict() if isinstance(model, Recognizer) else {}
    return {name: tensor.tolist() for name, tensor in tensors.items()}


def fit_cmvn(recognizer: Recognizer, split: Split, data: DataSettings, seed: int) -> None:
    """Take the CMVN statistics over the training set, not augmented."""
    dataset = SpeechDataset(split.utterances, split.labels, recognizer.sample_rate)
    seconds = CMVN_BATCH if data.batch_seconds == "auto" else data.batch_seconds
    batches = list(chain(*plan(split.utterances.durations, seconds, seed, 0, shards=split.shards)))
    chosen, utterances = [], 0
    while batches and utterances < CMVN_UTTERANCES:
        chosen.append(batches.pop())
        utterances += len(chosen[-1])
    fbank = recognizer.frontend.fbank.eval()
    stream = load(dataset, chosen, data.workers)
    recognizer.frontend.cmvn.fit(fbank(batch.waveforms, batch.wave_lens) for batch in stream)


def has_checkpoint(out: Path) -> bool:
    """Whether a run's folder holds a state to continue from."""
    return bool(Checkpoints(out / STATES, 1, say).paths())


def continues(out: Path, stamp: Stamp) -> bool:
    """Whether the run goes on from a checkpoint, and doesn't begin anew."""
    begun = out / BEGUN
    return begun.exists() and begun.read_text(encoding="utf-8") == facts_of(stamp) and has_checkpoint(out)


def facts_of(stamp: Stamp) -> str:
    """What a run's folder is known by."""
    return json.dumps(stamp.facts, indent=1) + "\n"


def begin(out: Path, stamp: Stamp) -> tuple[Path, IO]:
    """Open the run's folder: a new one, the same run's, or a new one after moving another run's aside.

    returns  the folder, and what holds it for this process as long as it lives
    raises   UserError if the folder can't be written, or another process is training in it
    """
    held = hold(make_folder(out))
    begun = out / BEGUN
    facts = facts_of(stamp)
    if begun.exists() and begun.read_text(encoding="utf-8") != facts:
        aside = next(p for n in range(1, 10_000) if not (p := out.with_name(f"{out.name}.before-{n}")).exists())
        try:
            out.rename(aside)
        except OSError as error:
            raise UserError(
                f"{out}: holds another run, and can't be renamed ({error.strerror}); choose another out="
            ) from None
        say(f"{out} holds a run with other settings or inputs: it is kept as {aside}")
        held = hold(make_folder(out))
    write_text(begun, facts)
    return out, held


def added(out: Path, name: str, now: str) -> str:
    """What `versions.json` names of a run's earlier sittings, and what this one adds to that."""
    try:
        before = json.loads((out / VERSIONS).read_text(encoding="utf-8"))[name].split("; ")
    except (OSError, ValueError, KeyError, AttributeError):
        before = []
    return "; ".join(dict.fromkeys([*before, now]))


def versions(device: str, seed: int) -> dict:
    """What the run was computed with."""
    installed = {}
    for name in ("torch", "soundfile", "soxr", "sentencepiece", "numpy"):
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            installed[name] = "unknown"
    return {"asr": __version__, "python": platform.python_version(), **installed, "device": device, "seed": seed}
