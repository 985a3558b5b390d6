"""What all rooms share of tensors: label ids with a meaning of their own, masks, and the choice of beams.

Masks are bool, True = masked out; they are made here and nowhere else, and combined with `|`.
B batch, T frames or key positions, U label positions, K hypotheses of an utterance.
"""

import functools
from collections.abc import Callable

import torch
from torch import Tensor

BLANK = 0  # of CTC; no token has this id
PADDING = -1  # after the labels of a shorter utterance in a batch; cross-entropy's ignore_index


def length_mask(lens: Tensor, T: int) -> Tensor:
    """Mask what stands beyond each length.

    lens:    (B,) int, frames; T: padded length
    returns  (B, T) bool; for lens = [3, 1], T = 3:

        . . .
        . x x      x = True = masked out

    It hides keys (as (B, 1, 1, T) in attention), never whole query rows: a padded query still
    attends to real keys and its row of the result is simply not read.
    """
    return torch.arange(T, device=lens.device) >= lens.unsqueeze(1)  # (B, T)


def unpadded_length(padding: Tensor) -> int:
    """Count the columns that aren't padding for all rows, (…, T) bool, True at the rows' ends: 1 to T, 1 without rows.

    On a GPU return T: counting would wait for the device.
    """
    T = padding.size(-1)
    if padding.device.type != "cpu":
        return T
    return max([1, *(~padding).sum(-1).flatten().tolist()])


def span_mask(start: Tensor, width: Tensor, size: int) -> Tensor:
    """Mark what lies within any of M spans.

    start, width:  (B, M) int
    returns        (B, size) bool, True within a span
    """
    start, end = start.unsqueeze(2), (start + width).unsqueeze(2)  # (B, M, 1)
    position = torch.arange(size, device=start.device)
    return ((position >= start) & (position < end)).any(1)  # (B, size)


def causal_mask(U: int, device: torch.device | None = None) -> Tensor:
    """Mask the future: query i sees keys 0..i.

    returns  (U, U) bool, rows are queries; for U = 3:

        . x x
        . . x
        . . .
    """
    return torch.ones(U, U, dtype=torch.bool, device=device).triu(1)  # (U, U)


def chunk_mask(frames: Tensor, T: int, left: int) -> Tensor:
    """Mask all but the query's own chunk and the `left` frames before that.

    frames:  (B,) int, of a chunk, for each utterance
    returns  (B, T, T) bool, rows are queries; for frames = [2], T = 7, left = 2, the last chunk
             being short:

        . . x x x x x
        . . x x x x x
        . . . . x x x
        . . . . x x x
        x x . . . . x
        x x . . . . x
        x x x x . . .
    """
    t, size = torch.arange(T, device=frames.device), frames.unsqueeze(1)
    begin = (t // size * size).unsqueeze(2)  # (B, T, 1), of the query's chunk
    return (t < begin - left) | (t >= begin + size.unsqueeze(2))  # (B, T, T)


def key_mask(lens: Tensor, T: int) -> Tensor:
    """Length mask in the shape that attention over (B, heads, queries, keys) broadcasts: (B, 1, 1, T)."""
    return length_mask(lens, T)[:, None, None, :]  # (B, 1, 1, T)


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """What attention adds to its scores: 0, and -∞ where a bool mask hides; made once for all layers."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, -torch.inf)


def zero_padding(X: Tensor, lens: Tensor) -> Tensor:
    """Set to exact zero what stands beyond each length; not even a NaN there can leak.

    X:       (B, T, ...)
    returns  a new tensor of the same shape
    """
    mask = length_mask(lens, X.size(1))  # (B, T)
    return X.masked_fill(mask.view(*mask.shape, *[1] * (X.dim() - 2)), 0)


def gather_beams(x: Tensor, parents: Tensor) -> Tensor:
    """Take row parents[b, k] of x[b] for every k: x (B, K, …), parents (B, K') → (B, K', …)."""
    return x[batch_rows(len(x), x.device), parents]


@functools.lru_cache(maxsize=64)
def batch_rows(B: int, device: torch.device) -> Tensor:
    """0..B - 1 as (B, 1); made once, for a search asks a dozen times per step."""
    with torch.inference_mode(False):
        return torch.arange(B, device=device).unsqueeze(1)


def fetch(x: Tensor) -> Callable[[], list]:
    """Begin to copy a tensor to the CPU; the result, when called, waits for no later work of the GPU."""
    copy = x.to("cpu", non_blocking=True)
    if x.device.type == "cpu":
        return copy.tolist
    copied = torch.cuda.Event()
    copied.record()

    def wait() -> list:
        copied.synchronize()
        return copy.tolist()

    return wait
