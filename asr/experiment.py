"""One experiment, of a recogniser or a language model: the tree of its settings, and what they make."""

from pathlib import Path

import torch
from pydantic import model_validator

from asr.config import Settings, by_part, one_of
from asr.errors import UserError
from asr.features.frontend import FrontendSettings
from asr.models.hybrid import HybridSettings, has_weight
from asr.models.lm import LanguageModel, LMSettings
from asr.models.recognizer import Recognizer
from asr.models.transfer import Transfer, load_what_fits
from asr.say import say
from asr.text import tokenizer as tokenizers
from asr.training import device as devices
from asr.training.blocks import recompute
from asr.training.examples import read_data, read_texts
from asr.training.freeze import freeze
from asr.training.optimizer import AdamSettings, AdamWSettings, MuonSettings
from asr.training.probe import batch_seconds
from asr.training.schedule import ConstantSettings, CosineSettings, NoamSettings, WSDSettings
from asr.training.settings import DataSettings, TextDataSettings, TextTrainingSettings, TrainingSettings
from asr.training.speech import SpeechTask, Split
from asr.training.task import Task
from asr.training.text import TextTask


def muon_has_whole_matrices(experiment: Settings) -> Settings:
    """Refuse Muon over shards: it makes the singular values of whole matrices alike."""
    if experiment.training.shard and experiment.optimizer.kind == "muon":
        raise ValueError(
            "training: shard: can't be had with optimizer.kind: muon, which needs whole matrices; use adamw"
        )
    return experiment


class SpeechExperiment(Settings):
    """Everything that makes a recogniser, but for the recordings themselves."""

    out: str  # the model folder
    seed: int
    tokenizer: str  # folder of asr-tokenizer
    init_from: str | None = None  # model folder whose weights the training begins with, as far as they fit
    freeze: list[str] = []  # patterns of names of parameters that are not trained
    data: DataSettings
    features: FrontendSettings
    model: HybridSettings
    optimizer: one_of(AdamSettings, AdamWSettings, MuonSettings)
    schedule: one_of(NoamSettings, CosineSettings, WSDSettings, ConstantSettings)
    training: TrainingSettings

    _muon_has_whole_matrices = model_validator(mode="after")(muon_has_whole_matrices)

    @model_validator(mode="after")
    def _shards_pass_through_all_layers(self):
        for name in ("encoder", "decoder"):
            if self.training.shard and getattr(self.model, name).layer_dropout:
                raise ValueError(
                    f"training: shard: can't be had with model.{name}.layer_dropout, by which each process leaves out "
                    "other layers; leave one of them out"
                )
        return self

    @model_validator(mode="after")
    def _terms_of_ctc_have_a_share(self):
        terms = {
            "model: intermediate_ctc": has_weight(self.model.intermediate_ctc),
            "model: consistency": has_weight(self.model.consistency),
            "training: flat_start": self.training.flat_start > 0,
        }
        for name, used in terms.items():
            if used and self.model.ctc_weight == 0:
                raise ValueError(f"{name}: is a part of CTC, which model.ctc_weight: 0 leaves out; leave it out, too")
        return self


class TextExperiment(Settings):
    """Everything that makes a language model, but for the text itself."""

    out: str  # the model folder
    seed: int
    tokenizer: str  # folder of asr-tokenizer
    init_from: str | None = None  # model folder whose weights the training begins with, as far as they fit
    freeze: list[str] = []  # patterns of names of parameters that are not trained
    data: TextDataSettings
    model: LMSettings
    optimizer: one_of(AdamSettings, AdamWSettings, MuonSettings)
    schedule: one_of(NoamSettings, CosineSettings, WSDSettings, ConstantSettings)
    training: TextTrainingSettings

    _muon_has_whole_matrices = model_validator(mode="after")(muon_has_whole_matrices)


Experiment = by_part("model", SpeechExperiment, TextExperiment)


