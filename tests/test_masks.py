"""Prove the masks: they equal their definition at every position, and zeroed padding lets nothing through."""

import torch
from small import each, near

from asr.ops import causal_mask, chunk_mask, key_mask, length_mask, zero_padding


@each("lens", [[3, 1], [1], [5, 5, 5], [0, 2]], ids=str)
@each("extra", [0, 2])
def test_length_mask_and_key_mask(lens, extra):
    T = max(lens) + extra
    expected = [[t >= length for t in range(T)] for length in lens]
    assert length_mask(torch.tensor(lens), T).tolist() == expected
    assert key_mask(torch.tensor(lens), T).tolist() == [[[row]] for row in expected]


def test_the_drawings_in_the_docstrings():
    masks = {
        length_mask: length_mask(torch.tensor([3, 1]), 3),
        causal_mask: causal_mask(3),
        chunk_mask: chunk_mask(torch.tensor([2]), 7, 2)[0],
    }
    for function, mask in masks.items():
        lines = [line.split() for line in function.__doc__.splitlines()]
        drawn = [line[: mask.size(1)] for line in lines if line[:1] in (["."], ["x"])]
        assert drawn == [["x" if masked else "." for masked in row] for row in mask.tolist()]


@each("U", [1, 2, 7])
def test_causal_mask(U):
    assert causal_mask(U).tolist() == [[key > query for key in range(U)] for query in range(U)]


@each(
    "T, frames, left",
    [(1, [1], 0), (7, [2, 3, 9], 2), (9, [3, 2], 0), (9, [4], 20), (9, [4, 2], 3)],
)
def test_chunk_mask(T, frames, left):
    """A row for each size; `left` frames before the chunk needn't be whole chunks."""
    seen = [
        [[q // n * n - left <= k < (q // n + 1) * n for k in range(T)] for q in range(T)]
        for n in frames
    ]
    assert (~chunk_mask(torch.tensor(frames), T, left)).tolist() == seen


@each("shape", [(2, 4), (2, 4, 3), (2, 4, 3, 2)])
def test_zero_padding(shape):
    X, lens = torch.randn(shape), torch.tensor([4, 1])
    expected = X.clone()
    X[1, 1:], expected[1, 1:] = torch.nan, 0
    Z = zero_padding(X.requires_grad_(), lens)
    near(Z, expected)
    near(torch.autograd.grad(Z.square().sum(), X)[0], 2 * expected)
    assert X[1, 1:].isnan().all()  # the input is left as it was
