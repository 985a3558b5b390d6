"""Detect loops of attention decoders, which occur on silence, noise and unusual speech."""

import functools

import torch
from torch import Tensor

from asr.ops import BLANK

PERIOD, TIMES = 8, 10  # a loop: up to 8 labels, repeated 10 times in a row


def looping(Y: Tensor) -> Tensor:
    """Tell which hypotheses end in a loop: Y (B, K, U), blanks on the left → (B, K) bool."""
    periods = min(PERIOD, Y.size(2) // TIMES)
    if not periods:
        return torch.zeros_like(Y[..., :1], dtype=torch.bool).any(2)
    now, before = (
        index.to(Y.device) for index in _pairs(periods)
    )  # (periods, PERIOD · (TIMES - 1))
    y = Y[..., now]  # (B, K, periods, pairs)
    return ((y == Y[..., before]) & (y != BLANK)).all(3).any(2)


@functools.cache
def _pairs(periods: int) -> tuple[Tensor, Tensor]:
    """Index pairs of labels, from the end, that are equal in a loop; shorter rows repeat pairs."""
    rows = [
        [-1 - n % (p * (TIMES - 1)) for n in range(periods * (TIMES - 1))]
        for p in range(1, periods + 1)
    ]
    now = torch.tensor(rows)
    return now, now - torch.arange(1, periods + 1).unsqueeze(1)
