"""What the automata of the search have in common: arcs in sorted keys, tables, and states that are numbers (B, K)."""

from dataclasses import fields, replace
from typing import TypeVar

import torch
from torch import Tensor

from asr.nn.gather import follow

Tables = TypeVar("Tables")


def look_up(keys: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Find keys in a table: keys (A,) int64, sorted, at least one; wanted (…) → positions (…), found (…) bool."""
    at = torch.searchsorted(keys, wanted.contiguous()).clamp(max=len(keys) - 1)
    return at, keys[at] == wanted


def moved(tables: Tables, device: torch.device | str) -> Tables:
    """A dataclass of tables with its tensors on a device."""
    tensors = {field.name: getattr(tables, field.name) for field in fields(tables) if field.type is Tensor}
    return replace(tables, **{name: tensor.to(device) for name, tensor in tensors.items()})


def select(state: Tensor, utterances: Tensor) -> Tensor:
    """Keep some utterances, (B',), of a scorer's state (B, K)."""
    return state[utterances]


def merge(state: Tensor, other: Tensor) -> Tensor:
    """Put other's utterances behind."""
    return torch.cat([state, other])


def reorder(state: Tensor, parents: Tensor) -> Tensor:
    """Follow the hypotheses' parents, (B, K')."""
    return follow(state, parents)
