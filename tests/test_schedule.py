"""Prove the learning rates and the optimizers: schedules are their formulas, a step is the paper's Adam by hand."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from asr.training.optim.adam import AdamSettings, AdamWSettings
from asr.training.optim.schedule import ConstantSettings, CosineSettings, NoamSettings, WSDSettings

STEPS = [1, 2, 10, 399, 400, 401, 5000, 100_000]


@pytest.mark.parametrize("d_model", [256, 512])
def test_noam_is_the_papers_curve(d_model):
    """lrate = d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5), equation 3, for the lr its docstring names."""
    schedule, lr = NoamSettings(kind="noam", warmup=400), d_model**-0.5 * 400**-0.5
    for step in STEPS:
        expected = d_model**-0.5 * min(step**-0.5, step * 400**-1.5)
        assert math.isclose(lr * schedule.factor(step, 0.5), expected)
    assert schedule.factor(400, 0) == 1 == max(schedule.factor(step, 0) for step in range(1, 2000))


def test_cosine():
    schedule = CosineSettings(kind="cosine", warmup=400)
    assert schedule.factor(100, 0.0) == 0.25
    for progress, expected in {0.0: 1.0, 0.5: 0.505, 1.0: 0.01, 1 / 3: 0.01 + 0.99 * 0.75}.items():
        assert math.isclose(schedule.factor(5000, progress), expected)
    curve = [schedule.factor(400 + n, n / 1000) for n in range(1001)]
    assert curve == sorted(curve, reverse=True)


@pytest.mark.parametrize("shape", ["linear", "1-sqrt"])
def test_wsd(shape):
    """Warm-up and stable rate; then 1 - x, or 1 - √x, x being the share of the decay that is over."""
    schedule = WSDSettings(kind="wsd", warmup=400, decay=0.2, shape=shape)
    assert [schedule.factor(step, 0.5) for step in (1, 100, 400, 5000)] == [1 / 400, 0.25, 1.0, 1.0]
    assert schedule.factor(5000, 0.0) == 1.0 == pytest.approx(schedule.factor(5000, 0.8))
    for x in (0.25, 0.5, 1.0):
        expected = 1 - (x if shape == "linear" else math.sqrt(x))
        assert math.isclose(schedule.factor(5000, 0.8 + 0.2 * x), expected)
    assert WSDSettings(kind="wsd", warmup=1).factor(9, 1.0) == 0.0
    assert schedule.factor(100, 0.85) == 0.25  # the warm-up caps it


def test_constant():
    schedule = ConstantSettings(kind="constant", warmup=4)
    assert [schedule.factor(step, 0.9) for step in range(1, 7)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2)).double()


def by_hand(parameter, gradients, lr, decay=0.0, decoupled=False, beta1=0.9, beta2=0.98, eps=1e-9):
    """Adam (Kingma and Ba 2015, algorithm 1) with the betas and eps of the Transformer; AdamW (algorithm 2)."""
    m = v = torch.zeros_like(parameter)
    for t, g in enumerate(gradients, start=1):
        g = g if decoupled else g + decay * parameter
        parameter = parameter * (1 - lr * decay) if decoupled else parameter
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        parameter = parameter - lr * (m / (1 - beta1**t)) / ((v / (1 - beta2**t)).sqrt() + eps)
    return parameter


@pytest.mark.parametrize("settings, decoupled", [
    (AdamSettings(kind="adam", lr=1e-2), False),
    (AdamSettings(kind="adam", lr=1e-2, weight_decay=0.1), False),
    (AdamWSettings(kind="adamw", lr=1e-2), True),
    (AdamWSettings(kind="adamw", lr=1e-2, weight_decay=0.1), True),
])  # fmt: skip
def test_steps_of_the_optimizers(settings, decoupled):
    module = model()
    before = [p.detach().clone() for p in module.parameters()]
    gradients = [[torch.randn_like(p) for p in before] for _ in range(3)]
    chosen = settings.build(module)
    for step in gradients:
        for p, g in zip(module.parameters(), step, strict=True):
            p.grad = g.clone()
        chosen.step()
    for n, (p, start) in enumerate(zip(module.parameters(), before, strict=True)):
        decay = settings.weight_decay if start.dim() > 1 else 0.0  # matrices only
        expected = by_hand(start, [step[n] for step in gradients], 1e-2, decay, decoupled)
        assert_close(p.detach(), expected, rtol=1e-6, atol=1e-8)


def test_defaults_are_the_papers():
    chosen = AdamSettings(kind="adam", lr=1.0).build(model())
    assert [(g["betas"], g["eps"], g["weight_decay"]) for g in chosen.param_groups] == [
        ((0.9, 0.98), 1e-9, 0.0)
    ] * 2
    chosen = AdamWSettings(kind="adamw", lr=1.0).build(model())
    assert [g["weight_decay"] for g in chosen.param_groups] == [0.01, 0.0]


def test_every_trainable_parameter_is_in_one_group():
    module = model()
    module[0].bias.requires_grad_(False)
    groups = AdamSettings(kind="adam", lr=1.0).build(module).param_groups
    assert {id(p) for g in groups for p in g["params"]} == {
        id(p) for p in module.parameters() if p.requires_grad
    }
    assert sum(len(g["params"]) for g in groups) == 3
