"""What the beam search asks of a scorer: the attention decoder, CTC prefix scores, and what others may add.

B utterances, K hypotheses of each, V vocabulary, C candidate labels of a hypothesis.
"""

from typing import Any, Protocol

from torch import Tensor


class Scorer(Protocol):
    """Log-probabilities of label sequences, grown label by label.

    full   True: `score` is asked for all V labels at once; False: for candidates that the full scorers pre-select
    """

    full: bool

    def start(self, K: int) -> Any:
        """State of B × K hypotheses that have read nothing."""

    def step(self, y: Tensor, state: Any) -> Any:
        """Let every hypothesis read a label: y (B, K) int, the start symbol first."""

    def score(self, state: Any, candidates: Tensor | None) -> Tensor:
        """Natural log-probability of next labels: of all, (B, K, V), or of candidates (B, K, C), alike (B, K, C).

        The end symbol's is that of the hypothesis being complete.
        """

    def reorder(self, state: Any, parents: Tensor) -> Any:
        """Let hypothesis k go on from what was hypothesis parents[b, k]; parents (B, K) int."""

    def select(self, state: Any, utterances: Tensor) -> Any:
        """Keep some utterances of the batch; utterances (B',) int. Later calls are about them alone."""
