"""Adam and AdamW."""

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from asr.config import Settings
from asr.training.distributed.group import Group

BETA1 = 0.9  # of the gradient's running mean


class AdamFamily(Settings):
    """What Adam and its kin have in common; betas and eps are the Transformer paper's, section 5.3."""

    shards: ClassVar[bool] = True  # whether it can work on pieces of matrices (FSDP2)
    lr: float = Field(gt=0)
    beta2: float = Field(0.98, ge=0, lt=1)
    eps: float = Field(1e-9, gt=0)
    weight_decay: float = Field(0.01, ge=0)

    def arguments(self) -> dict[str, Any]:
        """Return what PyTorch's classes take."""
        return {"lr": self.lr, "betas": (BETA1, self.beta2), "eps": self.eps, "fused": True}


class AdamSettings(AdamFamily):
    """Adam (Kingma and Ba 2015)."""

    kind: Literal["adam"]
    weight_decay: float = Field(0.0, ge=0)

    def build(self, model: nn.Module, group: Group = Group()) -> torch.optim.Optimizer:  # noqa: B008 - frozen
        """Make the optimizer of a model's parameters."""
        return torch.optim.Adam(parameter_groups(model, self), **self.arguments())


class AdamWSettings(AdamFamily):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    kind: Literal["adamw"]

    def build(self, model: nn.Module, group: Group = Group()) -> torch.optim.Optimizer:  # noqa: B008 - frozen
        """Make the optimizer of a model's parameters."""
        return torch.optim.AdamW(parameter_groups(model, self), **self.arguments())


def trained(model: nn.Module) -> list[Tensor]:
    """List the parameters that aren't frozen."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def parameter_groups(
    model: nn.Module, settings: AdamFamily, apart: Iterable[Tensor] = ()
) -> list[dict[str, Any]]:
    """Divide trained parameters into those that decay, and those of one dimension, biases and norms, which don't.

    apart    parameters that are left out
    returns  groups with the `initial_lr` that schedules multiply, as `by_rate` has them
    """
    left_out = set(map(id, apart))
    parameters = [p for p in trained(model) if id(p) not in left_out]
    weights, others = (
        [p for p in parameters if p.dim() > 1],
        [p for p in parameters if p.dim() <= 1],
    )
    return [
        {**group, "weight_decay": decay}
        for part, decay in ((weights, settings.weight_decay), (others, 0.0))
        for group in by_rate(model, part, settings.lr)
    ]


def by_rate(model: nn.Module, parameters: Iterable[Tensor], lr: float) -> list[dict[str, Any]]:
    """Divide parameters by what `rates` of a model's modules say; those without a rate of their own come first.

    returns  groups with `initial_lr`, and with `frozen_steps` where they are frozen at first
    """
    rates: dict[Any, tuple[float, int]] = {}
    for module in model.modules():
        own: Any = getattr(module, "rates", dict)
        rates |= own()
    groups: dict[tuple[float, int], list[Tensor]] = {(1.0, 0): []}
    for parameter in parameters:
        groups.setdefault(rates.get(parameter, (1.0, 0)), []).append(parameter)
    return [
        {"params": part, "initial_lr": factor * lr} | ({"frozen_steps": steps} if steps else {})
        for (factor, steps), part in groups.items()
    ]
