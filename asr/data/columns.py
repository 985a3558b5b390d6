"""The utterances of a manifest in memory: a few arrays, whatever their number."""

import os
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import chain

import numpy as np

from asr.data import manifest
from asr.data.manifest import Utterance
from asr.data.ragged import Items, Rows, Strings, utf8


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
