"""What automata have in common: tables of sorted arcs, found by binary search, and one number as a hypothesis's state.

B utterances, K hypotheses of each, A arcs.
"""

from dataclasses import dataclass, fields, replace
from typing import TypeVar

import torch
from torch import Tensor

from asr.ops import gather_beams

T = TypeVar("T", bound="Tables")


@dataclass(frozen=True)
class Tables:
    """Base of a dataclass whose tensors move together."""

    def to(self: T, device: torch.device | str) -> T:
        """Move the tensors to a device."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(
            self, **{name: x.to(device) for name, x in values.items() if isinstance(x, Tensor)}
        )


def look_up(keys: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Find wanted (…) in keys (A,), sorted, one or more: positions (…), found (…) bool."""
    at = torch.searchsorted(keys, wanted.contiguous()).clamp(max=len(keys) - 1)
    return at, keys[at] == wanted


class TensorState:
    """Base of a scorer whose state is one tensor, (B, K)."""

    def reorder(self, state: Tensor, parents: Tensor) -> Tensor:
        """Follow the hypotheses' parents, (B, K')."""
        return gather_beams(state, parents)

    def select(self, state: Tensor, utterances: Tensor) -> Tensor:
        """Keep some utterances, (B',)."""
        return state[utterances]

    def merge(self, state: Tensor, other: Tensor) -> Tensor:
        """Put the other's utterances after this state's."""
        return torch.cat([state, other])
