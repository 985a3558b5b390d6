"""The recognizer as something to train: its settings, its data, the hybrid loss, error rates of greedy search."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import model_validator
from torch import Tensor

from asr.data.batches import Batch
from asr.data.bucketing import plan, read_ahead
from asr.data.dataset import SpeechDataset
from asr.data.loading import load
from asr.errors import UserError, shorten
from asr.features.cmvn import CMVN
from asr.features.frontend import FrontendSettings
from asr.logging import logger
from asr.models.hybrid import HybridSettings
from asr.models.loss import Loss, terms_of
from asr.models.recognizer import Recognizer, RecognizerSettings
from asr.models.stage import Stage
from asr.preflight.problems import Look, Problem, look_at_speech
from asr.tasks.pretrained import begin, check_limit, resolve
from asr.tasks.utterances import (
    Split,
    changes_of,
    edge_seconds,
    fit_boundaries,
    fit_cmvn,
    read_splits,
)
from asr.tasks.validation import alignments, count, metrics, middle
from asr.text import tokenizer as tokenizers
from asr.text.tokenizer import Tokenizer
from asr.training.distributed.group import Group
from asr.training.memory import batch_seconds
from asr.training.optim import OptimizerSettings, ScheduleSettings
from asr.training.settings import (
    DataSettings,
    RunSettings,
    TrainingSettings,
)
from asr.training.task import Examples, Remember, call

ALIGNED = 4  # dev utterances whose alignments are drawn


class RecognizerExperiment(RunSettings):
    """Everything that makes a recognizer, but for the recordings themselves."""

    Model: ClassVar = Recognizer

    data: DataSettings
    features: FrontendSettings
    model: HybridSettings
    optimizer: OptimizerSettings
    schedule: ScheduleSettings
    training: TrainingSettings

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
            **{f"model: {name}": True for name in terms_of(self.model)},
            "model: flat_start_epochs": self.model.flat_start_epochs > 0,
        }
        for name, used in terms.items():
            if used and self.model.ctc_weight == 0:
                raise ValueError(
                    f"{name}: is a part of CTC, which model.ctc_weight: 0 leaves out; leave it out, too"
                )
        return self

    def resolved(self, continued: bool = False) -> "RecognizerExperiment":
        """Complete the settings of a pretrained encoder, by its source or, if the run continues, by its folder."""
        settings = RecognizerSettings(features=self.features, model=self.model)
        found = resolve(settings, self.out if continued else None)
        check_limit(found.model, self.data)
        return self.model_copy(update={"features": found.features, "model": found.model})

    def begin(self, model: Recognizer) -> None:
        """Take the weights of a pretrained encoder."""
        begin(model, self.init_from)

    def untrained(self, tokenizer: Tokenizer) -> Recognizer:
        """Make the model with random weights; BPE-dropout, if it is asked for, is known to be possible."""
        if self.data.bpe_dropout:
            tokenizers.dropout(tokenizer, self.data.bpe_dropout)  # or it says why not
        # CTC always has the last epoch
        flat = min(self.model.flat_start_epochs, self.training.epochs - 1)
        return Recognizer(
            self.features, self.model.model_copy(update={"flat_start_epochs": flat}), tokenizer
        )

    def read(self, model: Recognizer, looked: bool = False) -> Examples:
        """Read and check the manifests; warn of settings that never take effect."""
        self.warn_of_late_settings()
        splits = read_splits(self.data, model, looked)
        dropped = "".join(selection.lines() for _, selection in splits.values())
        return Examples(splits["train"][0], splits["dev"][0], dropped)

    def warn_of_late_settings(self) -> None:
        """Name the settings whose first epoch comes after the last one."""
        late = {
            "features.specaugment": self.features.specaugment,
            "data.concatenate": self.data.concatenate,
        }
        for name, part in late.items():
            if part and part.from_epoch >= self.training.epochs:
                logger.warning(
                    f"{name}.from_epoch: {part.from_epoch}: never takes effect: epochs count from 0, and "
                    f"training.epochs is {self.training.epochs}"
                )

    def statistics(self, model: Recognizer) -> CMVN | None:
        """Mean and standard deviation of the features; waveforms have none."""
        return model.frontend.cmvn

    def fit_statistics(self, model: Recognizer, train: Split) -> None:
        """Take the CMVN statistics over the training set, not augmented; waveforms have none."""
        fit_cmvn(model, train, self.data, self.seed)

    def facts(self, train: Split) -> dict[str, float]:
        """Seconds of the longest utterance or joined example, and of silence around speech, for cutting recordings."""
        longest, epoch = train.utterances.durations.max(), train.fullest_epoch
        if epoch < self.training.epochs and (
            joined := train.joined(self.seed, epoch, self.data.speeds)
        ):
            longest = max(longest, joined.durations.max())
        silent = edge_seconds(train.utterances)
        return {"longest_seconds": round(float(longest), 2), "edge_seconds": silent}

    def settle(
        self, model: Recognizer, train: Split, processes: int, remember: Remember = call
    ) -> "RecognizerExperiment":
        """Settle `data.batch_seconds: auto` by measuring."""
        if self.data.batch_seconds != "auto":
            return self

        def measure() -> float:
            task, device = self.task(model, train, None), next(model.parameters()).device
            seconds = batch_seconds(task, model.sample_rate, device, self.training, processes)
            logger.info(f"data.batch_seconds: auto: {seconds:g} s of audio fit in memory")
            return seconds

        data = self.data.model_copy(update={"batch_seconds": remember(measure)})
        return self.model_copy(update={"data": data})

    def task(
        self, model: Recognizer, train: Split, dev: Any, workers: int | None = None
    ) -> "RecognizerTask":
        """Join the model and its data to what is trained."""
        data = self.data if workers is None else self.data.model_copy(update={"workers": workers})
        return RecognizerTask(model, data, train, dev, self.seed)

    def complete(self, model: Recognizer, train: Split) -> None:
        """Learn where words begin and end, from the features; of waveforms CTC alone tells it."""
        if model.has_times and model.frontend.cmvn and (boundaries := fit_boundaries(model, train)):
            boundaries.save(Path(self.out))

    def look(self, role: str, path: str | Sequence[str], model: Recognizer, progress: bool) -> Look:
        """Look for all that is wrong with manifests; and, of train, with what augmentation reads."""
        found = look_at_speech(role, path, self.data, model, progress)
        if role != "train" or not found.usable:
            return found
        utterances, labels = found.usable
        try:
            split = Split(utterances, labels, *changes_of(self.data, utterances, model))
        except UserError as error:
            problems = [*found.problems, Problem(True, "settings", str(error))]
            return replace(found, problems=problems, usable=Split(utterances, labels))
        return replace(found, usable=split)


@dataclass(frozen=True)
class RecognizerTask:
    """Train a recognizer."""

    model: Recognizer
    data: DataSettings
    train: Split
    dev: Split
    seed: int

    unit = "s"

    @property
    def fullest_epoch(self) -> int:
        """The first epoch in which utterances are joined."""
        return self.train.fullest_epoch

    @property
    def sizes(self) -> np.ndarray:
        """Seconds of the training utterances, (N,).

        Where they are joined, of the example that begins with each in `fullest_epoch`; 0 if none does.
        """
        joined = self.train.joined(self.seed, self.fullest_epoch, self.data.speeds)
        return joined.durations if joined else self.train.utterances.durations

    @property
    def workers(self) -> int:
        """Processes that read ahead."""
        return self.data.workers

    @property
    def sums(self) -> tuple[str, ...]:
        """The terms of the model's loss, and the counts."""
        return (*self.model.model.term_names, "correct", "tokens")

    def plan(self, epoch: int, accumulate: int) -> list[list[list[int]]]:
        """Examples of like length together, by seconds after speed perturbation; in order in the first epochs.

        An example is named by the place of its first utterance.
        """
        how = (
            float(self.data.batch_seconds),
            self.seed,
            epoch,
            accumulate,
            epoch < self.data.sorted_epochs,
        )
        drawn = self.seed, epoch, self.data.speeds
        if (joined := self.train.joined(*drawn)) is None:
            return plan(self.train.durations(*drawn), *how, self.train.shards)
        firsts = joined.firsts
        shards = self.train.shards and self.train.shards.select(firsts)
        steps = plan(joined.durations[firsts], *how, shards)
        return [[firsts[batch].tolist() for batch in step] for step in steps]

    def longest(self, n: int) -> list[int]:
        """The n longest examples of `fullest_epoch`."""
        sizes = self.sizes
        order = np.argsort(-sizes, kind="stable")
        return order[: min(n, np.count_nonzero(sizes))].tolist()

    def load(self, epoch: int, batches: Iterable[list[int]]) -> Iterator[Batch]:
        """Read the recordings of planned batches, augmented and segmented as (seed, epoch, utterance) say."""
        split = self.train
        dataset = SpeechDataset(
            split.utterances,
            split.labels,
            self.model.sample_rate,
            self.seed,
            epoch,
            speeds=self.data.speeds,
            augment=split.augment,
            segmentation=split.segmentation,
            joined=split.joined(self.seed, epoch, self.data.speeds),
        )
        if split.shards is None or epoch < self.data.sorted_epochs:
            return self._read(dataset, batches)
        batches = list(batches)
        return read_ahead(self._read(dataset, batches), split.shards.first_needed(batches))

    def _read(self, dataset: SpeechDataset, batches: Iterable[list[int]]) -> Iterator[Batch]:
        """Read planned batches ahead."""
        seconds = 0.0 if self.data.batch_seconds == "auto" else self.data.batch_seconds
        size, pin = 4 * seconds * self.model.sample_rate, self._device.type == "cuda"  # float32
        return load(dataset, batches, self.data.workers, pin, size)

    def amount(self, batch: Batch) -> float:
        """Seconds of audio."""
        return float(batch.wave_lens.sum()) / self.model.sample_rate

    def loss(self, model: Recognizer, batch: Batch, stage: Stage) -> Loss:
        """The hybrid loss, as is due at that stage."""
        return model.loss(
            batch.waveforms,
            batch.wave_lens,
            batch.Y,
            batch.Y_lens,
            batch.seeds,
            stage,
            batch.on_cpu,
        )

    def name(self, batches: Sequence[list[int]]) -> str:
        """The ids of the examples' first utterances."""
        return f"utterances {shorten(self.train.utterances.ids[n] for batch in batches for n in batch)}"

    def validate(self, precision: str, group: Group) -> dict[str, float]:
        """Loss, accuracy and the error rates of greedy search."""
        dataset = SpeechDataset(self.dev.utterances, self.dev.labels, self.model.sample_rate)
        steps = plan(self.dev.utterances.durations, float(self.data.batch_seconds), 0, 0)
        batches = list(chain(*steps))
        share = batches[group.rank :: group.size]
        counts = count(self.model, self._read(dataset, share), precision)
        return metrics(group.sum_of_rows(counts, len(batches)))

    def alignments(self) -> dict[str, Tensor]:
        """Attention of the decoder to the encoder's frames (U + 1, T'), of dev utterances of about median length."""
        dev = self.dev
        chosen = middle(dev.utterances.durations, dev.utterances.ids, ALIGNED)
        batch = SpeechDataset(dev.utterances, dev.labels, self.model.sample_rate)[chosen]
        return alignments(self.model, batch.to(self._device), ALIGNED)

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device
