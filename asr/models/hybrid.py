"""The hybrid CTC/attention model: (X, X_lens, Y, Y_lens) → logits of the label text, and its loss.

B batch, T frames, F features, T' encoder frames, D model width, U labels, V vocabulary.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from asr.config import Settings
from asr.models import loss as criterion
from asr.models.loss import Consistency, IntermediateCTC, Loss, Scored, terms_of
from asr.models.stage import LATE, Stage
from asr.nn.decoder import DecoderOutput, TransformerDecoder
from asr.nn.encoder import EncoderOutput
from asr.nn.encoders import AnyEncoder
from asr.nn.transformer import StackSettings


class DecoderSettings(StackSettings):
    """The Transformer decoder."""

    kind: Literal["transformer"]
    tied: bool = False  # output projection = embedding
    layer_dropout: float = Field(0.0, ge=0.0, lt=1.0)


class FineTuningSettings(Settings):
    """How the encoder is trained where its weights are those of another training, and the rest is new."""

    freeze_steps: int = Field(0, ge=0)  # first ones, in which the rest is trained alone
    rate: float = Field(1.0, gt=0, le=1)  # times the optimizer's learning rate
    layer_decay: float = Field(1.0, gt=0, le=1)  # times the rate of the layer above


NO_FINE_TUNING = FineTuningSettings.model_validate({})


class HybridSettings(Settings):
    """The model: its parts, and the weights of its loss."""

    kind: Literal["hybrid"]
    encoder: AnyEncoder
    decoder: DecoderSettings
    ctc_weight: float = Field(0.3, ge=0.0, le=1.0)
    label_smoothing: float = Field(0.1, ge=0.0, lt=1.0)
    flat_start_epochs: int = Field(
        0, ge=0
    )  # in which CTC has equal alignments, to find its own from; never the last
    intermediate_ctc: IntermediateCTC | None = None  # in training only, as all `Term`s
    consistency: Consistency | None = None
    fine_tuning: FineTuningSettings | None = None

    @model_validator(mode="after")
    def _layers_to_choose(self):
        chosen, last = (
            self.intermediate_ctc.layers if self.intermediate_ctc else [],
            self.encoder.layers - 1,
        )
        if len(set(chosen)) < len(chosen) or any(not 1 <= n <= last for n in chosen):
            what = (
                f"intermediate_ctc: got layers {chosen}, expected different ones from 1 to {last}"
            )
            raise ValueError(f"{what}: CTC has the last one anyway")
        return self


class Hybrid(nn.Module):
    """Encoder, CTC output layer and decoder.

    settings:    sizes
    features:    F
    vocabulary:  V: id 0 is the CTC blank, id V - 1 the shared start/end symbol
    """

    def __init__(self, settings: HybridSettings, features: int, vocabulary: int):
        super().__init__()
        self.encoder = settings.encoder.build(features)
        self.decoder = TransformerDecoder(
            settings.decoder, vocabulary, self.encoder.d_model, settings.decoder.layer_dropout
        )
        self.ctc_out = nn.Linear(self.encoder.d_model, vocabulary)
        self.ctc_weight, self.label_smoothing = settings.ctc_weight, settings.label_smoothing
        self.flat_start_epochs = settings.flat_start_epochs
        self.fine_tuning = settings.fine_tuning or NO_FINE_TUNING
        self.terms = list(terms_of(settings).values())
        self.vocabulary, self.sos_eos = vocabulary, vocabulary - 1
        self.apply(initialize)
        if settings.decoder.tied:
            initialize(
                self.decoder.embedding
            )  # a second draw: reproduces the weights of earlier versions
            self.decoder.tie()

    def forward(
        self, X: Tensor, X_lens: Tensor, Y: Tensor, Y_lens: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Score the label text: row u of the logits is for label u given the labels before it, the last row for <eos>.

        X, X_lens:  (B, T, F) float and (B,) int, frames
        Y, Y_lens:  (B, U) int, padded with -1, and (B,) int
        returns     logits (B, U + 1, V), whose softmax is the posterior, and their lengths Y_lens +
                    1 (B,)
        """
        encoded = self.encoder(X, X_lens)  # (B, T', D)
        return self.decode(encoded.H, encoded.H_lens, Y, Y_lens).logits, Y_lens + 1

    def decode(
        self, H: Tensor, H_lens: Tensor, Y: Tensor, Y_lens: Tensor, attention: bool = False
    ) -> DecoderOutput:
        """H (B, T', D), H_lens (B,), Y (B, U), Y_lens (B,) → logits (B, U + 1, V); `attention` as in the decoder"""
        return self.decoder(criterion.add_start(Y, Y_lens, self.sos_eos), H, H_lens, attention)

    def ctc_log_probs(self, H: Tensor) -> Tensor:
        """H (B, T', D) → (B, T', V) float32, log posteriors of blank and labels"""
        return self.ctc_out(H).float().log_softmax(-1)

    def limits(self, H_lens: Tensor) -> Tensor:
        """The most labels of a search, (B,): one per encoder frame, H_lens (B,)."""
        return H_lens

    @property
    def term_names(self) -> tuple[str, ...]:
        """Names of the loss's terms in training."""
        return ("ctc", *(term.name for term in self.terms), "attention")

    @property
    def views(self) -> int:
        """Views of a training batch that the loss's terms need."""
        return max((term.views for term in self.terms), default=1)

    def rates(self) -> dict[nn.Parameter, tuple[float, int]]:
        """Map parameters to the factor on their learning rate, and the steps for which they are frozen.

        Of the encoder's N layers the last has the factor `rate`, and each one below `layer_decay`
        times that of the one above; what is in no layer has that of one below the first. What a
        pretrained encoder adds to its source is new, as are CTC and decoder.
        """
        s, layers = self.fine_tuning, self.encoder.layers
        if s == NO_FINE_TUNING:
            return {}
        below = s.rate * s.layer_decay ** len(layers)
        rates = dict.fromkeys(self.encoder.transferred, (below, s.freeze_steps))
        for n, layer in enumerate(layers, start=1):
            factor = s.rate * s.layer_decay ** (len(layers) - n)
            rates |= dict.fromkeys(layer.parameters(), (factor, s.freeze_steps))
        return rates

    def loss(
        self,
        X: Tensor,
        X_lens: Tensor,
        Y: Tensor,
        Y_lens: Tensor,
        stage: Stage = LATE,
        on_cpu: tuple[Tensor, Tensor] | None = None,
        seeds: Tensor | None = None,
        encoded: EncoderOutput | None = None,
    ) -> Loss:
        """ctc_weight · CTC + (1 - ctc_weight) · cross-entropy, summed over the batch (Watanabe et al. 2017).

        In training other terms join CTC, and in the first epochs (`flat_start_epochs`) equal
        alignments replace it.

        X, X_lens:  (views · B, T, F) and (views · B,): one view of the batch behind the other
        Y, Y_lens:  (B, U) and (B,)
        stage:      of the training; a late one unless given
        on_cpu:     H_lens and Y_lens, (B,), where CTC needs them; else a GPU is waited for
        seeds:      (B,), which in training draw the encoder's chunks or masks. Both views have the same:
                    what one can't hear yet, it can't agree on with the other
        encoded:    what the encoder gave, if that is known: validation searches it, too
        """
        views, tokens = len(X) // len(Y), (Y_lens + 1).sum()
        Y, Y_lens = Y.repeat(views, 1), Y_lens.repeat(views)  # (N, U), N = views · B
        extra = self.terms if self.training else []
        layers = [n for term in extra for n in term.encoder_layers]
        seeds = None if seeds is None else seeds.repeat(views)  # (N,)
        encoded = encoded or self._encode(X, X_lens, layers, stage, seeds)
        H, H_lens = encoded.H, encoded.H_lens  # (N, T', D)
        logits = self.decode(H, H_lens, Y, Y_lens).logits  # (N, U + 1, V)
        targets = criterion.add_end(Y, Y_lens, self.sos_eos)  # (N, U + 1)
        attention = criterion.cross_entropy(logits, targets, self.label_smoothing) / views
        log_probs = self.ctc_log_probs(H)  # (N, T', V)
        align = self._alignment(H_lens, Y, Y_lens, stage, on_cpu)
        total = ctc = align(log_probs) / views
        terms, inner = {"ctc": ctc.detach()}, dict(zip(layers, encoded.layers, strict=True))
        scored = Scored(
            H, H_lens, inner, log_probs, logits, Y, Y_lens, views, self.ctc_log_probs, align
        )
        for term in extra:
            value = term.compute(scored)
            total = total if value is None else term.join(total, value)
            terms[term.name] = torch.zeros_like(ctc) if value is None else value.detach()
        total = self.ctc_weight * total + (1 - self.ctc_weight) * attention
        correct = criterion.count_correct(logits, targets) / views
        return Loss(total, {**terms, "attention": attention.detach()}, correct, tokens)

    def _encode(
        self, X: Tensor, X_lens: Tensor, layers: list[int], stage: Stage, seeds: Tensor | None
    ) -> EncoderOutput:
        """Encode; in the first steps of training (`freeze_steps`), without gradients of what was pretrained."""
        frozen = self.training and stage.step <= self.fine_tuning.freeze_steps
        encode = self.encoder.frozen if frozen else self.encoder
        return encode(X, X_lens, layers, seeds=seeds)

    def _alignment(
        self,
        H_lens: Tensor,
        Y: Tensor,
        Y_lens: Tensor,
        stage: Stage,
        on_cpu: tuple[Tensor, Tensor] | None,
    ) -> Callable[[Tensor], Tensor]:
        """What log-probabilities (N, T', V) are scored by: CTC; in the first epochs of training, equal alignments."""
        if self.training and stage.epoch < self.flat_start_epochs:
            return partial(criterion.flat_start, H_lens=H_lens, Y=Y, Y_lens=Y_lens)
        views = len(Y) // len(on_cpu[1]) if on_cpu else 1
        lens = [n.repeat(views) for n in on_cpu] if on_cpu else (H_lens, Y_lens)  # (N,) each
        return partial(criterion.ctc, H_lens=lens[0], Y=Y, Y_lens=lens[1])


def initialize(module: nn.Module) -> None:
    """Initialize one module: matrices Xavier-uniform, biases 0, embeddings normal with standard deviation 1/√D.

    Convolutions keep PyTorch's default (uniform within 1/√fan-in), LayerNorm 1 and 0.
    """
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
