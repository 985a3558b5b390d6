"""Prove the masks: they equal plain loops over every position, and zeroed padding lets nothing through."""

import pytest
import torch
from torch.testing import assert_close

from asr.ops import causal_mask, chunk_mask, key_mask, length_mask, zero_padding

LENS = [[3, 1], [1], [5, 5, 5], [0, 2]]


@pytest.mark.parametrize("lens", LENS, ids=str)
@pytest.mark.parametrize("extra", [0, 2])
def test_length_mask_and_key_mask(lens, extra):
    T = max(lens) + extra
    expected = torch.zeros(len(lens), T, dtype=torch.bool)
    for b, length in enumerate(lens):
        for t in range(T):
            expected[b, t] = t >= length
    assert_close(length_mask(torch.tensor(lens), T), expected)
    keys = key_mask(torch.tensor(lens), T)
    assert keys.shape == (len(lens), 1, 1, T)
    for b in range(len(lens)):
        for head in range(2):
            for query in range(3):
                assert_close(
                    keys.expand(-1, 2, 3, -1)[b, head, query], expected[b]
                )  # every query row is the same


def test_the_drawings_in_the_docstrings():
    masks = [(length_mask, length_mask(torch.tensor([3, 1]), 3)), (causal_mask, causal_mask(3))]
    for function, mask in [*masks, (chunk_mask, chunk_mask(7, 2, 1))]:
        drawn = [
            line.split()[: mask.size(1)]
            for line in function.__doc__.splitlines()
            if line.strip()[:2] in (". ", "x ")
        ]
        assert drawn == [["x" if masked else "." for masked in row] for row in mask.tolist()]


@pytest.mark.parametrize("U", [1, 2, 7])
def test_causal_mask(U):
    expected = torch.zeros(U, U, dtype=torch.bool)
    for query in range(U):
        for key in range(U):
            expected[query, key] = key > query
    assert_close(causal_mask(U), expected)


@pytest.mark.parametrize("T, frames, left", [(1, 1, 0), (7, 2, 1), (9, 3, 0), (9, 4, 5), (5, 9, 1)])
def test_chunk_mask(T, frames, left):
    expected = torch.ones(T, T, dtype=torch.bool)
    for query in range(T):
        for key in range(T):
            if 0 <= query // frames - key // frames <= left:
                expected[query, key] = False
    assert_close(chunk_mask(T, frames, left), expected)


@pytest.mark.parametrize("shape", [(2, 4), (2, 4, 3), (2, 4, 3, 2)])
def test_zero_padding(shape):
    X, lens = torch.randn(shape), torch.tensor([4, 1])
    X[1, 1:] = torch.nan
    X.requires_grad_()
    Z = zero_padding(X, lens)
    expected = X.detach().clone()
    for t in range(1, 4):
        expected[1, t] = 0
    assert_close(Z, expected, rtol=0, atol=0)
    Z.square().sum().backward()
    assert_close(X.grad, 2 * expected, rtol=0, atol=0)
    assert X[1, 1:].isnan().all()  # the input is left as it was
