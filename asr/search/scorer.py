"""What the beam search asks of a scorer: the attention decoder, CTC prefix scores, and what others may add.

B utterances, K hypotheses of each, V vocabulary, C candidate labels of a hypothesis.
"""

from typing import Any, Protocol

import torch
from torch import Tensor


class Scorer(Protocol):
    """Log-probabilities of label sequences, grown label by label. All that changes is in the state.

    full   True: `score` can be asked for all V labels at once; False: for candidates that full scorers pre-select
    """

    full: bool

    def start(self, y: Tensor) -> Any:
        """State of hypotheses that have read the start symbol, y (B, K) int."""

    def score(self, state: Any, candidates: Tensor | None) -> Tensor:
        """Natural log-probability of next labels: of all, (B, K, V), or of candidates (B, K, C), alike (B, K, C).

        The end symbol's is that of the hypothesis being complete. Never above 0, so that totals only fall.
        """

    def select(self, state: Any, utterances: Tensor) -> Any:
        """Keep some utterances of the batch; utterances (B',) int."""

    def reorder(self, state: Any, parents: Tensor) -> Any:
        """Let hypothesis k go on from what was hypothesis parents[b, k]; parents (B, K) int; K may change.

        `step` follows at once.
        """

    def step(self, y: Tensor, state: Any) -> Any:
        """Let every hypothesis read a label, y (B, K) int."""


def follow(x: Tensor, parents: Tensor) -> Tensor:
    """Row parents[b, k] of x[b] for every k: x (B, K, …), parents (B, K') → (B, K', …)"""
    return x[torch.arange(len(x), device=x.device).unsqueeze(1), parents]
