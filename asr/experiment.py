"""One experiment, of a recogniser or a language model: the tree of its settings, and its run."""

import json
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO

import torch

from asr import __version__
from asr.config import Settings, by_part, dump, one_of
from asr.data import manifest
from asr.data.batches import SpeechDataset, load
from asr.data.manifest import Utterance
from asr.data.sentences import Sentences, tokenise
from asr.data.validate import Limits, apply_limits, check_alignable, check_audio
from asr.errors import UserError, shorten
from asr.features.frontend import FrontendSettings
from asr.files import hold, make_folder, write_text
from asr.models import lm
from asr.models import recognizer as recognizers
from asr.models.folder import describe
from asr.models.hybrid import HybridSettings
from asr.models.lm import LanguageModel, LMSettings
from asr.models.recognizer import Recognizer
from asr.stamp import Stamp
from asr.text import tokenizer as tokenizers
from asr.text.tokenizer import Tokenizer
from asr.training import device as devices
from asr.training import processes
from asr.training.checkpoint import Checkpoints
from asr.training.loop import Trainer
from asr.training.optimizer import AdamSettings, AdamWSettings, optimizer
from asr.training.schedule import ConstantSettings, CosineSettings, NoamSettings
from asr.training.settings import DataSettings, TextDataSettings, TextTrainingSettings, TrainingSettings
from asr.training.speech import SpeechTask, Split
from asr.training.task import Task
from asr.training.text import FORMULAS, TextTask

CMVN_UTTERANCES = 20_000  # the statistics are taken over all training utterances, or so many drawn at random
BEGUN = "begun.json"


class SpeechExperiment(Settings):
    """Everything that makes a recogniser, but for the recordings themselves."""

    out: str  # the model folder
    seed: int
    tokenizer: str  # folder of asr-tokenizer
    data: DataSettings
    features: FrontendSettings
    model: HybridSettings
    optimizer: one_of(AdamSettings, AdamWSettings)
    schedule: one_of(NoamSettings, CosineSettings, ConstantSettings)
    training: TrainingSettings


class TextExperiment(Settings):
    """Everything that makes a language model, but for the text itself."""

    out: str  # the model folder
    seed: int
    tokenizer: str  # folder of asr-tokenizer
    data: TextDataSettings
    model: LMSettings
    optimizer: one_of(AdamSettings, AdamWSettings)
    schedule: one_of(NoamSettings, CosineSettings, ConstantSettings)
    training: TextTrainingSettings


Experiment = by_part("model", SpeechExperiment, TextExperiment)


def train(experiment: Experiment, stamp: Stamp) -> Recognizer | LanguageModel:
    """Run an experiment, or continue it: train, then write the model folder `experiment.out`.

    stamp    identifies the run: a folder begun under another one is moved aside
    returns  the model with the averaged weights
    raises   UserError for everything that is wrong with the settings or the data, before training begins
    """
    try:
        device, which = devices.choose(experiment.training.device)
    except ValueError as error:
        raise UserError(f"training.{error}") from None
    model = build(experiment)
    train, dev, dropped = read(experiment, model)
    out, _held = begin(Path(experiment.out), stamp)
    size = processes.count(experiment.training.processes, experiment.training.accumulate, device)
    parameters = sum(p.numel() for p in model.parameters())
    print_(f"{which}, {size} processes; {parameters / 1e6:.1f} M parameters; everything goes to {out}")
    write_text(out / "dropped.tsv", dropped)
    if isinstance(model, Recognizer) and not (out / "checkpoints" / "last.pt").exists():
        fit_cmvn(model, train, experiment.data, experiment.seed)
    describe(out, dump(experiment), model.tokenizer)
    write_text(out / "versions.json", json.dumps(versions(which, experiment.seed), indent=1) + "\n")
    processes.run(train_member, size, experiment, train, dev, statistics(model), device)
    trained = Checkpoints(out / "checkpoints", 1, True).load_state()["progress"]["seconds"]  # over all its sittings
    stamp.write(seconds=round(trained, 1))
    print_(f"finished: {out} holds the model, the average of its best checkpoints")
    return {"hybrid": recognizers.load, "lm": lm.load}[experiment.model.kind](out)


def build(experiment: Experiment) -> Recognizer | LanguageModel:
    """Make the untrained model; its weights depend on the seed alone."""
    torch.manual_seed(experiment.seed)
    tokenizer = tokenizers.load(experiment.tokenizer)
    if isinstance(experiment, TextExperiment):
        return LanguageModel(experiment.model, tokenizer)
    return Recognizer(experiment.features, experiment.model, tokenizer)


def make_task(experiment: Experiment, model: Recognizer | LanguageModel, train: object, dev: object) -> Task:
    """Join the model and its data to what the loop trains."""
    data, seed = experiment.data, experiment.seed
    if isinstance(experiment, TextExperiment):
        return TextTask(model, data, train, dev, seed)
    return SpeechTask(model, data, train, dev, seed, experiment.training.mask_after)


def statistics(model: Recognizer | LanguageModel) -> dict[str, list]:
    """The statistics of a recogniser's CMVN; of a language model none."""
    tensors = model.frontend.cmvn.state_dict() if isinstance(model, Recognizer) else {}
    return {name: tensor.tolist() for name, tensor in tensors.items()}


