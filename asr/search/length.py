"""The length of hypotheses: a bonus for every label, against deletions, or scores that are divided by a length.

A negative bonus is a penalty, against insertions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from asr.options import option
from asr.search.scorer import (
    HEAVIEST,
    Hypothesis,
    ScorerContext,
    ScorerKind,
    ScorerOptions,
    Stateless,
)

if TYPE_CHECKING:
    from torch import Tensor


class LengthBonus(Stateless):
    """Add `bonus` nats for every label, none for the end."""

    full = False

    def __init__(self, bonus: float, sos_eos: int):
        self.bonus, self.sos_eos, self.ceiling = bonus, sos_eos, max(0.0, bonus)

    def score(self, state: None, candidates: Tensor) -> Tensor:
        """(B, K, C)"""
        return (candidates != self.sos_eos) * self.bonus


def normalized(nbest: Sequence[Hypothesis], alpha: float) -> list[Hypothesis]:
    """Divide the scores of complete hypotheses by ((5 + labels) / 6)^alpha (Wu et al. 2016, equation 14); best first.

    The end counts as a label.
    """
    divided = [replace(h, score=h.score / ((5 + len(h.tokens) + 1) / 6) ** alpha) for h in nbest]
    return sorted(divided, key=lambda h: h.score, reverse=True)


def load(options: LengthOptions, context: ScorerContext) -> LengthBonus:
    """Make the scorer."""
    return LengthBonus(options.length_bonus, context.sos_eos)


@dataclass(frozen=True, kw_only=True)
class LengthOptions(ScorerOptions):
    """Options of the bonus."""

    scorer = ScorerKind("length", switch="length_bonus", weight=None, load=load)
    length_bonus: float = option(
        0.0, "nats per label, against deletions", least=-HEAVIEST, most=HEAVIEST
    )
