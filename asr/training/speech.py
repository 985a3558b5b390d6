"""The task of a recogniser: utterances in, the hybrid loss, error rates of greedy search."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from asr.data.augment import Augment
from asr.data.batches import Batch, SpeechDataset, draw_speeds, load, utterance_seeds
from asr.data.plan import plan
from asr.data.ragged import Ragged
from asr.data.segmentation import Segmentation
from asr.data.shards import Shards, read_ahead
from asr.data.table import Table
from asr.errors import shorten
from asr.models.loss import Loss
from asr.models.recognizer import Recognizer
from asr.training.alignments import alignments, middle
from asr.training.processes import Group
from asr.training.settings import DataSettings
from asr.training.validation import count, figures

ALIGNED = 4  # dev utterances whose alignments are drawn


@dataclass(frozen=True)
class Split:
    """Utterances, the token ids of their texts, and what training does to their waveforms and texts."""

    utterances: Table
    labels: Ragged
    augment: Augment | None = None
    segmentation: Segmentation | None = None

    @cached_property
    def shards(self) -> Shards | None:
        """In which shards the recordings lie; None where they are files of their own."""
        return Shards.of(self.utterances.paths)

    def durations(self, seed: int, epoch: int, speeds: Sequence[float]) -> np.ndarray:
        """Seconds of the utterances, (N,), as speed perturbation makes them in an epoch."""
        return self.utterances.durations / draw_speeds(utterance_seeds(seed, epoch, self.utterances.ids), speeds)


@dataclass(frozen=True)
class SpeechTask:
    """Train a recogniser.

    mask_after:  epochs without SpecAugment
    flat_start:  epochs in which CTC is given alignments
    """

    model: Recognizer
    data: DataSettings
    train: Split
    dev: Split
    seed: int
    mask_after: int = 0
    flat_start: int = 0

    unit = "s"

    @property
    def sums(self) -> tuple[str, ...]:
        """The terms of the model's loss, and the counts."""
        return (*self.model.model.terms, "correct", "tokens")

    def plan(self, epoch: int, accumulate: int) -> list[list[list[int]]]:
        """Utterances of like length together, by seconds after speed perturbation; in order in the first epochs."""
        durations = self.train.durations(self.seed, epoch, self.data.speeds)
        how = {"ascending": epoch < self.data.sorted_epochs, "shards": self.train.shards}
        return plan(durations, self.data.batch_seconds, self.seed, epoch, accumulate, **how)

    def longest(self, n: int) -> list[int]:
        """The n longest utterances."""
        return np.argsort(-self.train.utterances.durations, kind="stable")[:n].tolist()

    def load(self, epoch: int, batches: Iterable[list[int]]) -> Iterator[Batch]:
        """Read the recordings of planned batches, augmented and segmented as (seed, epoch, utterance) say."""
        split, rate = self.train, self.model.sample_rate
        changes = {"speeds": self.data.speeds, "augment": split.augment, "segmentation": split.segmentation}
        dataset = SpeechDataset(split.utterances, split.labels, rate, self.seed, epoch, **changes)
        in_windows = split.shards and epoch >= self.data.sorted_epochs
        batches = list(batches) if in_windows else batches
        stream = load(dataset, batches, self.data.workers, pin=self._device.type == "cuda")
        return read_ahead(stream, split.shards.news(batches)) if in_windows else stream

    def amount(self, batch: Batch) -> float:
        """Seconds of audio."""
        return float(batch.wave_lens.sum()) / self.model.sample_rate

    def loss(self, model: Recognizer, batch: Batch, epoch: int) -> Loss:
        """The hybrid loss; with SpecAugment once its time has come."""
        how = {"masked": epoch >= self.mask_after, "flat": epoch < self.flat_start}
        return model.loss(batch.waveforms, batch.wave_lens, batch.Y, batch.Y_lens, batch.seeds, **how)

    def name(self, batches: list[list[int]]) -> str:
        """The first utterances' ids."""
        return f"utterances {shorten(self.train.utterances.ids[n] for batch in batches for n in batch)}"

    def validate(self, precision: str, group: Group) -> dict[str, float]:
        """Loss, accuracy and the error rates of greedy search."""
        dataset = SpeechDataset(self.dev.utterances, self.dev.labels, self.model.sample_rate)
        steps = plan(self.dev.utterances.durations, self.data.batch_seconds, 0, 0)
        batches = list(chain(*steps))[group.rank :: group.size]
        counts = count(self.model, load(dataset, batches, self.data.workers), precision)
        group.add(counts)
        return figures(counts)

    def alignments(self) -> dict[str, Tensor]:
        """Attention of the decoder to the encoder's frames (U + 1, T'), of dev utterances of about median length."""
        dev = self.dev
        chosen = middle(dev.utterances.durations, dev.utterances.ids, ALIGNED)
        batch = SpeechDataset(dev.utterances, dev.labels, self.model.sample_rate)[chosen]
        return alignments(self.model, batch.to(self._device), ALIGNED)

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device
