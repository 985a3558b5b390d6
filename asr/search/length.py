"""A bonus for every label, against deletions; a penalty if it is negative, against insertions."""

from torch import Tensor


class LengthBonus:
    """`bonus` nats a label, none for the end."""

    full = False

    def __init__(self, bonus: float, sos_eos: int):
        self.bonus, self.sos_eos, self.ceiling = bonus, sos_eos, max(0.0, bonus)

    def start(self, H: Tensor, H_lens: Tensor) -> None:
        """There is nothing to remember."""

    def score(self, state: None, candidates: Tensor) -> Tensor:
        """(B, K, C)"""
        return (candidates != self.sos_eos) * self.bonus

    def reorder(self, state: None, parents: Tensor) -> None:
        """Nothing changes."""

    def select(self, state: None, utterances: Tensor) -> None:
        """Nothing changes."""

    def merge(self, state: None, other: None) -> None:
        """Nothing changes."""

    def step(self, y: Tensor, state: None) -> None:
        """Nothing changes."""
