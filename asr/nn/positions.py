"""Sinusoidal positions ("Attention Is All You Need", section 3.5), of any length."""

import math

import torch
from torch import Tensor, nn

from asr.nn.dropout import Dropout


def sinusoids(T: int, d_model: int, start: int = 0) -> Tensor:
    """PE[t, 2i] = sin(t / 10000^(2i / D)), PE[t, 2i + 1] = cos(t / 10000^(2i / D)) for t = start, start + 1, …

    returns  (T, D) float32, computed in float64
    """
    t = torch.arange(start, start + T, dtype=torch.float64).unsqueeze(1)  # (T, 1)
    angles = t * torch.exp(torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10000.0) / d_model))
    table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)  # (T, D or D + 1)
    return table[:, :d_model].float()


class ScaledPositions(nn.Module):
    """X · √D + PE, then dropout: the input of both stacks (sections 3.4 and 3.5)."""

    def __init__(self, d_model: int, dropout: float = 0.0):
        super().__init__()
        self.d_model, self.dropout = d_model, Dropout(dropout)
        self.register_buffer("table", sinusoids(512, d_model), persistent=False)

    def forward(self, X: Tensor, start: int = 0) -> Tensor:
        """Add positions start, start + 1, … to X (B, T, D)."""
        T = start + X.size(1)
        return self.dropout(X * math.sqrt(self.d_model) + self._rows(T)[start:T].to(X.dtype))  # (B, T, D)

    def at(self, X: Tensor, positions: Tensor, longest: int) -> Tensor:
        """Add position positions[b], at most `longest`, to all of X[b]; X (B, K, D), positions (B,)."""
        return self.dropout(X * math.sqrt(self.d_model) + self._rows(longest + 1)[positions].unsqueeze(1).to(X.dtype))

    def _rows(self, T: int) -> Tensor:
        """The table, grown to T rows or more."""
        if self.table.size(0) < T:
            self.table = sinusoids(2 * T, self.d_model).to(self.table.device)
        return self.table


class ScaledInput(nn.Module):
    """X · √D, then dropout: the layers' input where positions are in the attention (relative.py)."""

    def __init__(self, d_model: int, dropout: float = 0.0):
        super().__init__()
        self.d_model, self.dropout = d_model, Dropout(dropout)

    def forward(self, X: Tensor, start: int = 0) -> Tensor:
        """X (B, T, D) → (B, T, D), wherever it starts"""
        return self.dropout(X * math.sqrt(self.d_model))