def choose_device(experiment: Experiment) -> tuple[torch.device, str]:
    """The device of the settings, and a sentence about it."""
    try:
        return devices.choose(experiment.training.device)
    except ValueError as error:
        raise UserError(f"training.{error}") from None


def build(experiment: Experiment) -> Recognizer | LanguageModel:
    """Make the untrained model, as it will be trained; its weights depend on the seed alone."""
    torch.manual_seed(experiment.seed)
    tokenizer = tokenizers.load(experiment.tokenizer)
    if isinstance(experiment, TextExperiment):
        model = LanguageModel(experiment.model, tokenizer)
    else:
        if experiment.data.bpe_dropout:
            tokenizer.dropout(experiment.data.bpe_dropout)  # or it says why not
        model = Recognizer(experiment.features, experiment.model, tokenizer)
    if experiment.training.activation_checkpointing:  # before anything measures the memory
        recompute(model)
    return model


def fine_tune(experiment: Experiment, model: Recognizer | LanguageModel, continued: bool) -> Transfer | None:
    """Freeze what `freeze` says, and copy the weights of `init_from`, unless a continued run has its own by now."""
    freeze(model, experiment.freeze)
    if experiment.init_from is None or continued:
        return None
    if Path(experiment.init_from).resolve() == Path(experiment.out).resolve():
        raise UserError(f"init_from: {experiment.init_from} is out, too; a new model needs another folder, choose out=")
    return load_what_fits(model, experiment.init_from)


def count_parameters(model: Recognizer | LanguageModel) -> str:
    """Say how many parameters there are, and how many of them are frozen."""
    total = sum(p.numel() for p in model.parameters())
    frozen = sum(p.numel() for p in model.parameters() if not p.requires_grad)
    return f"{total / 1e6:.1f} M parameters" + (f", {frozen / 1e6:.1f} M of them frozen" if frozen else "")


def make_task(experiment: Experiment, model: Recognizer | LanguageModel, train: object, dev: object) -> Task:
    """Join the model and its data to what the loop trains."""
    data, seed = experiment.data, experiment.seed
    if isinstance(experiment, TextExperiment):
        return TextTask(model, data, train, dev, seed)
    training = experiment.training
    flat_start = min(training.flat_start, training.epochs - 1)  # CTC has its turn in a try of one epoch, too
    return SpeechTask(model, data, train, dev, seed, training.mask_after, flat_start)


def read(experiment: Experiment, model: Recognizer | LanguageModel, continued: bool = False) -> tuple:
    """Read and check the data: what the task takes as train and dev, and the lines of dropped.tsv.

    A continued run doesn't look at the sound files again: that takes minutes where there are many.
    """
    if isinstance(experiment, TextExperiment):
        tokens = experiment.data.tokens or f"{Path(experiment.out)}.tokens"
        train, dev = read_texts(experiment.data, experiment.tokenizer, tokens)
        return train, dev, train.dropped
    splits = read_data(experiment.data, model, looked=continued)
    return splits["train"][0], splits["dev"][0], "".join(selection.lines() for _, selection in splits.values())


def measured(experiment: Experiment, model: Recognizer | LanguageModel, train: Split, size: int) -> Experiment:
    """Settle `data.batch_seconds: auto` by measuring, for `size` processes."""
    if not is_open(experiment):
        return experiment
    task, device = make_task(experiment, model, train, None), next(model.parameters()).device
    seconds = batch_seconds(task, device, experiment.training, size)
    say(f"data.batch_seconds: auto: {seconds:g} s of audio fit in memory")
    return with_batches(experiment, seconds)


def is_open(experiment: Experiment) -> bool:
    """Whether the size of batches is still to be settled."""
    return getattr(experiment.data, "batch_seconds", None) == "auto"


def with_batches(experiment: Experiment, seconds: float) -> Experiment:
    """The experiment with batches of so many seconds."""
    return experiment.model_copy(update={"data": experiment.data.model_copy(update={"batch_seconds": seconds})})
