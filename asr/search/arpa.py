"""Back-off n-gram models in ARPA files: lines → arrays, checked.

The format: https://www.speech.sri.com/projects/srilm/manpages/ngram-format.5.html. A n-grams of n
words.
"""

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase, BytesIO
from pathlib import Path
from typing import IO

import numpy as np

from asr.errors import UserError
from asr.files import DAMAGED, unpacked
from asr.logging import logger

UNKNOWN = 0  # the word <unk>; 1 … V - 2 are the tokenizer's pieces, V - 1 is <s>, V is </s>
LINES, AT_ONCE = 1 << 16, 1 << 24  # lines and bytes that are parsed at once: bounds the memory
LINE = 1 << 16  # bytes of a line, at most; it holds a few tokens
DIGITS = 12  # of a count
AGAIN = "copy or make the file again"


@dataclass(frozen=True)
class Section:
    """The n-grams of one length: words (A, n) int64; (A,) float32 natural logarithms."""

    words: np.ndarray
    log_probs: np.ndarray
    backoffs: np.ndarray


def read_arpa(path: str | os.PathLike, symbols: Sequence[str]) -> list[Section]:
    """Read the n-grams of the tokenizer's pieces, shortest first; n-grams of other words can't occur and are left out.

    path:     the ARPA file, gzip if it ends in .gz
    symbols:  the tokenizer's names of its V ids, blank first, start/end symbol last
    raises    UserError, with file and line, if the file is absent, damaged, no ARPA, or of other
              words
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
            lines.expect(
                f"\\{n + 1}-grams:" if n < len(counts) else "\\end\\", f"after {count} {n}-grams"
            )
    return sections


class _Lines:
    """The lines of a file, counted."""

    def __init__(self, path: Path, file: IO[bytes] | BufferedIOBase):
        self.path, self.file, self.number = path, file, 0

    def take(self, most: int) -> list[bytes]:
        """Read the next lines, `most` at most.

        raises   UserError for one that is too long
        """
        lines: list[bytes] = []
        size = 0
        while len(lines) < most and size < AT_ONCE and (line := self.file.readline(LINE + 1)):
            self.number += 1
            if len(line) > LINE:
                raise UserError(
                    f"{self.path}:{self.number}: a line of more than {LINE:,} bytes; {AGAIN}"
                )
            lines.append(line)
            size += len(line)
        return lines

    def next(self) -> str:
        """Read the next line that isn't blank; empty at the end of the file."""
        while line := self.take(1):
            if line[0].strip():
                return line[0].strip().decode(errors="replace")
        return ""

    def expect(self, line: str, place: str) -> None:
        """Read a line that is known."""
        if (got := self.next()) != line:
            raise self.fault(got, f"{line} {place}")

    def fault(self, got: str, expected: str) -> UserError:
        """Return the error of the line just read, or of the file's early end."""
        if not got:
            return UserError(
                f"{self.path}: ends after line {self.number}, expected {expected}; {AGAIN}"
            )
        got = repr(got[:60].strip()) if got.strip() else "an empty line"
        return UserError(f"{self.path}:{self.number}: got {got}, expected {expected}; {AGAIN}")


@contextmanager
def _open(path: Path) -> Iterator[_Lines]:
    """Open the lines of a file; raise what is wrong with it as a UserError."""
    lines = _Lines(path, BytesIO())
    try:
        with open(path, "rb") as file:
            lines.file = unpacked(file, path)
            yield lines
    except FileNotFoundError:
        raise UserError(f"{path}: no such n-gram model; asr-ngram makes one") from None
    except DAMAGED as error:
        raise UserError(f"{path}: damaged after line {lines.number} ({error}); {AGAIN}") from None
    except OSError as error:
        raise UserError(f"{path}: can't be read ({error.strerror})") from None
    except MemoryError:
        raise UserError(
            f"{path}: is too large for this machine's memory (after line {lines.number})"
        ) from None


