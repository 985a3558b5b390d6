"""The order of recordings that lie in shards: a few shards at a time, each read from its begin to its end.

A window is WINDOW shards, drawn at random; batches are made of one window's utterances. While a
window is trained on, a thread reads the shards of the next through, so that data workers find their
recordings in the system's memory, whatever their order, and the disk is read in sequence. Nothing
but speed depends on that thread.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

import numpy as np

from asr.audio import archive
from asr.data.ragged import Strings

TOGETHER = 1000  # files, as recordings in a shard
WINDOW = 8  # shards: of LibriSpeech 1.7 GB
BLOCK = 1 << 22  # bytes
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

    def windows(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Draw the order of an epoch: the recordings of each window, in their order."""
        order = rng.permutation(len(self.archives))
        parts = np.array_split(order, -(-len(order) // WINDOW))
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
    stopped, allowed = threading.Event(), threading.Semaphore(WINDOW)
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
    buffer = bytearray(BLOCK)
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
