"""From an experiment to the model that its training begins with."""

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import nn

from asr import device as devices
from asr.errors import UserError
from asr.models.transfer import Transfer, load_what_fits, unlike_settings
from asr.models.weights import Limit, TooLarge
from asr.text import tokenizer as tokenizers
from asr.text.tokenizer import Tokenizer
from asr.training.layers import freeze, recompute
from asr.training.task import Experiment

# a parameter's in fp32: itself, its gradient and two moments; of a frozen one, itself
TRAINING_BYTES, FROZEN_BYTES = 16, 4


def choose_device(experiment: Experiment) -> tuple[torch.device, str]:
    """The device of the settings, and a sentence about it."""
    try:
        settings = experiment.training
        device, which = devices.choose(settings.device, apart=(settings.processes or 1) > 1)
    except ValueError as error:
        raise UserError(f"training.{error}") from None
    if settings.precision == "auto":
        which += f", in {'bf16' if devices.has_bf16(device) else 'fp32'}"
    elif settings.precision == "bf16" and device.type == "cpu" and not devices.has_bf16():
        which += ", in bf16, which it has no instructions for; training.precision=auto is faster"
    return device, which


def build(experiment: Experiment) -> Any:
    """Make the untrained model, as it will be trained; its weights depend on the seed alone."""
    tokenizer = tokenizers.load(experiment.tokenizer)
    check_memory(experiment, tokenizer)
    torch.manual_seed(experiment.seed)
    model = experiment.untrained(tokenizer)
    if experiment.training.activation_checkpointing:  # before anything measures the memory
        recompute(model)
    return model


def check_memory(experiment: Experiment, tokenizer: Tokenizer) -> None:
    """Refuse a model that this machine's memory can't hold in training, before any is taken for it.

    raises   UserError
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        with Limit(memory // FROZEN_BYTES, dry=True):
            model = experiment.untrained(tokenizer)
        fits = training_bytes(model, experiment.freeze) <= memory
    except TooLarge:
        fits = False
    if not fits:
        raise UserError(
            f"model: its training takes more than this machine's memory: {memory / 1e9:.0f} GB, at {TRAINING_BYTES} "
            f"bytes a parameter, {FROZEN_BYTES} if it is frozen; give fewer layers, or lower d_model or ff"
        )


def training_bytes(model: nn.Module, frozen: Sequence[str]) -> int:
    """Count the memory that a model's parameters take in training; frozen: patterns as those of `freeze`."""
    trained = sum(
        p.numel()
        for name, p in model.named_parameters()
        if p.requires_grad and not any(fnmatchcase(name, pattern) for pattern in frozen)
    )
    values = sum(x.numel() for x in (*model.parameters(), *model.buffers()))
    return TRAINING_BYTES * trained + FROZEN_BYTES * (values - trained)


def fine_tune(experiment: Experiment, model: nn.Module, continued: bool) -> Transfer | None:
    """Freeze what `freeze` says, and take the weights to begin with, unless a continued run has its own by now."""
    freeze(model, experiment.freeze)
    if continued:
        return None
    experiment.begin(model)
    if experiment.init_from is None:
        return None
    if Path(experiment.init_from).resolve() == Path(experiment.out).resolve():
        raise UserError(
            f"init_from: {experiment.init_from} is out, too; a new model needs another folder, choose out="
        )
    try:
        unlike = unlike_settings(experiment, experiment.init_from)
    except UserError as error:
        raise UserError(f"init_from: {error}") from None
    return load_what_fits(model, experiment.init_from, unlike)


def count_parameters(model: nn.Module) -> str:
    """Say how many parameters there are, and how many of them are frozen."""
    total = sum(p.numel() for p in model.parameters())
    frozen = sum(p.numel() for p in model.parameters() if not p.requires_grad)
    return f"{total / 1e6:.1f} M parameters" + (
        f", {frozen / 1e6:.1f} M of them frozen" if frozen else ""
    )