def _counts(lines: _Lines) -> list[int]:
    """Read how many n-grams of each length there are, from the header."""
    while (line := lines.next()).startswith("#"):
        pass
    if line != "\\data\\":
        got = f"line {lines.number} is {line[:40]!r}" if line else "it is empty"
        raise UserError(
            f"{lines.path}: {got}, expected '\\data\\', as an ARPA file begins; asr-ngram makes one"
        )
    counts: list[int] = []
    while match := re.fullmatch(rf"ngram {len(counts) + 1}\s*=\s*(\d+)", line := lines.next()):
        if len(match[1]) > DIGITS:
            raise lines.fault(line, f"a count of {DIGITS} digits at most")
        counts.append(int(match[1]))
    if not counts or line != "\\1-grams:":
        wanted = f"'ngram {len(counts) + 1}=<number>'"
        raise lines.fault(line, f"{wanted} or \\1-grams:" if counts else wanted)
    return counts


def _words_of(symbols: Sequence[str]) -> dict[bytes, int]:
    """Map words as the file writes them to their numbers."""
    V = len(symbols)
    pieces = {symbols[n].encode(): n for n in range(1, V - 1)}
    return pieces | {b"<unk>": UNKNOWN, b"<UNK>": UNKNOWN, b"<s>": V - 1, b"</s>": V}


def _section(lines: _Lines, n: int, count: int, words: Mapping[bytes, int]) -> Section:
    """Read the n-grams of one length; those of unknown words are left out."""
    parts: list[tuple[np.ndarray, np.ndarray]] = [(np.empty((0, n), np.int64), np.empty((0, 2)))]
    read = 0
    while read < count:
        chunk = lines.take(min(LINES, count - read)) or [b""]
        found = [_columns(group, n, words) for group in _groups(chunk)]
        if None in found:
            at = next(at for at, line in enumerate(chunk) if _columns([line], n, words) is None)
            lines.number -= len(chunk) - at - 1
            form = f"a log10 probability, {n} word{'s'[: n - 1]}, perhaps a back-off weight"
            raise lines.fault(
                chunk[at].decode(errors="replace"), f"{n}-gram {read + at + 1} of {count}: {form}"
            )
        parts += [columns for columns in found if columns]
        read += len(chunk)
    ids, log10 = (np.concatenate(x) for x in zip(*parts, strict=True))
    known = (ids >= 0).all(1)
    return Section(ids[known], *(log10[known].T * math.log(10)).astype(np.float32))


def _groups(chunk: Sequence[bytes]) -> list[list[bytes]]:
    """Group lines by their number of fields: with and without back-off weight."""
    groups: dict[int, list[bytes]] = {}
    for line in chunk:
        groups.setdefault(len(line.split()), []).append(line)
    return list(groups.values())


def _columns(
    group: Sequence[bytes], n: int, words: Mapping[bytes, int]
) -> tuple[np.ndarray, np.ndarray] | None:
    """Parse words (A, n), -1 if unknown, and log10 probabilities and back-off weights (A, 2); None if a line is wrong.

    The lines have the same number of fields.
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
    """See that most words are pieces, and that sentences start and end; warn of other words."""
    pieces = int(((words > UNKNOWN) & (words < V - 1)).sum())
    if count - len(words) > pieces or not pieces:
        raise UserError(
            f"{path}: {pieces} of its {count} words are pieces of the tokenizer, expected most; make a model of such "
            f"pieces with asr-ngram"
        )
    if count > len(words):
        strange = count - len(words)
        logger.warning(
            f"{path}: {strange} of its {count} words are no pieces of this tokenizer; is it of another one?"
        )
    for word, name in ((V - 1, "<s>"), (V, "</s>")):
        if word not in words:
            raise UserError(
                f"{path}: its 1-grams lack {name}; expected <s> and </s>, for sentences start and end"
            )
