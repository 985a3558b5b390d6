"""Low-rank adaptation (Hu et al. 2021, arXiv 2106.09685): linear maps whose own weights stay as they are.

r rank, D_in and D_out widths.
"""

import math
from typing import Literal, get_args

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from asr.config import Settings
from asr.errors import UserError

Target = Literal[  # names of all families of pretrained encoders
    "q_proj",
    "k_proj",
    "v_proj",
    "out_proj",
    "o_proj",
    "intermediate_dense",
    "output_dense",
    "linear_q",
    "linear_k",
    "linear_v",
    "linear_out",
    "linear1",
    "linear2",
    "fc1",
    "fc2",
]


class LoRASettings(Settings):
    """Which linear maps of the layers are adapted, and by how much."""

    rank: int = Field(8, gt=0, le=1024)
    alpha: float = Field(16.0, gt=0)  # the product of the matrices is scaled by alpha / rank
    targets: list[Target] = Field(["q_proj", "v_proj"], min_length=1)

    def adapt(self, layers: nn.ModuleList) -> None:
        """Replace the maps of these names by `LoRALinear`s.

        raises   UserError for a name that none of the layers' maps has
        """
        maps = [
            (parent, name, child)
            for parent in layers.modules()
            for name, child in parent.named_children()
            if isinstance(child, nn.Linear)
        ]
        names = {name for _, name, _ in maps}
        if unknown := [name for name in self.targets if name not in names]:
            known = ", ".join(sorted(names & {*get_args(Target)}))
            raise UserError(
                f"model.encoder.lora.targets: got {', '.join(unknown)}, which this encoder doesn't have, expected some "
                f"of {known}"
            )
        for parent, name, child in maps:
            if name in self.targets:
                setattr(parent, name, LoRALinear(child, self.rank, self.alpha / self.rank))


class LoRALinear(nn.Module):
    """A linear map of weight W + scale · B A, which has W's name in a state, too.

    `weight` is the sum, because some attentions read their maps' weights instead of calling them:
    WavLM's does, and what only replaces `forward` would change nothing there. It isn't an
    `nn.Linear`, since its weight is computed: Muon, say, can't train it.
    """

    bias: Tensor | None

    def __init__(self, linear: nn.Linear, rank: int, scale: float):
        super().__init__()
        self.scale = scale
        self.register_parameter("bias", linear.bias)
        self._parameters["weight"] = nn.Parameter(linear.weight, requires_grad=False)  # W
        self.A = nn.Parameter(linear.weight.new_empty(rank, linear.in_features))  # (r, D_in)
        self.B = nn.Parameter(linear.weight.new_zeros(linear.out_features, rank))  # (D_out, r)
        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))  # as Hu et al.'s code

    @property
    def weight(self) -> Tensor:
        """W + scale · B A, (D_out, D_in)."""
        W = self._parameters["weight"]
        assert W is not None
        return W + self.scale * (self.B @ self.A)

    def forward(self, X: Tensor) -> Tensor:
        """X (..., D_in) → (..., D_out)"""
        return F.linear(X, self.weight, self.bias)
