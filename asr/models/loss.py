"""The training criterion: label-smoothed cross-entropy of the decoder, jointly with CTC, and further terms.

Each term is a class: its settings, its weight, its name and its formula.

B utterances, N = views · B rows, the second view behind the first; U labels, V vocabulary, T'
encoder frames, D width.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from asr.config import Settings
from asr.ops import PADDING, length_mask


@dataclass(frozen=True)
class Loss:
    """Sums over a batch, so that batches add: divide by `tokens` for the loss per target token.

    total:    scalar, what is trained, with gradient
    terms:    its terms by name, without gradient: of a recognizer "ctc" (-ln P(Y | X), natural
              logarithm; in a flat start `flat_start`), "attention" (label-smoothed cross-entropy)
              and those of its further terms; of a language model "nll"
    correct:  scalar, targets that the decoder ranks first
    tokens:   scalar int, targets: the labels and each utterance's end symbol

    Where a batch is seen in two views, all but `tokens` are means of the two.
    """

    total: Tensor
    terms: dict[str, Tensor]
    correct: Tensor
    tokens: Tensor

    @property
    def sums(self) -> dict[str, Tensor]:
        """All that is counted."""
        return {**self.terms, "correct": self.correct, "tokens": self.tokens}


def cross_entropy(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Sum of label-smoothed cross-entropy over the targets that aren't PADDING.

    logits:   (B, U, V), targets: (B, U) int; the smoothed share is spread over all V (Szegedy et
              al. 2016)
    returns   scalar float32
    """
    return F.cross_entropy(
        logits.float().flatten(0, 1),
        targets.flatten(),
        ignore_index=PADDING,
        label_smoothing=smoothing,
        reduction="sum",
    )


def ctc(log_probs: Tensor, H_lens: Tensor, Y: Tensor, Y_lens: Tensor) -> Tensor:
    """Sum of -ln P(Y | X) over the batch (Graves et al. 2006), id 0 the blank.

    log_probs:  (B, T', V), normalized; H_lens (B,); Y (B, U) padded with anything; Y_lens (B,);
                PyTorch reads both lengths on the CPU, and waits for a GPU if they are there
    returns     scalar; infinite where an utterance has too few frames for its labels
    """
    labels = Y.clamp(min=0)
    return F.ctc_loss(
        log_probs.float().transpose(0, 1), labels, H_lens, Y_lens, blank=0, reduction="sum"
    )


def flat_start(log_probs: Tensor, H_lens: Tensor, Y: Tensor, Y_lens: Tensor) -> Tensor:
    """Sum over real frames of the cross-entropy to labels that share the frames equally, each with as much blank.

    Where CTC may begin, as Kaldi's monophone training begins with equal alignments
    (`align-equal-compiled`): CTC by itself first learns to answer blank alone, and leaves that
    late, or by luck.

    log_probs:  (B, T', V), normalized; H_lens (B,); Y (B, U) padded with anything; Y_lens (B,)
    returns     scalar; an utterance without labels counts as blank alone
    """
    frames = torch.arange(log_probs.size(1), device=log_probs.device)  # (T',)
    places = (
        frames * Y_lens.unsqueeze(1) // H_lens.unsqueeze(1)
    )  # (B, T'), of the label at each frame
    labels = add_start(Y, Y_lens, 0).gather(1, (places + 1).minimum(Y_lens.unsqueeze(1)))  # (B, T')
    label = log_probs.gather(2, labels.unsqueeze(2)).squeeze(2)  # (B, T')
    return (
        -((log_probs[..., 0] + label) / 2)
        .masked_fill(length_mask(H_lens, log_probs.size(1)), 0)
        .sum()
    )


def consistency(log_probs: Tensor, H_lens: Tensor) -> Tensor:
    """Sum over real frames of ½ (KL(q̄ ‖ p) + KL(p̄ ‖ q)) of two views' posteriors p and q; no gradient reaches p̄, q̄.

    The consistency of "CR-CTC" (Yao et al. 2025).

    log_probs:  (2, B, T', V), normalized; what stands beyond H_lens (B,) doesn't matter, if it is
                finite
    returns     scalar
    """
    divergence = F.kl_div(
        log_probs, log_probs.detach().flip(0), reduction="none", log_target=True
    ).sum(-1)
    return (
        divergence.masked_fill(length_mask(H_lens, log_probs.size(2)), 0).sum() / 2
    )  # divergence (2, B, T')


def count_correct(logits: Tensor, targets: Tensor) -> Tensor:
    """Number of real targets that the logits (B, U, V) rank first."""
    return ((logits.argmax(-1) == targets) & (targets != PADDING)).sum()


