"""What every search returns."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Hypothesis:
    """One transcript of an utterance.

    tokens:  label ids, without blank, start and end symbols
    score:   weighted sum of the scorers' log-probabilities, natural logarithm, the end symbol's included
    scores:  of each scorer, before weighting
    ended:   False if the length limit, not the end symbol, ended it: the end was none of the best continuations
    """

    tokens: list[int]
    score: float
    scores: dict[str, float] = field(default_factory=dict)
    ended: bool = True
