"""Many short sequences as one array with offsets: token ids, strings, and a manifest's utterances column by column.

A million rows are two objects. A list of a million lists would be copied, page by page, into every
data worker: a worker counts references, and so writes into the objects that it only reads.
"""

import os
from abc import abstractmethod
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Protocol, TypeVar, overload

import numpy as np

from asr.data import manifest
from asr.data.manifest import Utterance

AT_ONCE = 1 << 20  # rows that are looked at together
T = TypeVar("T", covariant=True)


class Items(Sequence[T]):
    """A sequence whose items are made when they are asked for."""

    @abstractmethod
    def item(self, n: int) -> T:
        """Make the n-th item, 0 <= n < len."""

    @overload
    def __getitem__(self, n: int) -> T: ...
    @overload
    def __getitem__(self, n: slice) -> list[T]: ...
    def __getitem__(self, n):
        places = range(len(self))[n]
        return list(map(self.item, places)) if isinstance(n, slice) else self.item(places)


class Lengths(Protocol):
    """Rows whose lengths can be asked for."""

    def __len__(self) -> int:
        """Count the rows."""

    def lens_of(self, indices: np.ndarray) -> np.ndarray:
        """Length of some rows, (M,) int64."""


def longest(rows: Lengths, n: int) -> list[int]:
    """The n longest rows, the longest first; all if there are fewer."""
    found = np.empty(0, np.int64)
    for first in range(0, len(rows), AT_ONCE):
        some = np.concatenate([found, np.arange(first, min(first + AT_ONCE, len(rows)))])
        found = some[np.argsort(-rows.lens_of(some), kind="stable")[:n]]
    return found.tolist()


@dataclass(frozen=True)
class Ragged(Items[np.ndarray]):
    """Rows of different lengths, read-only.

    values   of all rows, one behind the other
    offsets  (N + 1,) int64: row n is values[offsets[n] : offsets[n + 1]]
    """

    values: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of_ids(cls, rows: Iterable[Iterable[int]], vocabulary: int) -> "Ragged":
        """Gather rows of token ids in 0 .. vocabulary - 1."""
        gathered = Rows.of_ids(vocabulary)
        for row in rows:
            gathered.append(row)
        return gathered.done()

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def item(self, n: int) -> np.ndarray:
        """View the n-th row."""
        return self.values[self.offsets[n] : self.offsets[n + 1]]

    @property
    def lens(self) -> np.ndarray:
        """Length of each row, (N,) int64."""
        return np.diff(self.offsets)

    def lens_of(self, indices: np.ndarray) -> np.ndarray:
        """Length of some rows, (M,) int64; nothing is read of the others."""
        return self.offsets[indices + 1] - self.offsets[indices]

    def longest(self, n: int) -> list[int]:
        """The n longest rows, the longest first; all if there are fewer."""
        return longest(self, n)

    def select(self, indices: np.ndarray) -> "Ragged":
        """Copy some rows, (M,) int, in their order."""
        offsets = np.concatenate([[0], np.cumsum(self.lens_of(indices))])
        return Ragged(
            np.concatenate([self.values[:0], *(self[n] for n in indices.tolist())]), offsets
        )


class Rows:
    """A Ragged in the making.

    code   of a value's type, as those of `array`
    """

    def __init__(self, code: str):
        self._code, self._bytes, self._ends = code, bytearray(), array("q", [0])

    @classmethod
    def of_ids(cls, vocabulary: int) -> "Rows":
        """For ids in 0 .. vocabulary - 1, of one, two or four bytes, as many as they need."""
        return cls(np.min_scalar_type(vocabulary - 1).char)

    def append(self, row: Iterable[int]) -> None:
        """Add a row at the end."""
        self.append_bytes(array(self._code, row))

    def append_bytes(self, row: bytes | array) -> None:
        """Add a row that is given as its bytes."""
        self._bytes += row
        self._ends.append(len(self._bytes))

    def done(self) -> Ragged:
        """Hand the rows over, not copied."""
        values = np.asarray(self._bytes).view(self._code)
        return Ragged(values, np.asarray(self._ends) // values.itemsize)


@dataclass(frozen=True)
class Strings(Items[str]):
    """Strings as rows of their UTF-8 bytes."""

    rows: Ragged

    def __len__(self) -> int:
        return len(self.rows)

    def item(self, n: int) -> str:
        """Decode the n-th string."""
        return self.rows[n].tobytes().decode("utf-8", "surrogatepass")

    def select(self, indices: np.ndarray) -> "Strings":
        """Copy some strings, (M,) int, in their order."""
        return Strings(self.rows.select(indices))


def utf8(string: str) -> bytes:
    """The bytes of a string; half a surrogate pair, which JSON can hold, is no mistake here."""
    return string.encode("utf-8", "surrogatepass")


@dataclass(frozen=True)
class Table(Items[Utterance]):
    """Utterances, read-only, column by column; `table[n]` is an Utterance, made when it is asked for.

    A worker process reads them without copying them, for no Python object is kept of each. Pickled,
    they take no more bytes than here: about 370 an utterance of LibriSpeech.

    ids, paths, texts  as the utterances'
    speakers           empty = None
    rates, samples, channels   (N,) int64, as the utterances'
    picks              (N,) int16, the channel of each; -1 = None
    starts, durations  (N,) float64, seconds
    """

    ids: Strings
    paths: Strings
    texts: Strings
    speakers: Strings
    rates: np.ndarray
    samples: np.ndarray
    channels: np.ndarray
    picks: np.ndarray
    starts: np.ndarray
    durations: np.ndarray

    @classmethod
    def of(cls, utterances: Iterable[Utterance]) -> "Table":
        """Gather utterances, in one pass."""
        strings = [Rows("B") for _ in range(4)]
        numbers: list[array] = [array(code) for code in "qqqhdd"]
        for u in utterances:
            for string, value in zip(strings, (u.id, u.path, u.text, u.speaker or ""), strict=True):
                string.append_bytes(utf8(value))
            pick = -1 if u.channel is None else u.channel
            for column, number in zip(
                numbers, (u.rate, u.samples, u.channels, pick, u.start, u.duration), strict=True
            ):
                column.append(number)
        ids, paths, texts, speakers = (Strings(string.done()) for string in strings)
        return cls(ids, paths, texts, speakers, *map(np.asarray, numbers))

    def __len__(self) -> int:
        return len(self.durations)

    def item(self, n: int) -> Utterance:
        """Make the n-th utterance."""
        return Utterance(
            id=self.ids[n],
            path=self.paths[n],
            rate=int(self.rates[n]),
            samples=int(self.samples[n]),
            channels=int(self.channels[n]),
            start=float(self.starts[n]),
            duration=float(self.durations[n]),
            text=self.texts[n],
            speaker=self.speakers[n] or None,
            channel=None if self.picks[n] < 0 else int(self.picks[n]),
        )

    def select(self, indices: np.ndarray) -> "Table":
        """Copy some utterances, (M,) int, in their order."""
        columns = [getattr(self, field.name) for field in fields(self)]
        return Table(
            *(c[indices] if isinstance(c, np.ndarray) else c.select(indices) for c in columns)
        )


def read(paths: str | os.PathLike | Sequence[str | os.PathLike]) -> Table:
    """Read a manifest, or several as one.

    raises   UserError as `manifest.read` does
    """
    return Table.of(chain.from_iterable(map(manifest.read, manifest.listed(paths))))
