"""The hybrid CTC/attention model: (X, X_lens, Y, Y_lens) → logits of the label text, and its loss.

B batch, T frames, F features, T' encoder frames, D model width, U labels, V vocabulary.
"""

from collections.abc import Callable
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from asr.config import Settings, one_of
from asr.models import loss as criterion
from asr.models.encoders import ConformerSettings, EBranchformerSettings, TransformerSettings, build_encoder
from asr.models.loss import Loss
from asr.models.sizes import StackSettings
from asr.nn.decoder import TransformerDecoder


class DecoderSettings(StackSettings):
    """The Transformer decoder."""

    kind: Literal["transformer"]
    tied: bool = False  # output projection = embedding
    layer_dropout: float = Field(0.0, ge=0.0, lt=1.0)


class IntermediateCTCSettings(Settings):
    """CTC of encoder layers, by the head of the last (Lee and Watanabe 2021): (1 - weight) · CTC + weight · theirs."""

    layers: list[int] = Field(min_length=1)  # from 1; their losses are averaged
    weight: float = Field(0.3, ge=0.0, lt=1.0)  # 0 = none


class ConsistencySettings(Settings):
    """Two views of each batch by SpecAugment, whose CTC posteriors are to agree (CR-CTC, Yao et al. 2025).

    A step takes twice the time and memory. The paper masks 2.5 times as much time as without: features.specaugment.
    """

    weight: float = Field(0.2, ge=0.0)  # of the consistency, beside CTC's 1; 0 = none, and one view


class HybridSettings(Settings):
    """The model: its parts, and the weights of its loss."""

    kind: Literal["hybrid"]
    encoder: one_of(TransformerSettings, ConformerSettings, EBranchformerSettings)
    decoder: DecoderSettings
    ctc_weight: float = Field(0.3, ge=0.0, le=1.0)
    label_smoothing: float = Field(0.1, ge=0.0, lt=1.0)
    intermediate_ctc: IntermediateCTCSettings | None = None  # in training only, as the next
    consistency: ConsistencySettings | None = None

    @model_validator(mode="after")
    def _layers_to_choose(self):
        chosen, last = self.intermediate_ctc.layers if self.intermediate_ctc else [], self.encoder.layers - 1
        if len(set(chosen)) < len(chosen) or any(not 1 <= n <= last for n in chosen):
            what = f"intermediate_ctc: got layers {chosen}, expected different ones from 1 to {last}"
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
        decoder = settings.decoder.model_dump(exclude={"kind"})
        self.encoder = build_encoder(settings.encoder, features)
        self.decoder = TransformerDecoder(vocabulary, self.encoder.d_model, **decoder)
        self.ctc_out = nn.Linear(self.encoder.d_model, vocabulary)
        self.ctc_weight, self.label_smoothing = settings.ctc_weight, settings.label_smoothing
        self.intermediate = settings.intermediate_ctc if has_weight(settings.intermediate_ctc) else None
        self.consistency = settings.consistency if has_weight(settings.consistency) else None
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

    def encode(
        self, X: Tensor, X_lens: Tensor, maps: list | None = None, inner: dict[int, Tensor | None] | None = None
    ) -> tuple[Tensor, Tensor]:
        """X (B, T, F), X_lens (B,) → H (B, T', D), H_lens (B,); `maps` and `inner` as of `Encoder`."""
        return self.encoder(X, X_lens, maps, inner)

    def decode(self, H: Tensor, H_lens: Tensor, Y: Tensor, Y_lens: Tensor, *maps: list | None) -> Tensor:
        """H (B, T', D), H_lens (B,), Y (B, U), Y_lens (B,) → logits (B, U + 1, V)"""
        return self.decoder(criterion.add_start(Y, Y_lens, self.sos_eos), H, H_lens, *maps)

    def ctc_log_probs(self, H: Tensor) -> Tensor:
        """H (B, T', D) → (B, T', V) float32, log posteriors of blank and labels"""
        return self.ctc_out(H).float().log_softmax(-1)

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the loss's terms, as of `Loss`."""
        return ("ctc", *["inter"] * bool(self.intermediate), *["cr"] * bool(self.consistency), "attention")

    def loss(self, X: Tensor, X_lens: Tensor, Y: Tensor, Y_lens: Tensor, views: int = 1, flat: bool = False) -> Loss:
        """ctc_weight · CTC + (1 - ctc_weight) · cross-entropy, summed over the batch (Watanabe et al. 2017).

        In training CTC has its other terms: (1 - v) · CTC + v · inter + w · cr, with the weights of the settings.

        X, X_lens:  (views · B, T, F) and (views · B,): one view of the batch behind the other
        Y, Y_lens:  (B, U) and (B,)
        views:      1, or 2 that are to agree
        flat:       in place of CTC, cross-entropy to equal alignments (`criterion.flat_start`)
        """
        tokens = (Y_lens + 1).sum()
        Y, Y_lens = Y.repeat(views, 1), Y_lens.repeat(views)  # (views · B, U)
        inner = dict.fromkeys(self.intermediate.layers if self.intermediate and self.training else ())
        H, H_lens = self.encode(X, X_lens, inner=inner)  # (views · B, T', D)
        logits = self.decode(H, H_lens, Y, Y_lens)  # (views · B, U + 1, V)
        targets = criterion.add_end(Y, Y_lens, self.sos_eos)  # (views · B, U + 1)
        attention = criterion.cross_entropy(logits, targets, self.label_smoothing) / views
        align = criterion.flat_start if flat and self.training else criterion.ctc
        alignment, parts = self._ctc_terms(align, H, list(inner.values()), H_lens, Y, Y_lens, views)
        total = self.ctc_weight * alignment + (1 - self.ctc_weight) * attention
        correct = criterion.count_correct(logits, targets) / views
        return Loss(total=total, attention=attention.detach(), correct=correct, tokens=tokens, **parts)

    def _ctc_terms(
        self, align: Callable, H: Tensor, inner: list[Tensor], H_lens: Tensor, Y: Tensor, Y_lens: Tensor, views: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """CTC of the encoder's frames and of those of `inner`, and the consistency: weighted, and each by name."""
        log_probs = self.ctc_log_probs(H)  # (views · B, T', V)
        ctc = total = align(log_probs, H_lens, Y, Y_lens) / views
        inter = cr = torch.zeros_like(ctc)
        if inner:
            losses = [align(self.ctc_log_probs(Z), H_lens, Y, Y_lens) / views for Z in inner]
            inter = sum(losses) / len(losses)
            total = (1 - self.intermediate.weight) * ctc + self.intermediate.weight * inter
        if views == 2:
            cr = criterion.consistency(log_probs.unflatten(0, (2, -1)), H_lens.chunk(2)[0])
            total = total + self.consistency.weight * cr
        return total, {"ctc": ctc.detach(), "inter": inter.detach(), "cr": cr.detach()}


def has_weight(settings: IntermediateCTCSettings | ConsistencySettings | None) -> bool:
    """Whether a term of the loss counts."""
    return settings is not None and settings.weight > 0


def initialise(module: nn.Module) -> None:
    """Initialise one module: matrices Xavier-uniform, biases 0, embeddings normal with standard deviation 1/√D.

    Convolutions keep PyTorch's default (uniform within 1/√fan-in), LayerNorm 1 and 0.
    """
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
