"""Residual connection, dropout and LayerNorm around one sublayer ("Attention Is All You Need", section 3.1 and 5.4)."""

from collections.abc import Callable

from torch import Tensor, nn

from asr.nn.dropout import Dropout


class Residual(nn.Module):
    """post-norm: LayerNorm(X + Dropout(f(X))), the paper's; pre-norm: X + Dropout(f(LayerNorm(X))).

    A pre-norm stack needs a final LayerNorm of its own, which `final_norm` makes.
    """

    def __init__(self, d_model: int, dropout: float = 0.0, norm: str = "pre"):
        super().__init__()
        self.pre = norm == "pre"
        self.norm = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)

    def forward(self, X: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """X (B, T, D), sublayer (B, T, D) → (B, T, D)"""
        if self.pre:
            return X + self.dropout(sublayer(self.norm(X)))
        return self.norm(X + self.dropout(sublayer(X)))


def final_norm(d_model: int, norm: str) -> nn.Module:
    """LayerNorm at the end of a pre-norm stack; nothing at the end of a post-norm one."""
    return nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()
