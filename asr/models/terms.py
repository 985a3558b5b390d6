"""Terms of the loss beside CTC and cross-entropy. Each is a class: its settings, its weight, its name and its formula.

B utterances, N = views · B rows, the second view behind the first; U labels, V vocabulary, T'
encoder frames, D width.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from asr.config import Settings
from asr.models import loss as criterion


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
    align:      (log_probs, H_lens, Y, Y_lens) → CTC's loss; in a flat start that of equal
                alignments
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
    align: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


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
            losses.append(s.align(log_probs, s.H_lens, s.Y, s.Y_lens) / s.views)
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
        return criterion.consistency(
            scored.log_probs.unflatten(0, (2, -1)), scored.H_lens.chunk(2)[0]
        )


def terms_of(settings: Settings) -> dict[str, Term]:
    """Return the terms that a model's settings have, by the setting's name; those of weight 0 don't count."""
    return {name: value for name, value in settings if isinstance(value, Term) and value.weight > 0}
