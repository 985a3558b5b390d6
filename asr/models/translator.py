"""A translator: the Transformer of "Attention Is All You Need", tokens of one language → those of another.

Its encoders, decoder and loss are the recognizer's; embeddings stand in the place of features.

B batch, S source tokens, U target labels, D model width, V, V_source vocabularies.
"""

from pathlib import Path
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from asr.config import Settings
from asr.errors import UserError
from asr.model_files import SOURCE
from asr.models import folder as folders
from asr.models import loss as criterion
from asr.models.folder import WEIGHTS, save_weights
from asr.models.hybrid import DecoderSettings, initialize
from asr.models.loss import Loss
from asr.nn.decoder import DecoderOutput, TransformerDecoder
from asr.nn.encoders import AnyEncoder
from asr.ops import PADDING
from asr.text import tokenizer as tokenizers
from asr.text.tokenizer import Tokenizer

MORE = 50  # target labels, at most, beyond twice the source's tokens


class TranslatorSettings(Settings):
    """The model: its parts, and the smoothing of its loss."""

    kind: Literal["translator"]
    source: Literal["text"]  # what is translated
    encoder: AnyEncoder
    decoder: DecoderSettings  # tied: its embedding is the output projection, too
    shared: bool = False  # one embedding for both languages, whose tokens are the same
    label_smoothing: float = Field(0.1, ge=0.0, lt=1.0)

    @model_validator(mode="after")
    def _parts_fit(self):
        if self.encoder.subsampling != 1:
            raise ValueError(
                f"encoder.subsampling: got {self.encoder.subsampling}, expected 1: text is not shortened"
            )
        if self.encoder.chunk:
            raise ValueError("encoder.chunk: is for streams of sound; leave it out")
        if self.shared and self.encoder.d_model != self.decoder.d_model:
            raise ValueError(
                f"shared: got encoder.d_model = {self.encoder.d_model} and decoder.d_model = "
                f"{self.decoder.d_model}, expected equal widths"
            )
        return self


class TranslationModel(nn.Module):
    """Embedding, encoder and decoder.

    settings:    sizes
    source:      V_source: its last id ends each source
    vocabulary:  V: id V - 1 is the shared start/end symbol
    """

    def __init__(self, settings: TranslatorSettings, source: int, vocabulary: int):
        super().__init__()
        s, width = settings, settings.encoder.d_model
        self.embedding = nn.Embedding(source, width)
        self.encoder = s.encoder.build(width)
        self.decoder = TransformerDecoder(s.decoder, vocabulary, width, s.decoder.layer_dropout)
        self.label_smoothing = s.label_smoothing
        self.source_end = source - 1
        self.vocabulary, self.sos_eos = vocabulary, vocabulary - 1
        self.apply(initialize)
        if s.decoder.tied:
            self.decoder.tie()
        if s.shared:
            self.embedding.weight = self.decoder.embedding.weight

    def forward(self, X: Tensor, X_lens: Tensor, Y: Tensor, Y_lens: Tensor) -> Tensor:
        """Score the target: row u of the logits is for label u given the source and the labels before it.

        X, X_lens:  (B, S) int, source tokens, padded with anything, and (B,) int
        Y, Y_lens:  (B, U) int, padded with -1, and (B,) int
        returns     logits (B, U + 1, V), whose softmax is the posterior; the last row is for <eos>
        """
        H, H_lens = self.encode(X, X_lens)  # (B, S + 1, D)
        return self.decode(H, H_lens, Y, Y_lens).logits

    def encode(self, X: Tensor, X_lens: Tensor) -> tuple[Tensor, Tensor]:
        """X (B, S), X_lens (B,) → H (B, S + 1, D) of the tokens and the end, and H_lens (B,)"""
        tokens = criterion.add_end(X, X_lens, self.source_end)  # (B, S + 1)
        embedded = self.embedding(tokens.masked_fill(tokens == PADDING, 0))  # (B, S + 1, D)
        encoded = self.encoder(embedded, X_lens + 1)  # which never reads the padding
        return encoded.H, encoded.H_lens

    def decode(
        self, H: Tensor, H_lens: Tensor, Y: Tensor, Y_lens: Tensor, attention: bool = False
    ) -> DecoderOutput:
        """H (B, S + 1, D), H_lens (B,), Y (B, U), Y_lens (B,) → logits (B, U + 1, V); `attention` as in the decoder"""
        return self.decoder(criterion.add_start(Y, Y_lens, self.sos_eos), H, H_lens, attention)

    def limits(self, H_lens: Tensor) -> Tensor:
        """The most labels of a search, (B,), of encoded sources of H_lens (B,)."""
        return 2 * H_lens + MORE

    def loss(self, X: Tensor, X_lens: Tensor, Y: Tensor, Y_lens: Tensor) -> Loss:
        """Cross-entropy of a padded batch, summed; see `forward`. Its labels are smoothed in training alone."""
        logits = self(X, X_lens, Y, Y_lens)  # (B, U + 1, V)
        targets = criterion.add_end(Y, Y_lens, self.sos_eos)  # (B, U + 1)
        smoothing = self.label_smoothing if self.training else 0.0
        total = criterion.cross_entropy(logits, targets, smoothing)
        correct = criterion.count_correct(logits, targets)
        return Loss(total, {"nll": total.detach()}, correct, (Y_lens + 1).sum())


