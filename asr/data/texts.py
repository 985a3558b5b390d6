"""The texts of a file (one sentence per line, or those of a manifest), and their token ids in one array.

Several processes encode them, and so without PyTorch.
"""

import itertools
import os
import signal
import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache, partial
from multiprocessing import connection, get_context, parent_process
from typing import NamedTuple

import numpy as np

from asr.audio.first_bytes import looks_like_sound
from asr.data import manifest
from asr.data.columns import Ragged, Rows
from asr.errors import UserError, shorten
from asr.files import DAMAGED, read_lines, unpacked
from asr.provenance import cores
from asr.text import tokenizer as tokenizers
from asr.text.tokenizer import Tokenizer

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
    column    of a table of two texts a line, 0 or 1; None: a line is a text
    position  bytes of the file that have been read, up to the end of the block or somewhat further
    """

    path: str
    first: int
    lines: Iterable[bytes | Text]
    position: int
    column: int | None = None


def read(path: str | os.PathLike, column: int | None = None) -> Iterator[Text]:
    """Yield the texts of a UTF-8 text file, `.gz` or not, or of a manifest, `.jsonl` or `.jsonl.gz`.

    column   0 or 1, of a file whose lines are `text<TAB>text`; None: a line is a text
    raises   UserError if the file is absent, damaged, no UTF-8, or has a line of more than 16 MB;
             names file and line
    """
    for block in blocks(path, column):
        yield from parse(block)


def blocks(path: str | os.PathLike, column: int | None = None) -> Iterator[Block]:
    """Yield a file's lines in blocks, the same at every reading; see `read` for arguments and errors."""
    path = str(path)
    if is_manifest(path):
        if column is not None:
            raise UserError(
                f"{path}: a manifest has one text an utterance; give [source, target], or a table of both"
            )
        return _blocks_of_manifest(path)
    return _blocks_of_text(path, column)


def is_manifest(path: str) -> bool:
    """Tell by its name whether a file of texts is a manifest."""
    return path.endswith((".jsonl", ".jsonl.gz"))


def parse(block: Block) -> Iterator[Text]:
    """Yield the texts of a block.

    raises   UserError if a line is no UTF-8, or not of two columns where one is to be taken; names
             file and line
    """
    for number, line in enumerate(block.lines, block.first):
        if isinstance(line, Text):
            yield line
            continue
        where = f"{block.path}:{number}"
        try:
            text = _decode(line, number)
        except UnicodeDecodeError as error:
            head = line if number == 1 else b""
            if head.startswith(GZIP):
                fault = "is packed by gzip; give it a name that ends in .gz"
            elif looks_like_sound(head):
                fault = "is sound; expected text, one sentence per line"
            else:
                fault = f"not UTF-8 text (byte {error.start + 1} of the line)"
            raise UserError(f"{where}: {fault}") from None
        yield Text(
            where, number, text if block.column is None else _cell(where, text, block.column)
        )


def no_table(text: Text) -> Text:
    """Return a text where a sentence is expected.

    raises   UserError if it has a tab, as the lines of a table do
    """
    if "\t" in text.text.strip():
        raise UserError(
            f"{text.where}: has a tab, as a table's lines do, expected a sentence; "
            "cut -f takes a column, tr '\\t' ' ' makes tabs spaces"
        )
    return text


def _cell(where: str, line: str, column: int) -> str:
    """Take a column of a line."""
    if not line.strip():
        return ""
    cells = line.split("\t")
    if len(cells) != 2:
        raise UserError(
            f"{where}: got {len(cells)} columns, expected 2: source text, a tab, target text"
        )
    return cells[column]


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


def _blocks_of_text(path: str, column: int | None) -> Iterator[Block]:
    number = 0
    try:
        with open(path, "rb") as raw:
            lines = read_lines(unpacked(raw, path), path)
            while block := _block(lines):
                yield Block(path, number + 1, block, raw.tell(), column)
                number += len(block)
    except FileNotFoundError:
        raise UserError(
            f"{path}: no such text file; expected one sentence per line, or a manifest (.jsonl.gz)"
        ) from None
    except DAMAGED as error:
        raise UserError(f"{path}: damaged after line {number} ({error}); copy it again") from None
    except OSError as error:
        raise UserError(f"{path}: can't be read ({error.strerror})") from None
    except ValueError:  # of open
        raise UserError(f"{path!a}: no such text file: a file's name has no NUL") from None


