"""What the beam search asks of a scorer: attention decoder, CTC prefix, language model, hotwords, and what others add.

B utterances, K hypotheses of each, V vocabulary, C candidate labels of a hypothesis.
"""

from typing import Any, Protocol

from torch import Tensor


class Scorer(Protocol):
    """Scores of label sequences, grown label by label, as natural logarithms. All that changes is in the state.

    full     True: `score` can be asked for all V labels at once; False: for candidates that full scorers pre-select
    ceiling  the most that one label, or the end, can add: 0 for probabilities; it tells the search when to stop
    """

    full: bool
    ceiling: float

    def start(self, H: Tensor, H_lens: Tensor) -> Any:
        """State of one hypothesis of each utterance, which has read the start symbol; H (B, T, D), H_lens (B,)."""

    def score(self, state: Any, candidates: Tensor | None) -> Tensor:
        """What next labels add: all, (B, K, V), or candidates (B, K, C), alike (B, K, C).

        The end symbol's is that of the hypothesis being complete.
        """

    def reorder(self, state: Any, parents: Tensor) -> Any:
        """Let hypothesis k go on from what was hypothesis parents[b, k]; parents (B, K') int.

        `step` follows, before it perhaps `select` and `merge`.
        """

    def select(self, state: Any, utterances: Tensor) -> Any:
        """Keep some utterances of the batch; utterances (B',) int."""

    def merge(self, state: Any, other: Any) -> Any:
        """The utterances of both, the other's behind; both have K hypotheses."""

    def step(self, y: Tensor, state: Any) -> Any:
        """Let every hypothesis read a label, y (B, K) int."""
