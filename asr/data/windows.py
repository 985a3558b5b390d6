"""The plan of an epoch over a text of any size: in bounded memory, shuffled far, sorted near."""

from functools import lru_cache

import numpy as np

from asr.data.bucketing import plan
from asr.data.ragged import Items, Ragged
from asr.seeding import utterance_seed

BLOCK = (
    1 << 12
)  # neighboring sentences that stay together, so that a disk is read in pieces of 100 KB or so
WINDOW = (
    1 << 20
)  # sentences, at most, that are sorted together; the plan of a window takes some 100 MB


class Windows(Items[list[list[int]]]):
    """The optimizer steps of an epoch, each `accumulate` batches of indices of sentences, as `plan` makes them.

    The text's blocks are shuffled and dealt to windows of equal size; a window's sentences are
    sorted and its steps shuffled by `plan`; the windows come one after the other. A window is
    planned when one of its steps is asked for, and once before, to count them. A text of one window
    is planned as a whole.

    labels      of the sentences
    most        tokens of a padded batch, each sentence's end among them
    accumulate  batches a step; the last step of a window may have fewer
    """

    def __init__(self, labels: Ragged, most: float, seed: int, epoch: int, accumulate: int):
        blocks = -(-len(labels) // BLOCK)
        order = np.random.default_rng(utterance_seed(seed, "windows", epoch)).permutation(blocks)
        parts = np.array_split(order, -(-blocks * BLOCK // WINDOW))

        # no method, or its cache would keep this plan, with two windows, until Python looks for
        # cycles
        def window(n: int) -> list[list[list[int]]]:
            return _steps(labels, parts[n], most, seed + n, epoch, accumulate)

        self._window = lru_cache(2)(window)  # two: who reads ahead may be in the next
        self._starts = np.cumsum([0, *(len(self._window(n)) for n in range(len(parts)))])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def item(self, n: int) -> list[list[int]]:
        """Plan the n-th step's window, unless it is planned; return the step."""
        window = int(np.searchsorted(self._starts, n, side="right")) - 1
        return self._window(window)[n - int(self._starts[window])]


def _steps(
    labels: Ragged, blocks: np.ndarray, most: float, seed: int, epoch: int, accumulate: int
) -> list[list[list[int]]]:
    """The steps of a window of some blocks."""
    chosen = (np.sort(blocks)[:, None] * BLOCK + np.arange(BLOCK)).ravel()  # sentences, (N,)
    chosen = chosen[chosen < len(labels)]
    steps = plan(labels.lens_of(chosen) + 1, most, seed, epoch, accumulate)
    return [[chosen[batch].tolist() for batch in step] for step in steps]
