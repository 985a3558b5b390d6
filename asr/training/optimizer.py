"""Adam, AdamW and Muon."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from asr.config import Settings
from asr.training.blocks import blocks
from asr.training.muon import Muon
from asr.training.processes import Group
from asr.training.together import Together


class AdamSettings(Settings):
    """Adam (Kingma and Ba 2015); betas and eps are the paper's of the Transformer, section 5.3."""

    kind: Literal["adam"]
    lr: float = Field(gt=0)
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.98, ge=0, lt=1)
    eps: float = Field(1e-9, gt=0)
    weight_decay: float = Field(0.0, ge=0)


class AdamWSettings(AdamSettings):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    kind: Literal["adamw"]
    weight_decay: float = Field(0.01, ge=0)


class MuonSettings(AdamWSettings):
    """Muon (Jordan et al. 2024) for the matrices of the layers, AdamW for all else.

    A matrix's step is its momentum with all singular values made alike, so that what few examples teach is learnt as
    soon as the rest. It is as large as AdamW's: one rate serves both (Liu et al. 2025).
    """

    kind: Literal["muon"]
    momentum: float = Field(0.95, ge=0, lt=1)


def optimizer(
    settings: AdamSettings | AdamWSettings | MuonSettings,
    model: nn.Module,
    group: Group = Group(),  # noqa: B008 - frozen
) -> torch.optim.Optimizer | Together:
    """Build the optimiser of a model's parameters; what has one dimension, biases and norms, doesn't decay.

    group  the processes, which share Muon's work
    """
    matrices = layer_matrices(model) if settings.kind == "muon" else []
    taken = set(map(id, matrices))
    rest = [p for p in model.parameters() if p.requires_grad and id(p) not in taken]
    if not matrices:
        return adam(settings, rest)
    groups = [{"params": matrices, "initial_lr": settings.lr}]
    return Together(adam(settings, rest), Muon(groups, settings.lr, settings.momentum, settings.weight_decay, group))


def layer_matrices(model: nn.Module) -> list[Tensor]:
    """The trained weights of the linear maps within layers: neither embeddings nor projections to the vocabulary."""
    maps = dict.fromkeys(m for block in blocks(model) for m in block.modules() if isinstance(m, nn.Linear))
    return [linear.weight for linear in maps if linear.weight.requires_grad]


def adam(settings: AdamSettings, parameters: list[Tensor]) -> torch.optim.Optimizer:
    """Adam or AdamW."""
    weights, others = [p for p in parameters if p.dim() > 1], [p for p in parameters if p.dim() <= 1]
    groups = [{"params": weights, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0}]
    groups = [group | {"initial_lr": settings.lr} for group in groups]  # what schedules multiply
    kind = torch.optim.Adam if settings.kind == "adam" else torch.optim.AdamW
    return kind(groups, lr=settings.lr, betas=(settings.beta1, settings.beta2), eps=settings.eps, fused=True)
