"""Batches of sentences.

B batch, U labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from asr.data.dataset import halves, trim
from asr.data.sentences import Sentences
from asr.ops import PADDING


@dataclass(frozen=True)
class SentenceBatch:
    """A padded batch: Y (B, U) int64 labels, -1 beyond Y_lens (B,) int64."""

    Y: Tensor
    Y_lens: Tensor

    def __len__(self) -> int:
        return len(self.Y)

    @property
    def elements(self) -> int:
        """What memory grows with: labels, padding included."""
        return self.Y.numel()

    def to(self, device: torch.device) -> "SentenceBatch":
        """Move the tensors to a device."""
        return SentenceBatch(self.Y.to(device), self.Y_lens.to(device))

    def halves(self) -> "tuple[SentenceBatch, SentenceBatch]":
        """The first and the second half of the sentences, each padded to its own longest.

        raises   ValueError for a batch of one
        """
        first, second = map(self._part, halves(len(self.Y)))
        return first, second

    def _part(self, part: slice) -> "SentenceBatch":
        Y_lens = self.Y_lens[part]
        return SentenceBatch(trim(self.Y[part], Y_lens), Y_lens)


def collate(sentences: Sentences, indices: Sequence[int]) -> SentenceBatch:
    """Pad the chosen sentences to the longest."""
    labels, chosen = sentences.labels, np.asarray(indices)
    lens = labels.lens_of(chosen)
    steps = np.arange(lens.max())  # (U,)
    inside = steps < lens[:, None]  # (B, U)
    Y = np.full(inside.shape, PADDING, dtype=np.int64)
    Y[inside] = labels.values[(labels.offsets[chosen][:, None] + steps)[inside]]
    return SentenceBatch(torch.from_numpy(Y), torch.from_numpy(lens))
