"""Prove the positions: each number is the paper's formula, by Python's math, at any length and from any start."""

import math

import torch
from small import each, near

from asr.nn.positions import ScaledPositions, sinusoids


def formula(positions, d_model):
    """PE(t, 2i) = sin(t / 10000^(2i/D)), PE(t, 2i + 1) = cos(t / 10000^(2i/D)); section 3.5."""
    rows = [[t / 10000 ** ((i - i % 2) / d_model) for i in range(d_model)] for t in positions]
    wave = (math.sin, math.cos)
    return torch.tensor([[wave[i % 2](angle) for i, angle in enumerate(row)] for row in rows])


@each("d_model", [2, 6, 7, 64])
def test_sinusoids_are_the_formula(d_model):
    for T in (1, 33):
        near(sinusoids(T, d_model), formula(range(T), d_model), 1e-6)


@each("t", [0, 511, 512, 513, 1024, 5000, 100_000, 900_000])
def test_positions_are_added_to_the_scaled_input_also_beyond_the_table(t):
    """Streams begin where they are, with no table of all before; at 900,000 frames of 40 ms they are ten hours old."""
    X, positions = torch.randn(2, 3, 16), ScaledPositions(16)
    expected = torch.stack([formula(range(n, n + 3), 16) for n in (t, 7)])
    near(positions(X, torch.tensor([t, 7])), X * 4 + expected, 2e-6)
    assert len(positions.table) == 512
    near(positions(torch.cat([X] * 400, 1))[:, -3:], X * 4 + formula(range(1197, 1200), 16), 2e-6)
    s = min(t, 5000)  # of labels: there is a table
    at = ScaledPositions(16).at(X, torch.tensor([s, 0]), s + 7)
    near(at, X * 4 + formula([s, 0], 16)[:, None], 2e-6)


def test_the_table_is_no_weight_and_follows_the_input_type():
    positions = ScaledPositions(16, 0.1).eval()
    assert not positions.state_dict()
    assert positions(torch.zeros(1, 2, 16, dtype=torch.bfloat16)).dtype == torch.bfloat16
    with torch.inference_mode():
        positions(torch.zeros(1, 2000, 16))  # grows the table; training may go on with it
    X = torch.zeros(1, 3, 16, requires_grad=True)
    positions.train()(X).sum().backward()
    assert X.grad.isfinite().all()