def train_member(group, experiment: Experiment, train: object, dev: object, cmvn: dict, device: torch.device) -> None:
    """Train as one of a group of processes; `cmvn` are the statistics as lists."""
    model = build(experiment)
    if cmvn:
        model.frontend.cmvn.load_state_dict({name: torch.tensor(values) for name, values in cmvn.items()})
    model.to(device)
    task, adam = make_task(experiment, model, train, dev), optimizer(experiment.optimizer, model)
    out = Path(experiment.out)
    trainer = Trainer(task, adam, experiment.schedule, experiment.training, experiment.seed, out, group)
    with devices.tuned(device):
        trainer.run()


def read(experiment: Experiment, model: Recognizer | LanguageModel) -> tuple:
    """Read and check the data: what the task takes as train and dev, and the lines of dropped.tsv."""
    if isinstance(experiment, TextExperiment):
        train, dev = read_texts(experiment.data, model.tokenizer)
        return train, dev, train.dropped
    splits = read_data(experiment.data, model)
    return splits["train"][0], splits["dev"][0], "".join(selection.lines() for _, selection in splits.values())


def read_texts(data: TextDataSettings, tokenizer: Tokenizer) -> list[Sentences]:
    """Read and tokenise the texts of a language model: train and dev."""
    read = [tokenise(data.train, tokenizer, data.max_tokens), tokenise(data.dev, tokenizer)]
    for sentences in read:
        print_(f"{sentences.path}: {sentences.message}")
    print_(f"in the figures {FORMULAS}")
    return read


def read_data(data: DataSettings, recognizer: Recognizer) -> dict:
    """Read and check the manifests: split → (Split, Selection of the limits)."""
    splits = {}
    for name, path in (("train", data.train), ("dev", data.dev)):
        utterances = list(manifest.read(path))
        check_texts(utterances, path)
        labels = [recognizer.tokenizer.encode(u.text, u.id) for u in utterances]
        limits = Limits(data.min_seconds, data.max_seconds, data.max_tokens)
        selection = apply_limits(utterances, limits, [len(y) for y in labels])
        if selection.message:
            print_(f"{path}: {selection.message}; all are listed in dropped.tsv")
        split = Split([utterances[n] for n in selection.kept], [labels[n] for n in selection.kept])
        check_audio(split.utterances, path)
        check_alignable(
            *([u.id for u in split.utterances], [u.duration for u in split.utterances], split.labels),
            *(recognizer.encoder_frames, recognizer.sample_rate, data.speeds if name == "train" else [1.0]),
        )
        splits[name] = (split, selection)
    return splits


def check_texts(utterances: list[Utterance], path: str) -> None:
    """Refuse a manifest with empty texts or repeated ids, or none at all."""
    if not utterances:
        raise UserError(f"{path}: holds no utterance; asr-prepare makes manifests")
    empty = [u.id for u in utterances if not u.text.strip()]
    if empty:
        raise UserError(f"{path}: {len(empty)} utterances have an empty text ({shorten(empty)}); take them out")
    seen: set[str] = set()
    repeated = [u.id for u in utterances if u.id in seen or seen.add(u.id)]
    if repeated:
        raise UserError(f"{path}: {len(repeated)} ids stand there twice ({shorten(repeated)}); give each its own")


def begin(out: Path, stamp: Stamp) -> tuple[Path, IO]:
    """Open the run's folder: a new one, the same run's, or a new one after moving another run's aside.

    returns  the folder, and what holds it for this process as long as it lives
    raises   UserError if the folder can't be written, or another process is training in it
    """
    held = hold(make_folder(out))
    begun = out / BEGUN
    facts = json.dumps(stamp.facts, indent=1) + "\n"
    if begun.exists() and begun.read_text(encoding="utf-8") != facts:
        aside = next(p for n in range(1, 10_000) if not (p := out.with_name(f"{out.name}.before-{n}")).exists())
        try:
            out.rename(aside)
        except OSError as error:
            raise UserError(
                f"{out}: holds another run, and can't be renamed ({error.strerror}); choose another out="
            ) from None
        print_(f"{out} holds a run with other settings or inputs: it is kept as {aside}")
        held = hold(make_folder(out))
    write_text(begun, facts)
    return out, held


def fit_cmvn(recognizer: Recognizer, split: Split, data: DataSettings, seed: int) -> None:
    """Take the CMVN statistics over the training set, not augmented."""
    dataset = SpeechDataset(split.utterances, split.labels, recognizer.sample_rate)
    batches, chosen, utterances = split.plan(data.batch_seconds, seed, 0), [], 0
    while batches and utterances < CMVN_UTTERANCES:
        chosen.append(batches.pop())
        utterances += len(chosen[-1])
    fbank = recognizer.frontend.fbank.eval()
    stream = load(dataset, chosen, data.workers)
    recognizer.frontend.cmvn.fit(fbank(batch.waveforms, batch.wave_lens) for batch in stream)


def versions(device: str, seed: int) -> dict:
    """What the run was computed with."""
    installed = {}
    for name in ("torch", "soundfile", "soxr", "sentencepiece", "numpy"):
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            installed[name] = "unknown"
    return {"asr": __version__, "python": platform.python_version(), **installed, "device": device, "seed": seed}


def print_(message: str) -> None:
    """Say something to the person, above any progress bar."""
    import sys

    from tqdm import tqdm

    tqdm.write(message, file=sys.stderr)
