"""Position-wise feed-forward network ("Attention Is All You Need", section 3.3)."""

from torch import Tensor, nn

from asr.nn.dropout import Dropout

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "swish": nn.SiLU}


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, the same at every position; other activations by name."""

    def __init__(self, d_model: int, ff: int, dropout: float = 0.0, activation: str = "relu"):
        super().__init__()
        self.inner = nn.Linear(d_model, ff)
        self.activation = ACTIVATIONS[activation]()
        self.dropout = Dropout(dropout)
        self.outer = nn.Linear(ff, d_model)

    def forward(self, X: Tensor) -> Tensor:
        """(B, T, D) → (B, T, D)"""
        return self.outer(self.dropout(self.activation(self.inner(X))))