class TranslatorFolder(Settings):
    """What identifies a translator.

    source_tokenizer   stands in the model's folder, in SOURCE; None: `tokenizer` is of both languages
    """

    source_tokenizer: str | None = None
    model: TranslatorSettings


class Translator(nn.Module):
    """A translation model and its tokenizers.

    tokenizer   of the target; and of the source, unless another is given for that
    raises      UserError if languages with different tokens are to share an embedding
    """

    Settings = TranslatorFolder

    def __init__(
        self, settings: TranslatorSettings, tokenizer: Tokenizer, source: Tokenizer | None = None
    ):
        super().__init__()
        self.tokenizer, self.source_tokenizer = tokenizer, source or tokenizer
        if settings.shared and self.source_tokenizer.symbols() != tokenizer.symbols():
            raise UserError(
                "model.shared: the tokens of the two languages differ; leave out source_tokenizer, and train "
                "tokenizer on the texts of both"
            )
        sizes = self.source_tokenizer.vocabulary, tokenizer.vocabulary
        self.model = TranslationModel(settings, *sizes)

    def loss(self, X: Tensor, X_lens: Tensor, Y: Tensor, Y_lens: Tensor) -> Loss:
        """Cross-entropy of a padded batch: sources X (B, S), targets Y (B, U)."""
        return self.model.loss(X, X_lens, Y, Y_lens)

    def unlike(self, other: "Translator", folder: str) -> tuple[bool, list[str]]:
        """Nothing but sizes can differ; see `Recognizer.unlike`."""
        return False, []

    def describe(self, folder: str | Path, config: str) -> None:
        """Write all of the model folder but the weights; `config` is the YAML text of the full experiment."""
        folders.describe(folder, config, self.tokenizer)
        if self.source_tokenizer is not self.tokenizer:
            self.source_tokenizer.save(folders.make_folder(Path(folder) / SOURCE))

    def save(self, folder: str | Path, config: str) -> None:
        """Write the model folder."""
        self.describe(folder, config)
        save_weights(self, Path(folder) / WEIGHTS)

    @staticmethod
    def load(folder: str | Path, device: torch.device | str = "cpu") -> "Translator":
        """Load a model folder, as `load` of this module does."""
        return load(folder, device)


def load(folder: str | Path, device: torch.device | str = "cpu") -> Translator:
    """Load a translator's folder, in evaluation mode.

    raises   UserError if a file is missing or damaged; names it; or if the folder holds another kind
             of model
    """
    settings = folders.read_settings(folder, TranslatorFolder, "translator")
    tokenizer = tokenizers.load(folder)
    source = tokenizers.load(Path(folder) / SOURCE) if settings.source_tokenizer else None
    made = folders.fill(lambda: Translator(settings.model, tokenizer, source), folder)
    return made.to(device).eval()
