"""Adam and AdamW."""

from typing import Literal

import torch
from pydantic import Field
from torch import nn

from asr.config import Settings


class AdamSettings(Settings):
    """Adam (Kingma and Ba 2015); betas and eps are the paper's of the Transformer, section 5.3."""

    kind: Literal["adam"]
    lr: float = Field(gt=0)
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.98, ge=0, lt=1)
    eps: float = Field(1e-9, gt=0)
    weight_decay: float = Field(0.0, ge=0)


class AdamWSettings(AdamSettings):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019), on matrices only."""

    kind: Literal["adamw"]
    weight_decay: float = Field(0.01, ge=0)


def optimizer(settings: AdamSettings | AdamWSettings, model: nn.Module) -> torch.optim.Optimizer:
    """Build the optimiser of a model's parameters; biases, norms and embeddings of one dimension don't decay."""
    weights = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
    others = [p for p in model.parameters() if p.requires_grad and p.dim() <= 1]
    groups = [{"params": weights, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0}]
    groups = [group | {"initial_lr": settings.lr} for group in groups]  # what schedules multiply
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[settings.kind]
    return kind(groups, lr=settings.lr, betas=(settings.beta1, settings.beta2), eps=settings.eps, fused=True)
