"""Several optimisers as one."""

import torch
from torch import Tensor


class Together:
    """Optimisers that share a model's parameters out among them; has what training asks of an optimiser."""

    def __init__(self, *parts: torch.optim.Optimizer):
        self.parts = parts

    @property
    def param_groups(self) -> list[dict]:
        """The groups of all."""
        return [group for part in self.parts for group in part.param_groups]

    @property
    def state(self) -> dict[Tensor, dict]:
        """By parameter, what its optimiser keeps of it."""
        return {parameter: kept for part in self.parts for parameter, kept in part.state.items()}

    def step(self) -> None:
        """Change the weights."""
        for part in self.parts:
            part.step()

    def state_dict(self) -> dict:
        """What `load_state_dict` takes."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state: dict) -> None:
        """Take up a state."""
        for part, its in zip(self.parts, state["parts"], strict=True):
            part.load_state_dict(its)
