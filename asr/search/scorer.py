"""What the beam search asks of a scorer, and what every search returns.

Scorers: attention decoder, CTC prefix, language model, hotwords, and what others add. A command
reads their options for its help. Modules that declare them don't import torch until it is needed.

B utterances, K hypotheses of each, V vocabulary, C candidate labels of a hypothesis.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from asr.search.neural import Network


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


HEAVIEST = 1e6  # weight of a scorer


class Scorer(Protocol):
    """Score label sequences, grown label by label, in natural logarithms. All that changes is in the state.

    full     True: `score` can be asked for all V labels at once; False: for candidates that full
             scorers pre-select
    ceiling  the most that one label, or the end, can add: 0 for probabilities; it tells the search
             when to stop
    """

    full: bool
    ceiling: float

    def start(self, H: Tensor, H_lens: Tensor, /) -> Any:
        """Make the state of one empty hypothesis for each utterance; H (B, T, D), H_lens (B,)."""

    def score(self, state: Any, candidates: Any, /) -> Tensor:
        """Return what each next label adds: candidates (B, K, C) → (B, K, C); None, of a full scorer → all, (B, K, V).

        The end symbol's score is that of the hypothesis being complete.
        """

    def reorder(self, state: Any, parents: Tensor, /) -> Any:
        """Let hypothesis k continue what was hypothesis parents[b, k]; parents (B, K') int.

        `step` follows, perhaps after `select` and `merge`.
        """

    def select(self, state: Any, utterances: Tensor, /) -> Any:
        """Keep some utterances of the batch; utterances (B',) int."""

    def merge(self, state: Any, other: Any, /) -> Any:
        """Put the other's utterances after this state's; both have K hypotheses.

        The search goes on from the result alone, so the memory of both may be overwritten.
        """

    def step(self, y: Tensor, state: Any, /) -> Any:
        """Let every hypothesis read a label, y (B, K) int."""


class Stateless:
    """Base of a scorer without memory: what a label adds doesn't depend on those before."""

    def start(self, *_: object) -> None:
        """Return no state."""

    reorder = select = merge = step = start


class Tokens(Protocol):
    """What a scorer needs of a tokenizer."""

    def symbols(self) -> list[str]:
        """Return the names of all V ids, the blank first, the start/end symbol last."""

    def encode(self, text: str, where: str) -> list[int]:
        """Turn a text into ids; `where` it stands is for the error."""


@dataclass(frozen=True)
class ScorerContext:
    """What a scorer may be made from.

    sos_eos       id of the start/end symbol
    load_network  loads a language model over the tokenizer's labels from its folder
    """

    tokenizer: Tokens
    sos_eos: int
    device: torch.device
    load_network: Callable[[str], Network]


@dataclass(frozen=True)
class ScorerKind:
    """A scorer that options add to a search.

    name     among the scores of a hypothesis
    switch   the option that adds it, unless it is None or 0
    weight   the option that is its weight; None: the weight is 1
    load     makes the scorer from all options but the weight
    """

    name: str
    switch: str
    weight: str | None
    load: Callable[[Any, ScorerContext], Scorer]


@dataclass(frozen=True, kw_only=True)
class ScorerOptions:
    """Base of a scorer's options, which `SearchOptions` inherits; see length.py."""

    scorer: ClassVar[ScorerKind]
