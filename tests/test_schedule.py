"""Prove the learning rates and the optimizers: schedules are their formulas, a step of Adam is PyTorch's."""

import math

import pytest
import torch
from pytest import approx
from torch import nn
from torch.testing import assert_close

from asr.training.optim.adam import AdamSettings, AdamWSettings
from asr.training.optim.schedule import ConstantSettings, CosineSettings, NoamSettings, WSDSettings

each = pytest.mark.parametrize


@each("d_model", [256, 512])
def test_noam_is_the_papers_curve(d_model):
    """lrate = d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5), equation 3, for the lr its docstring names."""
    schedule, lr = NoamSettings(kind="noam", warmup=400), d_model**-0.5 * 400**-0.5
    for step in (1, 2, 10, 399, 400, 401, 5000, 100_000):
        expected = d_model**-0.5 * min(step**-0.5, step * 400**-1.5)
        assert lr * schedule.factor(step, 0.5) == approx(expected, rel=1e-9)
    assert schedule.factor(400, 0) == 1


def test_cosine():
    schedule = CosineSettings(kind="cosine", warmup=400)
    assert schedule.factor(100, 0.0) == 0.25
    for n in range(101):
        expected = 0.01 + 0.99 * (1 + math.cos(math.pi * n / 100)) / 2
        assert schedule.factor(5000, n / 100) == approx(expected, rel=1e-9)


@each("shape", ["linear", "1-sqrt"])
def test_wsd(shape):
    """Warm-up and stable rate; then 1 - x, or 1 - √x, x being the share of the decay that is over."""
    schedule = WSDSettings(kind="wsd", warmup=400, decay=0.2, shape=shape)
    assert [schedule.factor(step, 0.5) for step in (1, 100, 400, 5000)] == [1 / 400, 0.25, 1.0, 1.0]
    assert schedule.factor(5000, 0.0) == 1.0 == approx(schedule.factor(5000, 0.8))
    for x in (0.25, 0.5, 1.0):
        expected = 1 - (x if shape == "linear" else math.sqrt(x))
        assert schedule.factor(5000, 0.8 + 0.2 * x) == approx(expected, rel=1e-9)
    assert WSDSettings(kind="wsd", warmup=1).factor(9, 1.0) == 0.0
    assert schedule.factor(100, 0.85) == 0.25  # the warm-up caps it


def test_constant():
    schedule = ConstantSettings(kind="constant", warmup=4)
    assert [schedule.factor(step, 0.9) for step in range(1, 7)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2)).double()


@each("given", [{}, {"weight_decay": 0.0}, {"weight_decay": 0.1}])
@each("settings, reference", [
    (AdamSettings, torch.optim.Adam), (AdamWSettings, torch.optim.AdamW)
])  # fmt: skip
def test_a_step_is_pytorchs_with_the_papers_constants_and_decay_for_matrices_alone(
    settings, reference, given
):
    """Betas and eps of the Transformer; the default decay is PyTorch's."""
    ours, theirs = model(), model()
    chosen = settings(kind=reference.__name__.lower(), lr=1e-2, **given).build(ours)
    decay = reference(theirs.parameters(), **given).defaults["weight_decay"]
    groups = [{"params": [p], "weight_decay": decay * (p.dim() > 1)} for p in theirs.parameters()]
    expected = reference(groups, lr=1e-2, betas=(0.9, 0.98), eps=1e-9)
    for seed in range(3):
        for module, optimizer in ((ours, chosen), (theirs, expected)):
            generator = torch.Generator().manual_seed(seed)
            for p in module.parameters():
                p.grad = torch.randn(p.shape, generator=generator, dtype=p.dtype)
            optimizer.step()
    assert_close(ours.state_dict(), theirs.state_dict(), rtol=1e-9, atol=0)


def test_every_trainable_parameter_is_in_one_group():
    module = model()
    module[0].bias.requires_grad_(False)
    groups = AdamSettings(kind="adam", lr=1.0).build(module).param_groups
    held = sorted(id(p) for g in groups for p in g["params"])
    assert held == sorted(id(p) for p in module.parameters() if p.requires_grad)
