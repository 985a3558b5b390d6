"""The plan of an epoch: examples of like length together, by total length, in an order that a seed decides."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from asr.data.shard_order import Shards
from asr.seeding import utterance_seed

JITTER = (
    0.05  # of lengths, before they are sorted: more brings more padding (scripts/bench/README.md)
)


def plan(
    lengths: Sequence[float] | np.ndarray,
    most: float,
    seed: int,
    epoch: int,
    accumulate: int = 1,
    ascending: bool = False,
    shards: Shards | None = None,
) -> list[list[list[int]]]:
    """Decide an epoch's optimizer steps: every example once, like lengths together, steps in random order.

    lengths     of the examples, as they will be read: in seconds, or tokens
    most        sum of a padded batch's lengths (an example that is longer stands alone)
    accumulate  batches a step; they are neighbors in length, so that processes that share a step
                have equal work
    ascending   steps in order of length instead, the shortest first, and lengths not jittered
    shards      that the examples lie in: steps are made of one window of them after the other,
                unless ascending
    returns     steps of batches of indices; the step of the longest (of a window) may have fewer
                batches. They depend on the arguments alone, not on the number of processes or
                workers
    """
    lengths = np.asarray(lengths, dtype=np.float64)
    rng = np.random.default_rng(utterance_seed(seed, "order", epoch))
    windows = [np.arange(len(lengths))]
    if shards and not ascending:
        windows = shards.windows(np.random.default_rng(utterance_seed(seed, "shards", epoch)))
    return [
        step
        for window in windows
        for step in _steps(window, lengths, most, rng, accumulate, ascending)
    ]


def _steps(
    window: np.ndarray,
    lengths: np.ndarray,
    most: float,
    rng: np.random.Generator,
    accumulate: int,
    ascending: bool,
) -> list[list[list[int]]]:
    """Decide the steps of some examples, (N,) indices; see `plan` for the arguments."""
    jitter = (
        1.0 if ascending else rng.uniform(1 - JITTER, 1 + JITTER, len(window))
    )  # for other company each epoch
    order = window[np.argsort(lengths[window] * jitter, kind="stable")]
    ends = [0, *_ends(lengths[order], most)]
    order = order.tolist()
    batches = [order[first:end] for first, end in pairwise(ends)]
    steps = [batches[n : n + accumulate] for n in range(0, len(batches), accumulate)]
    return steps if ascending else [steps[n] for n in rng.permutation(len(steps))]


def _ends(lengths: np.ndarray, most: float) -> Iterator[int]:
    """Cut a row of lengths into the longest pieces of at most `most` padded; say where each ends."""
    first = 0
    while first < len(lengths):
        room = int(
            most / max(lengths[first], most / len(lengths))
        )  # if none of them were longer than the first
        some = lengths[first : first + max(room, 1) + 1]
        over = np.maximum.accumulate(some) * np.arange(1, len(some) + 1) > most
        over[0] = False  # what is too long stands alone
        first += int(over.argmax()) if over.any() else len(some)
        yield first
