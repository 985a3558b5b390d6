"""Positions: sinusoids in the input ("Attention Is All You Need", section 3.5), or relative ones in the attention.

Relative are Transformer-XL's (Dai et al. 2019) and rotary ones (Su et al. 2021). A module of these,
given to `MultiHeadAttention`, takes queries and keys to (queries, keys, bias of the scores). The
queries are the last of the keys' frames: all of them, or those of a stream's newest chunk.

B batch, T frames, D model width, H heads, Tq query frames, Tk key frames, d_k width of a head's
keys.
"""

import math

import torch
from torch import Tensor, nn

from asr.nn.layers import Dropout


def sinusoids(T: int, d_model: int, start: int = 0) -> Tensor:
    """Compute the sinusoids of t = start, start + 1, …: (T, D) float32."""
    return sinusoids_at(torch.arange(start, start + T), d_model)


def sinusoids_at(t: Tensor, d_model: int) -> Tensor:
    """PE[t, 2i] = sin(t / 10000^(2i / D)), PE[t, 2i + 1] = cos(t / 10000^(2i / D)).

    t:       (…) int
    returns  (…, D) float32, computed in float64
    """
    rates = torch.arange(0, d_model, 2, dtype=torch.float64, device=t.device)  # (D / 2,)
    angles = t.double().unsqueeze(-1) * torch.exp(rates * (-math.log(10000.0) / d_model))
    rows = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)  # (…, D or D + 1)
    return rows[..., :d_model].float()


class ScaledPositions(nn.Module):
    """X · √D + PE, then dropout: the input of both stacks (sections 3.4 and 3.5)."""

    def __init__(self, d_model: int, dropout: float = 0.0):
        super().__init__()
        self.d_model, self.dropout = d_model, Dropout(dropout)
        self.table: Tensor
        self.register_buffer("table", sinusoids(512, d_model), persistent=False)

    def forward(self, X: Tensor, start: Tensor | None = None) -> Tensor:
        """Add positions start[b], start[b] + 1, … to X[b], or 0, 1, …; X (B, T, D), start (B,) int.

        Those of a start are computed, however far out: a stream of any length grows no table.
        """
        T = X.size(1)
        if start is None:
            rows = self._rows(T)[:T]  # (T, D)
        else:
            t = start.unsqueeze(1) + torch.arange(T, device=start.device)  # (B, T)
            rows = sinusoids_at(t, self.d_model)  # (B, T, D)
        return self.dropout(X * math.sqrt(self.d_model) + rows.to(X.dtype))  # (B, T, D)

    def at(self, X: Tensor, positions: Tensor, longest: int) -> Tensor:
        """Add position positions[b], at most `longest`, to all of X[b]; X (B, K, D), positions (B,)."""
        return self.dropout(
            X * math.sqrt(self.d_model)
            + self._rows(longest + 1)[positions].unsqueeze(1).to(X.dtype)
        )

    def _rows(self, T: int) -> Tensor:
        """The table, grown to T rows or more."""
        table = self.table  # which another thread may replace
        if table.size(0) < T:
            self.table = table = sinusoids(2 * T, self.d_model).to(table)
        return table


class ScaledInput(nn.Module):
    """X · √D, then dropout: the layers' input where positions are in the attention."""

    def __init__(self, d_model: int, dropout: float = 0.0):
        super().__init__()
        self.d_model, self.dropout = d_model, Dropout(dropout)

    def forward(self, X: Tensor, start: Tensor | None = None) -> Tensor:
        """X (B, T, D) → (B, T, D), wherever it starts"""
        return self.dropout(X * math.sqrt(self.d_model))


class Sinusoids(nn.Module):
    """A table of sinusoids of the positions -n..n that grows when more are needed; no weight."""

    def __init__(self, d_model: int, n: int = 512):
        super().__init__()
        self.table: Tensor
        self.register_buffer("table", sinusoids(2 * n + 1, d_model, -n), persistent=False)

    def forward(self, first: int, last: int) -> Tensor:
        """Rows of the positions first..last: (last - first + 1, D)."""
        table, reach = self.table, max(-first, last)  # another thread may replace the table
        if reach > len(table) // 2:
            with torch.inference_mode(False):  # so that training can go on with it
                table = sinusoids(4 * reach + 1, table.size(1), -2 * reach).to(table)
            self.table = table
        n = len(table) // 2
        return table[n + first : n + last + 1]


