"""The task of a recogniser: utterances in, the hybrid loss, greedy word error rates."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from asr.data.batches import Batch, SpeechDataset, load, plan
from asr.data.manifest import Utterance
from asr.errors import shorten
from asr.models.loss import Loss
from asr.models.recognizer import Recognizer
from asr.training.settings import DataSettings
from asr.training.validation import validate


@dataclass(frozen=True)
class Split:
    """Utterances and the token ids of their texts."""

    utterances: Sequence[Utterance]
    labels: Sequence[Sequence[int]]

    def plan(self, batch_seconds: float, seed: int, epoch: int) -> list[list[int]]:
        """The batches of an epoch, as lists of indices."""
        return plan([u.duration for u in self.utterances], [u.id for u in self.utterances], batch_seconds, seed, epoch)


@dataclass(frozen=True)
class SpeechTask:
    """Train a recogniser.

    mask_after:  epochs without SpecAugment
    """

    model: Recognizer
    data: DataSettings
    train: Split
    dev: Split
    seed: int
    mask_after: int = 0

    sums = ("ctc", "attention", "correct", "tokens")
    judges_average = False

    def plan(self, epoch: int) -> list[list[int]]:
        """Utterances of like length together, by seconds."""
        return self.train.plan(self.data.batch_seconds, self.seed, epoch)

    def load(self, epoch: int, batches: list[list[int]]) -> Iterator[Batch]:
        """Read the recordings of planned batches, augmented as (seed, epoch, utterance) say."""
        split, rate = self.train, self.model.sample_rate
        dataset = SpeechDataset(split.utterances, split.labels, rate, self.seed, epoch, self.data.speeds)
        return load(dataset, batches, self.data.workers, pin=self._device.type == "cuda")

    def loss(self, batch: Batch, epoch: int) -> Loss:
        """The hybrid loss; with SpecAugment once its time has come."""
        masked = epoch >= self.mask_after
        return self.model.loss(batch.waveforms, batch.wave_lens, batch.Y, batch.Y_lens, batch.seeds, masked)

    def name(self, batches: list[list[int]]) -> str:
        """The first utterances' ids."""
        return f"utterances {shorten(self.train.utterances[n].id for batch in batches for n in batch)}"

    def validate(self, precision: str) -> dict[str, float]:
        """Loss, accuracy and the word error rates of greedy search."""
        dataset = SpeechDataset(self.dev.utterances, self.dev.labels, self.model.sample_rate)
        batches = self.dev.plan(self.data.batch_seconds, 0, 0)
        return validate(self.model, load(dataset, batches, self.data.workers), precision)

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device
