"""The task of a language model: sentences in, -ln P, perplexities."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from asr.data.plan import plan
from asr.data.sentence_batch import SentenceBatch, collate
from asr.data.sentences import Sentences
from asr.data.windows import Windows
from asr.errors import shorten
from asr.models.lm import LanguageModel, LMLoss
from asr.training.device import autocast
from asr.training.processes import Group
from asr.training.settings import TextDataSettings

FORMULAS = "ppl = exp(-ln P / tokens), word-ppl = exp(-ln P / words), each sentence's end counted as one of both"


@dataclass(frozen=True)
class TextTask:
    """Train a language model."""

    model: LanguageModel
    data: TextDataSettings
    train: Sentences
    dev: Sentences
    seed: int

    sums = ("nll", "correct", "tokens")
    unit = "tokens"

    def plan(self, epoch: int, accumulate: int) -> Windows:
        """Sentences of like length together, by tokens."""
        return Windows(self.train.labels, self.data.batch_tokens, self.seed, epoch, accumulate)

    def longest(self, n: int) -> list[int]:
        """The n longest sentences."""
        return self.train.labels.longest(n)

    def load(self, epoch: int, batches: Iterable[list[int]]) -> Iterator[SentenceBatch]:
        """Pad the sentences of planned batches; they are in memory, or mapped."""
        return (collate(self.train, batch) for batch in batches)

    def amount(self, batch: SentenceBatch) -> float:
        """Target tokens: labels and sentence ends."""
        return float((batch.Y_lens + 1).sum())

    def loss(self, model: LanguageModel, batch: SentenceBatch, epoch: int) -> LMLoss:
        """-ln P, summed."""
        return model.loss(batch.Y, batch.Y_lens)

    def name(self, batches: list[list[int]]) -> str:
        """The file and the first lines."""
        return f"{self.train.path}, lines {shorten(str(self.train.lines[n]) for batch in batches for n in batch)}"

    @torch.no_grad()
    def validate(self, precision: str, group: Group) -> dict[str, float]:
        """Figures of the dev set.

        returns  loss, -ln P per target token (labels and sentence ends); accuracy of these; perplexity = exp(loss);
                 word_perplexity = exp(-ln P / (words + sentences))
        """
        self.model.eval()
        device = next(self.model.parameters()).device
        sums = torch.zeros(len(self.sums), dtype=torch.float64)
        for [batch] in plan(self.dev.lens + 1, self.data.batch_tokens, 0, 0)[group.rank :: group.size]:
            with autocast(device, precision):
                loss = self.loss(self.model, collate(self.dev, batch).to(device), 0)
            sums += torch.tensor([float(getattr(loss, name)) for name in self.sums], dtype=torch.float64)
        group.add(sums)
        nll, correct, tokens = sums.tolist()
        return {
            "loss": nll / tokens,
            "accuracy": correct / tokens,
            "perplexity": _exp(nll / tokens),
            "word_perplexity": _exp(nll / (self.dev.words + len(self.dev))),
        }

    def alignments(self) -> dict[str, Tensor]:
        """None: there is no encoder."""
        return {}


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else x * math.inf  # NaN stays NaN
