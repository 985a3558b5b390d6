"""Sorted keys: how the automata of the search keep their arcs."""

import torch
from torch import Tensor


def look_up(keys: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Find keys in a table: keys (A,) int64, sorted, at least one; wanted (…) → positions (…), found (…) bool."""
    at = torch.searchsorted(keys, wanted.contiguous()).clamp(max=len(keys) - 1)
    return at, keys[at] == wanted
