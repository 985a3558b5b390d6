"""What every search returns."""

import math
from dataclasses import dataclass, field
from typing import Literal

Reason = Literal["end", "limit", "loop"]


@dataclass(frozen=True)
class Hypothesis:
    """One transcript of an utterance.

    tokens        label ids, without blank, start and end symbols
    score         weighted sum of the scorers' scores, natural logarithm, the end symbol's included
    scores        of each scorer, before weighting
    reason        what ended it: the "end" symbol among the best continuations, the length "limit",
                  or a "loop" of labels that the search stopped
    confidences   of each token, 0 to 1: its share among the candidates of its hypothesis, by all
                  scorers as weighted
    confidence    the geometric mean of these and of the end symbol's; for CTC's greedy search, of
                  all frames' best. Rescoring leaves both unchanged
    """

    tokens: list[int]
    score: float
    scores: dict[str, float] = field(default_factory=dict)
    reason: Reason = "end"
    confidences: list[float] = field(default_factory=list)
    confidence: float = math.nan
