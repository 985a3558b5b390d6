"""Many short sequences as one array with offsets: token ids of sentences; and strings, which are sequences of bytes.

A million rows are two objects. A list of a million lists would be copied, page by page, into every
data worker: a worker counts references, and so writes into the objects that it only reads.
"""

from abc import abstractmethod
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar, overload

import numpy as np

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
        found = np.empty(0, np.int64)
        for first in range(0, len(self), AT_ONCE):
            rows = np.concatenate([found, np.arange(first, min(first + AT_ONCE, len(self)))])
            found = rows[np.argsort(-self.lens_of(rows), kind="stable")[:n]]
        return found.tolist()

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