def add_end(Y: Tensor, Y_lens: Tensor, eos: int) -> Tensor:
    """Targets of the decoder: Y (B, U) and then <eos>, (B, U + 1), padded with PADDING."""
    position = torch.arange(Y.size(1) + 1, device=Y.device)
    targets = F.pad(Y, (0, 1), value=PADDING).masked_fill(position > Y_lens.unsqueeze(1), PADDING)
    return targets.masked_fill(position == Y_lens.unsqueeze(1), eos)


def add_start(Y: Tensor, Y_lens: Tensor, sos: int) -> Tensor:
    """Inputs of the decoder: <sos> and then Y (B, U), (B, U + 1), padded with <sos>, a valid id."""
    position = torch.arange(1, Y.size(1) + 1, device=Y.device)
    return F.pad(Y.masked_fill(position > Y_lens.unsqueeze(1), sos), (1, 0), value=sos)


@dataclass(frozen=True)
class Scored:
    """What a model has made of a training batch, for terms to compute from.

    H, H_lens:  (N, T', D) and (N,)
    layers:     number of an encoder layer → H behind it, (N, T', D), of those that terms need
    log_probs:  (N, T', V), CTC's, of H
    logits:     (N, U + 1, V), of the decoder
    Y, Y_lens:  (N, U) and (N,)
    views:      1, or 2 of each utterance
    ctc_log_probs:  H → log_probs
    align:      log_probs → CTC's loss; in a flat start that of equal alignments
    """

    H: Tensor
    H_lens: Tensor
    layers: Mapping[int, Tensor]
    log_probs: Tensor
    logits: Tensor
    Y: Tensor
    Y_lens: Tensor
    views: int
    ctc_log_probs: Callable[[Tensor], Tensor]
    align: Callable[[Tensor], Tensor]


class Term(Settings):
    """A term of the loss in training. As a setting of the model it is there where its weight isn't 0.

    name:   in logs, curves and metrics.jsonl
    views:  of a batch that it needs, each by other masks of SpecAugment
    """

    name: ClassVar[str]
    views: ClassVar[int] = 1
    weight: float = Field(ge=0.0)

    @property
    def encoder_layers(self) -> Sequence[int]:
        """Encoder layers, from 1, whose H it needs."""
        return ()

    @abstractmethod
    def compute(self, scored: Scored) -> Tensor | None:
        """Compute the term: a sum over the batch, the mean of its views; None if this batch can't have it."""

    def join(self, ctc: Tensor, value: Tensor) -> Tensor:
        """Add the term to CTC, which `ctc_weight` weighs afterwards."""
        return ctc + self.weight * value


class IntermediateCTC(Term):
    """CTC of encoder layers, by the head of the last (Lee and Watanabe 2021): (1 - weight) · CTC + weight · theirs."""

    name = "inter"
    layers: list[int] = Field(min_length=1)  # from 1; their losses are averaged
    weight: float = Field(0.3, ge=0.0, lt=1.0)  # 0 = none

    @property
    def encoder_layers(self) -> Sequence[int]:
        """The chosen ones."""
        return self.layers

    def compute(self, scored: Scored) -> Tensor:
        """The mean of the layers' CTC."""
        s, losses = scored, []
        for n in self.layers:
            log_probs = s.ctc_log_probs(s.layers[n])  # (N, T', V)
            losses.append(s.align(log_probs) / s.views)
        return reduce(torch.add, losses) / len(losses)

    def join(self, ctc: Tensor, value: Tensor) -> Tensor:
        """Take its share of CTC."""
        return (1 - self.weight) * ctc + self.weight * value


class Consistency(Term):
    """Two views of each batch by SpecAugment, whose CTC posteriors are to agree (CR-CTC, Yao et al. 2025).

    A step takes twice the time and memory. The paper masks 2.5 times as much time as without:
    features.specaugment.
    """

    name, views = "cr", 2
    weight: float = Field(0.2, ge=0.0)  # of the consistency, beside CTC's 1; 0 = none, and one view

    def compute(self, scored: Scored) -> Tensor | None:
        """The divergence of two views; None where nothing is masked, and there is one view."""
        if scored.views == 1:
            return None
        return consistency(scored.log_probs.unflatten(0, (2, -1)), scored.H_lens.chunk(2)[0])


def terms_of(settings: Settings) -> dict[str, Term]:
    """Return the terms that a model's settings have, by the setting's name; those of weight 0 don't count."""
    return {name: value for name, value in settings if isinstance(value, Term) and value.weight > 0}