class RelativePositions(nn.Module):
    """Scores (q_i + u)·k_j + (q_i + v)·W r_{i-j}, r the sinusoids of the distance (Dai et al. 2019, section 3.3).

    table:  sinusoids of width D, shared by the layers; u, v begin as 0
    """

    def __init__(self, d_model: int, heads: int, d_k: int, table: Sinusoids):
        super().__init__()
        self.table = table
        self.project = nn.Linear(d_model, heads * d_k, bias=False)
        self.u, self.v = (nn.Parameter(torch.zeros(heads * d_k)) for _ in range(2))

    def forward(self, Q: Tensor, K: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Q (B, H, Tq, d_k), K (B, H, Tk, d_k) → Q + u, K, bias (B, H, Tq, Tk), scaled as the scores are"""
        heads, Tq, Tk = Q.size(1), Q.size(2), K.size(2)
        distances = self.table(-Tq, Tk - 1).flip(
            0
        )  # (Tk + Tq, D), the farthest first; the last for skew's sake
        R = self.project(distances).unflatten(1, (heads, -1)).transpose(0, 1)  # (H, Tk + Tq, d_k)
        u, v = (bias.to(Q.dtype).view(heads, 1, -1) for bias in (self.u, self.v))  # (H, 1, d_k)
        far = (Q + v) / math.sqrt(Q.size(3))  # (B, H, Tq, d_k)
        scores = far @ R.transpose(1, 2)  # (B, H, Tq, Tk + Tq)
        return Q + u, K, skew(scores)


def skew(scores: Tensor) -> Tensor:
    """Move row i by Tq - 1 - i to the left, without copying: from scores by distance to scores by key.

    scores:  (B, H, Tq, Tk + Tq), contiguous
    returns  (B, H, Tq, Tk); for Tq = 3, Tk = 4, where n is the distance from the query to the key
             before it:

        3  2  1  0 -1 -2 -3        1  0 -1 -2
        3  2  1  0 -1 -2 -3   →    2  1  0 -1
        3  2  1  0 -1 -2 -3        3  2  1  0
    """
    Tq, L = scores.shape[2:]
    rows = scores.flatten(2)[:, :, Tq - 1 : Tq * L - 1]  # (B, H, Tq · (L - 1))
    return rows.unflatten(2, (Tq, L - 1))[
        ..., : L - Tq
    ]  # a row shorter by one begins one further to the left


class RotaryPositions(nn.Module):
    """Queries and keys turned by angles that grow with their position: scores depend on distances (RoFormer)."""

    def __init__(self, table: Sinusoids):
        super().__init__()
        self.table = table

    def forward(self, Q: Tensor, K: Tensor) -> tuple[Tensor, Tensor, None]:
        """Q (B, H, Tq, d_k), K (B, H, Tk, d_k) → the same shapes, no bias"""
        Tq, Tk = Q.size(2), K.size(2)
        return rotate(Q, self.table(Tk - Tq, Tk - 1)), rotate(K, self.table(0, Tk - 1)), None


def rotate(X: Tensor, table: Tensor) -> Tensor:
    """Turn each pair (x_2i, x_2i+1) at position t by the angle t / 10000^(2i / d_k) (Su et al. 2021, equation 34).

    X:       (B, H, T, d_k), d_k even
    table:   (T, d_k), sinusoids of the positions: the angles' sines and cosines in turn
    """
    sin, cos, x, y = (
        table[:, 0::2],
        table[:, 1::2],
        X[..., 0::2],
        X[..., 1::2],
    )  # (T, d_k / 2), (B, H, T, d_k / 2)
    return torch.stack([x * cos - y * sin, x * sin + y * cos], dim=-1).flatten(3).to(X.dtype)


def attention_positions(
    positions: str, d_model: int, heads: int, d_k: int | None, layers: int
) -> list[nn.Module | None]:
    """Make the positions of each layer's attention, with one table for all; None where they are in the input."""
    d_k = d_k or d_model // heads
    if positions == "relative":
        table = Sinusoids(d_model)
        return [RelativePositions(d_model, heads, d_k, table) for _ in range(layers)]
    if positions == "rotary":
        return [RotaryPositions(Sinusoids(d_k))] * layers
    return [None] * layers
