"""A Transformer language model: the decoder without an encoder.

B batch, U labels, V vocabulary.
"""

from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from asr.config import Settings
from asr.models import folder as folders
from asr.models import loss as criterion
from asr.models.folder import WEIGHTS, save_weights
from asr.models.hybrid import initialize
from asr.models.loss import Loss
from asr.nn.decoder import TransformerDecoder
from asr.nn.transformer import StackSettings
from asr.text import tokenizer as tokenizers
from asr.text.tokenizer import Tokenizer


class LMSettings(StackSettings):
    """Sizes of a language model."""

    kind: Literal["lm"]
    tied: bool = False  # output projection = embedding


class TransformerLM(nn.Module):
    """A decoder without an encoder: P(label | labels before).

    settings:    sizes
    vocabulary:  V: id 0 is the CTC blank, which is never a label, id V - 1 the shared start/end
                 symbol
    """

    def __init__(self, settings: LMSettings, vocabulary: int):
        super().__init__()
        self.vocabulary, self.sos_eos = vocabulary, vocabulary - 1
        self.decoder = TransformerDecoder(settings, vocabulary)
        self.apply(initialize)
        if settings.tied:
            self.decoder.tie()

    def forward(self, Y: Tensor, Y_lens: Tensor) -> Tensor:
        """Score sentences: row u of the logits is for label u given the labels before it, the last row for <eos>.

        Y, Y_lens:  (B, U) int, padded with -1, and (B,) int; causality keeps the padding from the
                    real positions
        returns     logits (B, U + 1, V), whose softmax is the posterior
        """
        return self.decoder(criterion.add_start(Y, Y_lens, self.sos_eos)).logits

    def loss(self, Y: Tensor, Y_lens: Tensor) -> Loss:
        """-ln P of a padded batch of sentences, Y (B, U) and Y_lens (B,), summed."""
        logits = self(Y, Y_lens)  # (B, U + 1, V)
        targets = criterion.add_end(Y, Y_lens, self.sos_eos)  # (B, U + 1)
        total = criterion.cross_entropy(logits, targets, smoothing=0.0)
        correct = criterion.count_correct(logits, targets)
        return Loss(total, {"nll": total.detach()}, correct, (Y_lens + 1).sum())


class FolderSettings(Settings):
    """What identifies a language model."""

    model: LMSettings


class LanguageModel(nn.Module):
    """A language model and its tokenizer."""

    Settings = FolderSettings

    def __init__(self, settings: LMSettings, tokenizer: Tokenizer):
        super().__init__()
        self.model = TransformerLM(settings, tokenizer.vocabulary)
        self.tokenizer = tokenizer

    def loss(self, Y: Tensor, Y_lens: Tensor) -> Loss:
        """-ln P of a padded batch of sentences, Y (B, U) and Y_lens (B,), summed."""
        return self.model.loss(Y, Y_lens)

    def unlike(self, other: "LanguageModel", folder: str) -> tuple[bool, list[str]]:
        """Nothing but sizes can differ; see `Recognizer.unlike`."""
        return False, []

    def describe(self, folder: str | Path, config: str) -> None:
        """Write all of the model folder but the weights; `config` is the YAML text of the full experiment."""
        folders.describe(folder, config, self.tokenizer)

    def save(self, folder: str | Path, config: str) -> None:
        """Write the model folder."""
        self.describe(folder, config)
        save_weights(self, Path(folder) / WEIGHTS)

    @staticmethod
    def load(folder: str | Path, device: torch.device | str = "cpu") -> "LanguageModel":
        """Load a model folder, as `load` of this module does."""
        return load(folder, device)


def load(folder: str | Path, device: torch.device | str = "cpu") -> LanguageModel:
    """Load a language model's folder, in evaluation mode.

    raises   UserError if a file is missing or damaged; names it; or if the folder holds a
             recognizer
    """
    settings = folders.read_settings(folder, FolderSettings, "lm")
    tokenizer = tokenizers.load(folder)
    made = folders.fill(lambda: LanguageModel(settings.model, tokenizer), folder)
    return made.to(device).eval()
