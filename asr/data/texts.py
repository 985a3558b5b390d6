"""Texts of a file: plain text with a sentence a line, or a manifest's texts."""

import gzip
import io
import itertools
import os
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from asr.data import manifest
from asr.errors import UserError

BLOCK = 1 << 20  # bytes of lines that are read at a time
UTTERANCES = 10_000  # of a manifest, likewise


class Text(NamedTuple):
    """One sentence, as it stands in its file.

    where   file and line, or file and utterance id, for messages
    line    of the file, from 1 (of a manifest: the utterance's number)
    text    not normalised, perhaps empty
    """

    where: str
    line: int
    text: str


class Block(NamedTuple):
    """Some neighbouring lines of a file, not yet decoded, so that another process can do that.

    path      of the file
    first     number of the first line, from 1
    lines     as bytes; of a manifest as Texts
    position  bytes of the file that have been read, up to the end of the block or somewhat further
    """

    path: str
    first: int
    lines: list[bytes] | list[Text]
    position: int


def read(path: str | os.PathLike) -> Iterator[Text]:
    """Yield the texts of a UTF-8 text file, `.gz` or not, or of a manifest, `.jsonl` or `.jsonl.gz`.

    raises   UserError if the file is absent, damaged or no UTF-8; names file and line
    """
    for block in blocks(path):
        yield from parse(block)


def blocks(path: str | os.PathLike) -> Iterator[Block]:
    """Yield a file's lines in blocks, the same at every reading; arguments and errors as of `read`."""
    path = str(path)
    if path.endswith((".jsonl", ".jsonl.gz")):
        return _blocks_of_manifest(path)
    return _blocks_of_text(path)


def parse(block: Block) -> Iterator[Text]:
    """Yield the texts of a block.

    raises   UserError if a line is no UTF-8; names file and line
    """
    for number, line in enumerate(block.lines, block.first):
        try:
            where = f"{block.path}:{number}"
            yield line if isinstance(line, Text) else Text(where, number, _decode(line, number))
        except UnicodeDecodeError as error:
            raise UserError(f"{where}: not UTF-8 text (byte {error.start + 1} of the line)") from None


def _decode(line: bytes, number: int) -> str:
    return line.decode("utf-8-sig" if number == 1 else "utf-8")


def _blocks_of_manifest(path: str) -> Iterator[Block]:
    texts = (Text(f"{path}: {u.id}", number, u.text) for number, u in enumerate(manifest.read(path), 1))
    while lines := list(itertools.islice(texts, UTTERANCES)):
        yield Block(path, lines[0].line, lines, 0)


def _blocks_of_text(path: str) -> Iterator[Block]:
    number = 0
    try:
        with open(path, "rb") as raw:
            file = io.BufferedReader(gzip.GzipFile(fileobj=raw), BLOCK) if path.endswith(".gz") else raw
            while lines := file.readlines(BLOCK):
                yield Block(path, number + 1, lines, raw.tell())
                number += len(lines)
    except FileNotFoundError:
        raise UserError(f"{path}: no such text file; expected a sentence a line, or a manifest (.jsonl.gz)") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: damaged after line {number} ({error}); copy it again") from None
    except OSError as error:
        raise UserError(f"{path}: can't be read ({error.strerror})") from None
