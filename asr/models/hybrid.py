"""The hybrid CTC/attention Transformer: (X, X_lens, Y, Y_lens) → logits of the label text, and its loss.

B batch, T frames, F features, T' encoder frames, D model width, U labels, V vocabulary.
"""

from typing import Literal

from pydantic import Field, model_validator
from torch import Tensor, nn

from asr.config import Settings
from asr.models import loss as criterion
from asr.models.loss import Loss
from asr.nn.decoder import TransformerDecoder
from asr.nn.encoder import TransformerEncoder


class StackSettings(Settings):
    """Sizes of an encoder or a decoder, in the paper's terms: N layers, d_model, h heads, d_k, d_v, ff."""

    d_model: int = Field(gt=0)
    layers: int = Field(gt=0)
    heads: int = Field(gt=0)
    ff: int = Field(gt=0)
    d_k: int | None = Field(None, gt=0)
    d_v: int | None = Field(None, gt=0)
    dropout: float = Field(ge=0.0, lt=1.0)
    attention_dropout: float = Field(0.0, ge=0.0, lt=1.0)
    norm: Literal["pre", "post"] = "pre"
    activation: Literal["relu", "gelu", "swish"] = "relu"

    @model_validator(mode="after")
    def _heads_divide(self):
        if self.d_k is None and self.d_model % self.heads:
            raise ValueError(f"heads: got {self.heads}, expected a divisor of d_model = {self.d_model}, or d_k given")
        return self


class EncoderSettings(StackSettings):
    """The Transformer encoder and its convolutional subsampling of time."""

    kind: Literal["transformer"]
    subsampling: Literal[4, 6, 8] = 4
    channels: int | None = Field(None, gt=0)  # of the convolutions; d_model unless given


class DecoderSettings(StackSettings):
    """The Transformer decoder."""

    kind: Literal["transformer"]
    tied: bool = False  # output projection = embedding


class HybridSettings(Settings):
    """The model: its parts, and the weights of its loss."""

    kind: Literal["hybrid"]
    encoder: EncoderSettings
    decoder: DecoderSettings
    ctc_weight: float = Field(0.3, ge=0.0, le=1.0)
    label_smoothing: float = Field(0.1, ge=0.0, lt=1.0)


class Hybrid(nn.Module):
    """Encoder, CTC output layer and decoder.

    settings:    sizes
    features:    F
    vocabulary:  V: id 0 is the CTC blank, id V - 1 the shared start/end symbol
    """

    def __init__(self, settings: HybridSettings, features: int, vocabulary: int):
        super().__init__()
        encoder = settings.encoder.model_dump(exclude={"kind"})
        decoder = settings.decoder.model_dump(exclude={"kind"})
        self.encoder = TransformerEncoder(features, **encoder)
        self.decoder = TransformerDecoder(vocabulary, self.encoder.d_model, **decoder)
        self.ctc_out = nn.Linear(self.encoder.d_model, vocabulary)
        self.ctc_weight, self.label_smoothing = settings.ctc_weight, settings.label_smoothing
        self.vocabulary, self.sos_eos = vocabulary, vocabulary - 1
        self.apply(initialise)
        if settings.decoder.tied:
            initialise(self.decoder.embedding)  # the output projection came last and had made them Xavier-uniform

    def forward(
        self, X: Tensor, X_lens: Tensor, Y: Tensor, Y_lens: Tensor, maps: dict[str, list] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Score the label text: row u of the logits is for label u given the labels before it, the last row for <eos>.

        X, X_lens:  (B, T, F) float and (B,) int, frames
        Y, Y_lens:  (B, U) int, padded with -1, and (B,) int
        maps:       when given, filled with the attention weights of each layer under "encoder", "decoder", "cross"
        returns     logits (B, U + 1, V), whose softmax is the posterior, and their lengths Y_lens + 1 (B,)
        """
        maps = {} if maps is None else {name: maps.setdefault(name, []) for name in ("encoder", "decoder", "cross")}
        H, H_lens = self.encode(X, X_lens, maps.get("encoder"))  # (B, T', D)
        logits = self.decode(H, H_lens, Y, Y_lens, maps.get("decoder"), maps.get("cross"))  # (B, U + 1, V)
        return logits, Y_lens + 1

    def encode(self, X: Tensor, X_lens: Tensor, maps: list | None = None) -> tuple[Tensor, Tensor]:
        """X (B, T, F), X_lens (B,) → H (B, T', D), H_lens (B,)"""
        return self.encoder(X, X_lens, maps)

    def decode(self, H: Tensor, H_lens: Tensor, Y: Tensor, Y_lens: Tensor, *maps: list | None) -> Tensor:
        """H (B, T', D), H_lens (B,), Y (B, U), Y_lens (B,) → logits (B, U + 1, V)"""
        return self.decoder(criterion.add_start(Y, Y_lens, self.sos_eos), H, H_lens, *maps)

    def ctc_log_probs(self, H: Tensor) -> Tensor:
        """H (B, T', D) → (B, T', V) float32, log posteriors of blank and labels"""
        return self.ctc_out(H).float().log_softmax(-1)

    def loss(self, X: Tensor, X_lens: Tensor, Y: Tensor, Y_lens: Tensor) -> Loss:
        """ctc_weight · CTC + (1 - ctc_weight) · cross-entropy, summed over the batch (Watanabe et al. 2017)."""
        H, H_lens = self.encode(X, X_lens)  # (B, T', D)
        logits = self.decode(H, H_lens, Y, Y_lens)  # (B, U + 1, V)
        targets = criterion.add_end(Y, Y_lens, self.sos_eos)  # (B, U + 1)
        attention = criterion.cross_entropy(logits, targets, self.label_smoothing)
        ctc = criterion.ctc(self.ctc_log_probs(H), H_lens, Y, Y_lens)
        total = self.ctc_weight * ctc + (1 - self.ctc_weight) * attention
        correct = criterion.count_correct(logits, targets)
        return Loss(total, ctc.detach(), attention.detach(), correct, (Y_lens + 1).sum())


def initialise(module: nn.Module) -> None:
    """Initialise one module: matrices Xavier-uniform, biases 0, embeddings normal with standard deviation 1/√D.

    Convolutions keep PyTorch's default (He-uniform), LayerNorm 1 and 0.
    """
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
