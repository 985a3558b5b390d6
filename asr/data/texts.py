"""The texts of a file: plain text with one sentence per line, or the texts of a manifest."""

import gzip
import io
import itertools
import os
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from asr.bounded import read_lines
from asr.data import manifest
from asr.errors import UserError

GZIP = b"\x1f\x8b"  # how its files begin
BLOCK = 1 << 20  # bytes of lines that are read at a time
UTTERANCES = 10_000  # of a manifest, likewise


class Text(NamedTuple):
    """One sentence, as it stands in its file.

    where   file and line, or file and utterance id, for messages
    line    of the file, from 1 (of a manifest: the utterance's number)
    text    not normalized, perhaps empty
    """

    where: str
    line: int
    text: str


class Block(NamedTuple):
    """Some neighboring lines of a file, not yet decoded, so that another process can do that.

    path      of the file
    first     number of the first line, from 1
    lines     as bytes; of a manifest as Texts
    position  bytes of the file that have been read, up to the end of the block or somewhat further
    """

    path: str
    first: int
    lines: Sequence[bytes | Text]
    position: int


def read(path: str | os.PathLike) -> Iterator[Text]:
    """Yield the texts of a UTF-8 text file, `.gz` or not, or of a manifest, `.jsonl` or `.jsonl.gz`.

    raises   UserError if the file is absent, damaged, no UTF-8, or has a line of more than 16 MB;
             names file and line
    """
    for block in blocks(path):
        yield from parse(block)


def blocks(path: str | os.PathLike) -> Iterator[Block]:
    """Yield a file's lines in blocks, the same at every reading; see `read` for arguments and errors."""
    path = str(path)
    if path.endswith((".jsonl", ".jsonl.gz")):
        return _blocks_of_manifest(path)
    return _blocks_of_text(path)


def parse(block: Block) -> Iterator[Text]:
    """Yield the texts of a block.

    raises   UserError if a line is no UTF-8; names file and line
    """
    for number, line in enumerate(block.lines, block.first):
        if isinstance(line, Text):
            yield line
            continue
        where = f"{block.path}:{number}"
        try:
            text = _decode(line, number)
        except UnicodeDecodeError as error:
            if number == 1 and line.startswith(GZIP):
                raise UserError(
                    f"{where}: is packed by gzip; give it a name that ends in .gz"
                ) from None
            raise UserError(
                f"{where}: not UTF-8 text (byte {error.start + 1} of the line)"
            ) from None
        yield Text(where, number, text)


def _decode(line: bytes, number: int) -> str:
    return line.decode("utf-8-sig" if number == 1 else "utf-8")


def _block(lines: Iterator[bytes]) -> list[bytes]:
    """Take lines until they are more than a block's size, as `readlines` does."""
    block, size = [], 0
    for line in lines:
        block.append(line)
        size += len(line)
        if size > BLOCK:
            break
    return block


def _blocks_of_manifest(path: str) -> Iterator[Block]:
    texts = (
        Text(f"{path}: {u.id}", number, u.text) for number, u in enumerate(manifest.read(path), 1)
    )
    while lines := list(itertools.islice(texts, UTTERANCES)):
        yield Block(path, lines[0].line, lines, 0)


def _blocks_of_text(path: str) -> Iterator[Block]:
    number = 0
    try:
        with open(path, "rb") as raw:
            file = (
                io.BufferedReader(gzip.GzipFile(fileobj=raw), BLOCK)
                if path.endswith(".gz")
                else raw
            )
            lines = read_lines(file, path)
            while block := _block(lines):
                yield Block(path, number + 1, block, raw.tell())
                number += len(block)
    except FileNotFoundError:
        raise UserError(
            f"{path}: no such text file; expected one sentence per line, or a manifest (.jsonl.gz)"
        ) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: damaged after line {number} ({error}); copy it again") from None
    except OSError as error:
        raise UserError(f"{path}: can't be read ({error.strerror})") from None
    except ValueError:  # of open
        raise UserError(f"{path!a}: no such text file: a file's name has no NUL") from None
