"""The translator as something to train: its settings, its sentences, label-smoothed cross-entropy, perplexity."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from asr.data.batches import PairBatch
from asr.data.bucketing import Windows
from asr.data.parallel import Pairs, join, sides
from asr.data.texts import tokenize
from asr.data.tokens import stored
from asr.errors import shorten
from asr.logging import logger
from asr.models.loss import Loss
from asr.models.stage import Stage
from asr.models.translator import Translator, TranslatorSettings
from asr.preflight.problems import Look, look_at_pairs
from asr.tasks.texts import TextExperiment, dev_sums, exp
from asr.tasks.validation import middle, most_aligned
from asr.text import tokenizer as tokenizers
from asr.text.tokenizer import Tokenizer
from asr.training.distributed.group import Group
from asr.training.optim import OptimizerSettings, ScheduleSettings
from asr.training.settings import PairDataSettings, TextTrainingSettings
from asr.training.task import Examples

ALIGNED = 4  # dev pairs whose alignments are drawn


class TranslatorExperiment(TextExperiment):
    """Everything that makes a translator, but for the text itself."""

    Model: ClassVar = Translator

    # folder of asr-tokenizer, for the source; None: `tokenizer` is of both languages
    source_tokenizer: str | None = None
    data: PairDataSettings
    model: TranslatorSettings
    optimizer: OptimizerSettings
    schedule: ScheduleSettings
    training: TextTrainingSettings

    def untrained(self, tokenizer: Tokenizer) -> Translator:
        """Make the model with random weights."""
        source = tokenizers.load(self.source_tokenizer) if self.source_tokenizer else None
        return Translator(self.model, tokenizer, source)

    def read(self, model: Translator, looked: bool = False) -> Examples:
        """Tokenize the sentences: train, on disk, and dev."""
        data, made = self.data, (model.source_tokenizer, model.tokenizer)
        folder = Path(data.tokens or f"{Path(self.out)}.tokens")
        folders = (self.source_tokenizer or self.tokenizer), self.tokenizer
        train = join(
            *(
                stored(path, tokenizer, folder / name, data.max_tokens, column)
                for (path, column), tokenizer, name in zip(
                    sides(data.train), folders, ("source", "target"), strict=True
                )
            )
        )
        dev = join(
            *(
                tokenize(path, tokenizer, column=column)
                for (path, column), tokenizer in zip(sides(data.dev), made, strict=True)
            )
        )
        for pairs in (train, dev):
            logger.warning(f"{pairs.path}: {pairs.message}")
        return Examples(train, dev, train.dropped)

    def task(
        self, model: Translator, train: Pairs, dev: Any, workers: int | None = None
    ) -> "TranslatorTask":
        """Join the model and its data to what is trained."""
        return TranslatorTask(model, self.data, train, dev, self.seed)

    def look(self, role: str, path: str | Sequence[str], model: Translator, progress: bool) -> Look:
        """Look for all that is wrong with a pair of texts."""
        made = model.source_tokenizer, model.tokenizer
        return look_at_pairs(role, path, self.data, made)


@dataclass(frozen=True)
class TranslatorTask:
    """Train a translator."""

    model: Translator
    data: PairDataSettings
    train: Pairs
    dev: Pairs
    seed: int

    sums = ("nll", "correct", "tokens")
    unit = "tokens"
    workers, fullest_epoch = 0, 0

    @property
    def sizes(self) -> np.ndarray:
        """Tokens of the longer side of the training pairs and its end, (P,)."""
        return self.train.lens + 1

    def plan(self, epoch: int, accumulate: int) -> Windows:
        """Pairs of like length together, by tokens of the longer side."""
        return Windows(self.train, self.data.batch_tokens, self.seed, epoch, accumulate)

    def longest(self, n: int) -> list[int]:
        """The n longest pairs."""
        return self.train.longest(n)

    def load(self, epoch: int, batches: Iterable[list[int]]) -> Iterator[PairBatch]:
        """Pad the pairs of planned batches; they are in memory, or mapped."""
        return map(self.train.batch, batches)

    def amount(self, batch: PairBatch) -> float:
        """Target tokens: labels and sentence ends."""
        return float((batch.target.Y_lens + 1).sum())

    def loss(self, model: Translator, batch: PairBatch, stage: Stage) -> Loss:
        """Cross-entropy, summed."""
        X, Y = batch.source, batch.target
        return model.loss(X.Y, X.Y_lens, Y.Y, Y.Y_lens)

    def name(self, batches: Sequence[list[int]]) -> str:
        """The files and the first lines."""
        lines = self.train.lines([n for batch in batches for n in batch])
        return f"{self.train.path}, lines {shorten(map(str, lines))}"

    def validate(self, precision: str, group: Group) -> dict[str, float]:
        """Metrics of the dev set, given the true labels before each.

        returns  loss, -ln P per target token (labels and sentence ends), not smoothed; accuracy of
                 these; perplexity = exp(loss)
        """
        sizes, most = self.dev.lens + 1, self.data.batch_tokens
        nll, correct, tokens = dev_sums(self, sizes, most, self.dev.batch, precision, group)
        loss = nll / tokens
        return {"loss": loss, "accuracy": correct / tokens, "perplexity": exp(loss)}

    @torch.no_grad()
    def alignments(self) -> dict[str, Tensor]:
        """Attention of the decoder to the source's tokens (U + 1, S + 1), of dev pairs of about median length."""
        lens, lines = self.dev.lens, self.dev.lines(range(len(self.dev)))
        model, found = self.model.eval().model, {}
        for n in middle(lens, [f"{line:09d}" for line in lines], ALIGNED):
            batch = self.dev.batch([n]).to(self._device)
            H, H_lens = model.encode(batch.source.Y, batch.source.Y_lens)  # (1, S + 1, D)
            Y = batch.target
            decoded = model.decode(H, H_lens, Y.Y, Y.Y_lens, attention=True)
            heads = torch.cat(list(decoded.cross), 1)[0].float().cpu()  # (layers · H, U + 1, S + 1)
            found[f"line {lines[n]}"] = most_aligned(heads)
        return found

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device
