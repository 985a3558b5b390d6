"""A bonus for every label, against deletions; a penalty if it is negative, against insertions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from asr.options import option
from asr.search.scorer import (
    HEAVIEST,
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
