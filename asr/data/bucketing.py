"""The plan of an epoch: examples of like length together, by total length, in an order that a seed decides.

`plan` plans all of it at once; `Windows` a text of any size, in bounded memory, shuffled far and
sorted near. `Shards` orders recordings that lie in archives. Its windows are SHARD_WINDOW shards,
drawn at random; batches are made of one window's utterances. While a window is trained on, a thread
reads the shards of the next through, so that data workers find their recordings in the system's
memory, whatever their order, and the disk is read in sequence. Nothing but speed depends on that
thread.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, pairwise
from typing import TypeVar

import numpy as np

from asr.audio import archive
from asr.data.columns import Items, Lengths, Strings
from asr.seeding import utterance_seed

TOGETHER = 1000  # files, as recordings in a shard
SHARD_WINDOW = 8  # shards: of LibriSpeech 1.7 GB
SHARD_BLOCK = 1 << 22  # bytes
T = TypeVar("T")


@dataclass(frozen=True)
class Shards:
    """In which archive each of N recordings lies.

    archives  paths; None of TOGETHER files of their own, which are taken as one that has not to be
              read ahead
    numbers   (N,) int64, places among these
    """

    archives: list[str | None]
    numbers: np.ndarray

    @classmethod
    def of(cls, paths: Strings) -> "Shards | None":
        """Take them from the recordings' paths; None where all are files of their own."""
        if b".tar:" not in paths.rows.values.tobytes():
            return None
        known: dict[str | int, int] = {}
        own = count()
        numbers = [
            known.setdefault(_archive(path) or next(own) // TOGETHER, len(known)) for path in paths
        ]
        return cls([name if isinstance(name, str) else None for name in known], np.array(numbers))

    def select(self, indices: np.ndarray) -> "Shards":
        """The archives of some recordings, (M,) int, in their order."""
        return Shards(self.archives, self.numbers[indices])

    def windows(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Draw the order of an epoch: the recordings of each window, in their order."""
        order = rng.permutation(len(self.archives))
        parts = np.array_split(order, -(-len(order) // SHARD_WINDOW))
        window = np.empty(len(order), dtype=np.int64)
        for n, part in enumerate(parts):
            window[part] = n
        places = window[self.numbers]  # (N,)
        return np.split(np.argsort(places, kind="stable"), np.cumsum(np.bincount(places))[:-1])

    def first_needed(self, batches: Sequence[Sequence[int]]) -> list[list[str]]:
        """The archives that each batch is the first to need."""
        seen: set[int] = set()
        found = []
        for batch in batches:
            numbers = sorted(set(self.numbers[batch].tolist()) - seen)
            seen.update(numbers)
            found.append([path for n in numbers if (path := self.archives[n])])
        return found


def _archive(path: str) -> str | None:
    within = archive.place(path)
    return within.archive if within else None


def read_ahead(stream: Iterator[T], first_needed: Sequence[Sequence[str]]) -> Iterator[T]:
    """Yield what `stream` does, while a thread reads through the archives that are needed soon.

    first_needed   archives that each item is the first to need; the thread is a window ahead of the
                   items
    """
    stopped, allowed = threading.Event(), threading.Semaphore(SHARD_WINDOW)
    order = [path for paths in first_needed for path in paths]
    thread = threading.Thread(target=_read_through, args=(order, allowed, stopped), daemon=True)
    try:
        for n, item in enumerate(stream):
            yield item
            if not n:
                thread.start()  # not before: the stream forks its workers first
            for _ in first_needed[n]:
                allowed.release()
    finally:
        stopped.set()
        allowed.release()


def _read_through(
    paths: Sequence[str], allowed: threading.Semaphore, stopped: threading.Event
) -> None:
    buffer = bytearray(SHARD_BLOCK)
    for path in paths:
        allowed.acquire()
        try:
            with open(path, "rb", buffering=0) as file:
                while not stopped.is_set() and file.readinto(buffer):
                    pass
        except OSError:  # who needs it says so
            pass
        if stopped.is_set():
            return


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
    # for other company each epoch
    jitter = 1.0 if ascending else rng.uniform(1 - JITTER, 1 + JITTER, len(window))
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
        # if none of them were longer than the first
        room = int(most / max(lengths[first], most / len(lengths)))
        some = lengths[first : first + max(room, 1) + 1]
        over = np.maximum.accumulate(some) * np.arange(1, len(some) + 1) > most
        over[0] = False  # what is too long stands alone
        first += int(over.argmax()) if over.any() else len(some)
        yield first


# neighboring sentences that stay together, so that a disk is read in pieces of 100 KB or so
BLOCK = 1 << 12
# sentences, at most, that are sorted together; the plan of a window takes some 100 MB
WINDOW = 1 << 20


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

    def __init__(self, labels: Lengths, most: float, seed: int, epoch: int, accumulate: int):
        blocks = -(-len(labels) // BLOCK)
        order = np.random.default_rng(utterance_seed(seed, "windows", epoch)).permutation(blocks)
        parts = np.array_split(order, -(-blocks * BLOCK // WINDOW))

        # no method, or its cache would keep this plan, with two windows, until Python looks for
        # cycles
        def window(n: int) -> list[list[list[int]]]:
            return _window(labels, parts[n], most, seed + n, epoch, accumulate)

        self._window = lru_cache(2)(window)  # two: who reads ahead may be in the next
        self._starts = np.cumsum([0, *(len(self._window(n)) for n in range(len(parts)))])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def item(self, n: int) -> list[list[int]]:
        """Plan the n-th step's window, unless it is planned; return the step."""
        window = int(np.searchsorted(self._starts, n, side="right")) - 1
        return self._window(window)[n - int(self._starts[window])]


def _window(
    labels: Lengths, blocks: np.ndarray, most: float, seed: int, epoch: int, accumulate: int
) -> list[list[list[int]]]:
    """The steps of a window of some blocks."""
    chosen = (np.sort(blocks)[:, None] * BLOCK + np.arange(BLOCK)).ravel()  # sentences, (N,)
    chosen = chosen[chosen < len(labels)]
    steps = plan(labels.lens_of(chosen) + 1, most, seed, epoch, accumulate)
    return [[chosen[batch].tolist() for batch in step] for step in steps]
