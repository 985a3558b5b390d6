"""Position-wise feed-forward network ("Attention Is All You Need", section 3.3)."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from asr.nn.dropout import Dropout, relu_dropout

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "swish": F.silu,
}


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, the same at every position; other activations by name."""

    def __init__(self, d_model: int, ff: int, dropout: float = 0.0, activation: str = "relu"):
        super().__init__()
        self.inner = nn.Linear(d_model, ff)
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)
        self.outer = nn.Linear(ff, d_model)

    def forward(self, X: Tensor) -> Tensor:
        """(B, T, D) → (B, T, D)"""
        return self.outer(self._activate(self.inner(X)))

    def _activate(self, Z: Tensor) -> Tensor:
        if self.activation is F.relu and self.training:
            return relu_dropout(Z, self.dropout.p)
        return self.dropout(self.activation(Z))
