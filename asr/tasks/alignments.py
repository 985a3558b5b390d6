"""What the decoder attends to: alignments of labels and encoder frames, for a person to see whether they align.

B batch, U labels, T' encoder frames, H attention heads.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from asr.data.dataset import Batch
from asr.models.recognizer import Recognizer


@torch.no_grad()
def alignments(recognizer: Recognizer, batch: Batch, n: int) -> dict[str, Tensor]:
    """Attention of the decoder to the encoder's frames, given the labels: of the head that aligns most.

    Each utterance has its own head, the one whose weights lie most on a path of increasing frames:
    some heads align, others watch the ends or spread, and the mean shows neither (AN4's and mini's
    models, four utterances each: on that path lie 18 to 44 % of such a head's weight, 12 to 23 % of
    the mean's). The recognizer is left in evaluation mode.

    n        of the batch's first utterances
    returns  utterance id → (U + 1, T') float32 on the CPU, rows that sum to 1; the last row is
             <eos>'s
    """
    recognizer.eval()
    H, H_lens = recognizer.encode(batch.waveforms[:n], batch.wave_lens[:n])  # (n, T', D)
    decoded = recognizer.model.decode(H, H_lens, batch.Y[:n], batch.Y_lens[:n], attention=True)
    heads = torch.cat(list(decoded.cross), 1).float().cpu()  # (n, layers · H, U + 1, T')
    return {
        id: most_aligned(weights[:, : U + 1, :T])
        for id, weights, U, T in zip(
            batch.ids[:n], heads, batch.Y_lens.tolist(), H_lens.tolist(), strict=False
        )
    }


def most_aligned(heads: Tensor) -> Tensor:
    """Of weights (H, U, T'), those (U, T') that have the largest sum along a path t_0 < t_1 < … < t_(U - 1).

    Of heads that are equal the first; nothing else is asked of labels that outnumber the frames.
    """
    paths = heads[:, 0]  # (H, T'), the best that ends in each frame
    for weights in heads.unbind(1)[1:]:
        before = paths.cummax(1).values.roll(1, 1)
        before[:, 0] = -torch.inf
        paths = weights + before
    return heads[paths.amax(1).argmax()]


def middle(durations: Sequence[float] | np.ndarray, ids: Sequence[str], n: int) -> list[int]:
    """Indices of n utterances of about median length, shortest first; the order of the utterances doesn't matter."""
    order = sorted(range(len(ids)), key=lambda index: (durations[index], ids[index]))
    first = max(0, (len(order) - n) // 2)
    return order[first : first + n]
