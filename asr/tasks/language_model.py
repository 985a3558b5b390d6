"""The language model as something to train: its settings, its texts, -ln P, perplexities."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from asr.data.batches import SentenceBatch, collate_sentences
from asr.data.bucketing import Windows
from asr.data.texts import Sentences, tokenize
from asr.data.tokens import stored
from asr.errors import shorten
from asr.logging import logger
from asr.models.lm import LanguageModel, LMSettings
from asr.models.loss import Loss
from asr.models.stage import Stage
from asr.preflight.problems import Look, look_at_text
from asr.tasks.texts import TextExperiment, dev_sums, exp
from asr.text.tokenizer import Tokenizer
from asr.training.distributed.group import Group
from asr.training.optim import OptimizerSettings, ScheduleSettings
from asr.training.settings import (
    TextDataSettings,
    TextTrainingSettings,
)
from asr.training.task import Examples

FORMULAS = "ppl = exp(-ln P / tokens), word-ppl = exp(-ln P / words), each sentence's end counted as one of both"


class LanguageModelExperiment(TextExperiment):
    """Everything that makes a language model, but for the text itself."""

    Model: ClassVar = LanguageModel

    data: TextDataSettings
    model: LMSettings
    optimizer: OptimizerSettings
    schedule: ScheduleSettings
    training: TextTrainingSettings

    def untrained(self, tokenizer: Tokenizer) -> LanguageModel:
        """Make the model with random weights."""
        return LanguageModel(self.model, tokenizer)

    def read(self, model: LanguageModel, looked: bool = False) -> Examples:
        """Tokenize the texts: train, on disk, and dev."""
        dev = tokenize(self.data.dev, model.tokenizer)
        train = stored(
            self.data.train,
            self.tokenizer,
            self.data.tokens or f"{Path(self.out)}.tokens",
            self.data.max_tokens,
        )
        for sentences in (train, dev):
            logger.warning(f"{sentences.path}: {sentences.message}")
        logger.info(f"of the metrics {FORMULAS}")
        return Examples(train, dev, train.dropped)

    def task(
        self, model: LanguageModel, train: Sentences, dev: Any, workers: int | None = None
    ) -> "LanguageModelTask":
        """Join the model and its data to what is trained."""
        return LanguageModelTask(model, self.data, train, dev, self.seed)

    def look(self, role: str, path: str, model: LanguageModel, progress: bool) -> Look:
        """Look for all that is wrong with a text."""
        return look_at_text(role, path, self.data, model.tokenizer)


@dataclass(frozen=True)
class LanguageModelTask:
    """Train a language model."""

    model: LanguageModel
    data: TextDataSettings
    train: Sentences
    dev: Sentences
    seed: int

    sums = ("nll", "correct", "tokens")
    unit = "tokens"
    workers, fullest_epoch = 0, 0

    @property
    def sizes(self) -> np.ndarray:
        """Target tokens of the training sentences, (N,)."""
        return self.train.lens + 1

    def plan(self, epoch: int, accumulate: int) -> Windows:
        """Sentences of like length together, by tokens."""
        return Windows(self.train.labels, self.data.batch_tokens, self.seed, epoch, accumulate)

    def longest(self, n: int) -> list[int]:
        """The n longest sentences."""
        return self.train.labels.longest(n)

    def load(self, epoch: int, batches: Iterable[list[int]]) -> Iterator[SentenceBatch]:
        """Pad the sentences of planned batches; they are in memory, or mapped."""
        return (collate_sentences(self.train, batch) for batch in batches)

    def amount(self, batch: SentenceBatch) -> float:
        """Target tokens: labels and sentence ends."""
        return float((batch.Y_lens + 1).sum())

    def loss(self, model: LanguageModel, batch: SentenceBatch, stage: Stage) -> Loss:
        """-ln P, summed."""
        return model.loss(batch.Y, batch.Y_lens)

    def name(self, batches: Sequence[list[int]]) -> str:
        """The file and the first lines."""
        return f"{self.train.path}, lines {shorten(str(self.train.lines[n]) for batch in batches for n in batch)}"

    def validate(self, precision: str, group: Group) -> dict[str, float]:
        """Metrics of the dev set.

        returns  loss, -ln P per target token (labels and sentence ends); accuracy of these;
                 perplexity = exp(loss); word_perplexity = exp(-ln P / (words + sentences))
        """
        sizes, most = self.dev.lens + 1, self.data.batch_tokens
        load = partial(collate_sentences, self.dev)
        nll, correct, tokens = dev_sums(self, sizes, most, load, precision, group)
        return {
            "loss": nll / tokens,
            "accuracy": correct / tokens,
            "perplexity": exp(nll / tokens),
            "word_perplexity": exp(nll / (self.dev.words + len(self.dev))),
        }

    def alignments(self) -> dict[str, Tensor]:
        """None: there is no encoder."""
        return {}
