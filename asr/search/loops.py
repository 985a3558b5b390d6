"""Hypotheses that go round in a loop, as attention decoders do on silence, noise and speech unlike their training's."""

import functools

import torch
from torch import Tensor

BLANK = 0
PERIOD, TIMES = 8, 10  # a loop is a run of up to so many labels that comes so many times in a row


def looping(Y: Tensor) -> Tensor:
    """Whether the last labels of hypotheses are a loop: Y (B, K, U), padded with blanks on the left → (B, K) bool."""
    periods = min(PERIOD, Y.size(2) // TIMES)
    if not periods:
        return torch.zeros_like(Y[..., :1], dtype=torch.bool).any(2)
    now, before = (index.to(Y.device) for index in _pairs(periods))  # (periods, PERIOD · (TIMES - 1))
    y = Y[..., now]  # (B, K, periods, pairs)
    return ((y == Y[..., before]) & (y != BLANK)).all(3).any(2)


@functools.cache
def _pairs(periods: int) -> tuple[Tensor, Tensor]:
    """Places, counted from the end, of labels that are the same in a loop; a shorter period's are repeated."""
    rows = [[-1 - n % (p * (TIMES - 1)) for n in range(periods * (TIMES - 1))] for p in range(1, periods + 1)]
    now = torch.tensor(rows)
    return now, now - torch.arange(1, periods + 1).unsqueeze(1)
