"""Prove the positions: each number is the paper's formula, by Python's math, at any length and from any start."""

import math

import pytest
import torch
from torch.testing import assert_close

from asr.nn.positions import ScaledPositions, sinusoids


def formula(t, i, d_model):
    """PE(t, 2i) = sin(t / 10000^(2i/D)), PE(t, 2i + 1) = cos(t / 10000^(2i/D)); section 3.5."""
    angle = t / 10000 ** ((i - i % 2) / d_model)
    return math.cos(angle) if i % 2 else math.sin(angle)


@pytest.mark.parametrize("d_model", [2, 6, 7, 64])
def test_sinusoids_are_the_formula(d_model):
    for T in (1, 33):
        expected = torch.tensor(
            [[formula(t, i, d_model) for i in range(d_model)] for t in range(T)]
        )
        assert_close(sinusoids(T, d_model), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("t", [511, 512, 513, 1024, 5000, 100_000])
def test_positions_beyond_the_table_are_the_formula_too(t):
    expected = torch.tensor([[formula(t, i, 8) for i in range(8)]])
    if t < 6000:
        assert_close(
            ScaledPositions(8)(torch.zeros(1, t + 1, 8))[0, t:], expected, rtol=0, atol=1e-6
        )
    at = ScaledPositions(8).at(torch.zeros(2, 3, 8), torch.tensor([t, 0]), t + 7)
    assert_close(
        at, torch.stack([expected.expand(3, -1), sinusoids(1, 8).expand(3, -1)]), rtol=0, atol=1e-6
    )


def test_scale():
    positions, X = ScaledPositions(16), torch.randn(2, 700, 16)
    Z = positions(X)
    assert_close(Z, X * 4 + sinusoids(700, 16))
    assert_close(positions.at(X[:, 600:601], torch.tensor([600, 600]), 600), Z[:, 600:601])


def test_the_table_is_no_weight_and_follows_the_input_type():
    positions = ScaledPositions(16, 0.1).eval()
    assert not positions.state_dict()
    assert positions(torch.zeros(1, 2, 16, dtype=torch.bfloat16)).dtype == torch.bfloat16
    with torch.inference_mode():
        positions(torch.zeros(1, 2000, 16))  # grows the table; training may go on with it
    X = torch.zeros(1, 3, 16, requires_grad=True)
    positions.train()(X).sum().backward()
    assert X.grad.isfinite().all()
