"""The plan of an epoch over a text of any size: in bounded memory, shuffled far, sorted near."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from asr.data.batches import plan
from asr.data.ragged import Ragged
from asr.features.noise import utterance_seed

BLOCK = 1 << 12  # neighbouring sentences that stay together, so that a disk is read in pieces of 100 KB or so
WINDOW = 1 << 20  # sentences, at most, that are sorted together; the plan of a window takes some 100 MB


class Windows(Sequence):
    """The optimiser steps of an epoch, each `accumulate` batches of indices of sentences, as `plan` makes them.

    The text's blocks are shuffled and dealt to windows of equal size; a window's sentences are sorted and its steps
    shuffled by `plan`; the windows come one after the other. A window is planned when one of its steps is asked for,
    and once before, to count them. A text of one window is planned as a whole.

    labels      of the sentences
    most        tokens of a padded batch, each sentence's end among them
    accumulate  batches a step; the last step of a window may have fewer
    """

    def __init__(self, labels: Ragged, most: float, seed: int, epoch: int, accumulate: int):
        self._labels, self._most, self._seed, self._epoch = labels, most, seed, epoch
        self._accumulate = accumulate
        blocks = -(-len(labels) // BLOCK)
        order = np.random.default_rng(utterance_seed(seed, "windows", epoch)).permutation(blocks)
        self._blocks = np.array_split(order, -(-blocks * BLOCK // WINDOW))
        self._window = lru_cache(2)(self._plan)  # two: who reads ahead may be in the next
        self._starts = np.cumsum([0, *(len(self._window(n)) for n in range(len(self._blocks)))])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, n: int) -> list[list[int]]:
        n = range(len(self))[n]
        window = int(np.searchsorted(self._starts, n, side="right")) - 1
        return self._window(window)[n - int(self._starts[window])]

    def _plan(self, window: int) -> list[list[list[int]]]:
        """The steps of a window."""
        blocks = np.sort(self._blocks[window])
        chosen = (blocks[:, None] * BLOCK + np.arange(BLOCK)).ravel()  # sentences, (N,)
        chosen = chosen[chosen < len(self._labels)]
        lens = self._labels.lens_of(chosen) + 1
        steps = plan(lens, self._most, self._seed + window, self._epoch, self._accumulate)
        return [[chosen[batch].tolist() for batch in step] for step in steps]