@dataclass(frozen=True)
class Sentences:
    """A tokenized text, in memory or mapped from disk. A token takes one, two or four bytes, as the vocabulary needs; a
    sentence twelve more.

    path     of its file
    labels   token ids of each sentence
    lines    (S,) int32, the line of the file that each stands in
    words    of all sentences together: what white space separates
    empty    lines without a word, skipped
    long     lines of more tokens than were allowed, left out
    again    what maps the text from disk, and its arguments, for another process; None of a text in
             memory
    """

    path: str
    labels: Ragged
    lines: np.ndarray
    words: int
    empty: int
    long: list[int]
    again: tuple[Callable[..., "Sentences"], tuple] | None = None

    def __reduce_ex__(self, protocol):
        return self.again or super().__reduce_ex__(protocol)

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, n: int) -> np.ndarray:
        return self.labels[n]

    @property
    def lens(self) -> np.ndarray:
        """Tokens of each, (S,)."""
        return self.labels.lens

    @property
    def dropped(self) -> str:
        """List the sentences that were left out, `file:line<TAB>reason` a line, for a file."""
        return "".join(f"{self.path}:{line}\tmore tokens than max_tokens\n" for line in self.long)

    @property
    def message(self) -> str:
        """Count what was taken, skipped and left out."""
        parts = [f"{len(self)} sentences, {self.words} words, {len(self.labels.values)} tokens"]
        parts += [f"{self.empty} empty lines skipped"] * bool(self.empty)
        parts += [
            f"{len(self.long)} too long ones left out (lines {shorten(map(str, self.long))})"
        ] * bool(self.long)
        return "; ".join(parts)


def tokenize(
    path: str | os.PathLike,
    tokenizer: Tokenizer,
    max_tokens: int | None = None,
    column: int | None = None,
) -> Sentences:
    """Read and tokenize a text file or a manifest's texts (`read`).

    max_tokens  of a sentence; None = any number
    column      as in `read`
    raises      UserError if the file can't be read, holds no sentence, or one with a character that
                the tokenizer doesn't know; names file and line
    """
    return gather(path, read(path, column), tokenizer, max_tokens)


def gather(
    path: str | os.PathLike,
    read: Iterable[Text],
    tokenizer: Tokenizer,
    max_tokens: int | None = None,
) -> Sentences:
    """Tokenize the texts that were read from a file; as `tokenize`."""
    sentences = encode(path, read, tokenizer, max_tokens)
    if not len(sentences):
        raise none_to_use(path, len(sentences.long), max_tokens)
    return sentences


def none_to_use(path: str | os.PathLike, long: int, max_tokens: int | None) -> UserError:
    """Make the error for a text without sentences, except some that are too long."""
    left_out = f"; {long} sentences are longer than max_tokens={max_tokens}" if long else ""
    return UserError(f"{path}: holds no sentence to use{left_out}")


def encode(
    path: str | os.PathLike, read: Iterable[Text], tokenizer: Tokenizer, max_tokens: int | None
) -> Sentences:
    """Tokenize a part of a text, in which there may be no sentence to use; else as `gather`."""
    labels, lines, long = Rows.of_ids(tokenizer.vocabulary), array("i"), []
    words = empty = 0
    for where, line, text in read:
        count = len(text.split())
        ids = tokenizer.encode(text, where) if count else []
        if not ids:
            empty += 1
        elif max_tokens and len(ids) > max_tokens:
            long.append(line)
        else:
            labels.append(ids)
            lines.append(line)
            words += count
    return Sentences(str(path), labels.done(), np.asarray(lines), words, empty, long)


FEW = 16  # blocks that this process has tokenized before others have started
AHEAD = 4  # blocks that wait for a process or its reader

load = lru_cache(1)(tokenizers.load)


def encoded(
    path: str, blocks: Iterable[Block], tokenizer: str, max_tokens: int
) -> Iterator[Sentences]:
    """Tokenize blocks of a text, in order; with as many processes as there are cores where the text is large.

    tokenizer   its folder
    raises      UserError as `sentences.tokenize` does, but for a text without a sentence
    """
    task, blocks = partial(encode_block, tokenizer=tokenizer, max_tokens=max_tokens), iter(blocks)
    few = list(itertools.islice(blocks, FEW + 1))
    if len(few) <= FEW or cores() == 1:
        return map(task, itertools.chain(few, blocks))
    return in_processes(path, task, itertools.chain(few, blocks))


def encode_block(block: Block, tokenizer: str, max_tokens: int) -> Sentences:
    """Tokenize one block."""
    return encode(block.path, parse(block), load(tokenizer), max_tokens)


def in_processes(path: str, task: partial, blocks: Iterable[Block]) -> Iterator[Sentences]:
    """Hand blocks to processes, and yield what comes back, in order."""
    pool = ProcessPoolExecutor(cores(), get_context("spawn"), leave_to_the_parent)
    waiting: deque[Future[Sentences]] = deque()
    try:
        for block in blocks:
            waiting.append(pool.submit(task, block))
            if len(waiting) > AHEAD * cores():
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise UserError(
            f"{path}: a process that tokenized it was killed; out of memory? Run it again to go on"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def leave_to_the_parent() -> None:
    """In a process of the pool: pass over the terminal's signal, and end when the parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent, "a pool's process has one"
    ended = parent.sentinel

    def follow() -> None:
        connection.wait([ended])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
