"""Rows of a batch by number."""

import torch
from torch import Tensor


def follow(x: Tensor, parents: Tensor) -> Tensor:
    """Row parents[b, k] of x[b] for every k: x (B, K, …), parents (B, K') → (B, K', …)"""
    return x[torch.arange(len(x), device=x.device).unsqueeze(1), parents]
