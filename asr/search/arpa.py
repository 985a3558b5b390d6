"""Back-off n-gram models in ARPA files: lines → arrays, checked.

The format: https://www.speech.sri.com/projects/srilm/manpages/ngram-format.5.html. A n-grams of n words.
"""

import gzip
import math
import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from asr.errors import UserError
from asr.say import say

UNKNOWN = 0  # the word <unk>; 1 … V - 2 are the tokenizer's pieces, V - 1 is <s>, V is </s>
LINES = 1 << 16  # parsed at once: bounds the memory
AGAIN = "copy or make the file again"


@dataclass(frozen=True)
class Section:
    """The n-grams of one length: words (A, n) int64, log_probs and backoffs (A,) float32, natural logarithms."""

    words: np.ndarray
    log_probs: np.ndarray
    backoffs: np.ndarray


def read_arpa(path: str | os.PathLike, symbols: Sequence[str]) -> list[Section]:
    """Read the n-grams of the tokenizer's pieces, shortest first; n-grams of other words can't occur and are left out.

    path:     the ARPA file, gzip if it ends in .gz
    symbols:  the tokenizer's names of its V ids, blank first, start/end symbol last
    raises    UserError, with file and line, if the file is absent, damaged, no ARPA, or of other words
    """
    with _open(Path(path)) as lines:
        counts = _counts(lines)
        words, sections = _words_of(symbols), []
        for n, count in enumerate(counts, 1):
            sections.append(_section(lines, n, count, words))
            if n == 1:
                _check_words(lines.path, sections[0].words, count, len(symbols))
                listed = set(sections[0].words[:, 0].tolist())
                words = {word: number for word, number in words.items() if number in listed}
            lines.expect(f"\\{n + 1}-grams:" if n < len(counts) else "\\end\\", f"after {count} {n}-grams")
    return sections


class _Lines:
    """The lines of a file, counted."""

    def __init__(self, path: Path, file: Iterator[bytes]):
        self.path, self.file, self.number = path, file, 0

    def take(self, most: int) -> list[bytes]:
        """The next lines."""
        lines = list(islice(self.file, most))
        self.number += len(lines)
        return lines

    def next(self) -> str:
        """The next line that isn't blank; empty at the end of the file."""
        while line := self.take(1):
            if line[0].strip():
                return line[0].strip().decode(errors="replace")
        return ""

    def expect(self, line: str, place: str) -> None:
        """Read a line that is known."""
        if (got := self.next()) != line:
            raise self.fault(got, f"{line} {place}")

    def fault(self, got: str, expected: str) -> UserError:
        """The error of the line just read, or of the file's early end."""
        if not got:
            return UserError(f"{self.path}: ends after line {self.number}, expected {expected}; {AGAIN}")
        got = repr(got[:60].strip()) if got.strip() else "an empty line"
        return UserError(f"{self.path}:{self.number}: got {got}, expected {expected}; {AGAIN}")


@contextmanager
def _open(path: Path) -> Iterator[_Lines]:
    """The lines of a file; what is wrong with it as a UserError."""
    lines = _Lines(path, iter(()))
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            lines.file = file
            yield lines
    except FileNotFoundError:
        raise UserError(f"{path}: no such n-gram model; asr-ngram makes one") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: damaged after line {lines.number} ({error}); {AGAIN}") from None
    except OSError as error:
        raise UserError(f"{path}: can't be read ({error.strerror})") from None


def _counts(lines: _Lines) -> list[int]:
    """How many n-grams of each length the header announces."""
    while (line := lines.next()).startswith("#"):
        pass
    if line != "\\data\\":
        got = f"line {lines.number} is {line[:40]!r}" if line else "it is empty"
        raise UserError(f"{lines.path}: {got}, expected '\\data\\', as an ARPA file begins; asr-ngram makes one")
    counts = []
    while match := re.fullmatch(rf"ngram {len(counts) + 1}\s*=\s*(\d+)", line := lines.next()):
        counts.append(int(match[1]))
    if not counts or line != "\\1-grams:":
        wanted = f"'ngram {len(counts) + 1}=<number>'"
        raise lines.fault(line, f"{wanted} or \\1-grams:" if counts else wanted)
    return counts


def _words_of(symbols: Sequence[str]) -> dict[bytes, int]:
    """Words as the file writes them → their numbers."""
    V = len(symbols)
    pieces = {symbols[n].encode(): n for n in range(1, V - 1)}
    return pieces | {b"<unk>": UNKNOWN, b"<UNK>": UNKNOWN, b"<s>": V - 1, b"</s>": V}


def _section(lines: _Lines, n: int, count: int, words: Mapping[bytes, int]) -> Section:
    """Read the n-grams of one length, as many as the header says; those of unknown words are left out."""
    parts, read = [(np.empty((0, n), np.int64), np.empty((0, 2)))], 0
    while read < count:
        chunk = lines.take(min(LINES, count - read)) or [b""]
        found = [_columns(group, n, words) for group in _groups(chunk)]
        if None in found:
            at = next(at for at, line in enumerate(chunk) if _columns([line], n, words) is None)
            lines.number -= len(chunk) - at - 1
            form = f"a log10 probability, {n} word{'s'[: n - 1]}, perhaps a back-off weight"
            raise lines.fault(chunk[at].decode(errors="replace"), f"{n}-gram {read + at + 1} of {count}: {form}")
        parts += found
        read += len(chunk)
    ids, log10 = (np.concatenate(x) for x in zip(*parts, strict=True))
    known = (ids >= 0).all(1)
    return Section(ids[known], *(log10[known].T * math.log(10)).astype(np.float32))


def _groups(chunk: Sequence[bytes]) -> list[list[bytes]]:
    """Lines of the same number of fields: with and without back-off weight."""
    groups = {}
    for line in chunk:
        groups.setdefault(len(line.split()), []).append(line)
    return list(groups.values())


def _columns(group: Sequence[bytes], n: int, words: Mapping[bytes, int]) -> tuple[np.ndarray, np.ndarray] | None:
    """Words (A, n), -1 where unknown, and (A, 2) log10 probabilities and back-off weights; None if a line is amiss.

    The lines have one number of fields.
    """
    fields = b" ".join(group).split()
    width = len(fields) // len(group)
    if not n < width < n + 3:
        return None
    ids = [[words.get(word, -1) for word in fields[k::width]] for k in range(1, n + 1)]
    log10 = np.zeros((len(group), 2))
    try:
        for column, k in enumerate(range(0, width, n + 1)):
            log10[:, column] = np.fromiter(map(float, fields[k::width]), float)
    except ValueError:
        return None
    good = (log10[:, 0] <= 0).all() and np.isfinite(log10[:, 1]).all()
    return (np.array(ids).T, log10) if good else None


def _check_words(path: Path, words: np.ndarray, count: int, V: int) -> None:
    """See that most of the file's words are pieces, and that sentences start and end; say how many are none."""
    pieces = int(((words > UNKNOWN) & (words < V - 1)).sum())
    if count - len(words) > pieces:
        raise UserError(
            f"{path}: {pieces} of its {count} words are pieces of the tokenizer, expected most; make a model of such "
            f"pieces with asr-ngram"
        )
    if count > len(words):
        say(f"{path}: {count - len(words)} of its {count} words are no pieces of this tokenizer; is it of another one?")
    for word, name in ((V - 1, "<s>"), (V, "</s>")):
        if word not in words:
            raise UserError(f"{path}: its 1-grams lack {name}; expected <s> and </s>, for sentences start and end")
