"""Sentences as token ids, all of a text in one array, made by several processes, and so without PyTorch."""

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

import numpy as np

from asr.data import texts
from asr.data.ragged import Ragged, Rows
from asr.data.texts import Block, Text
from asr.errors import UserError, shorten
from asr.provenance import cores
from asr.text import tokenizer as tokenizers
from asr.text.tokenizer import Tokenizer


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
    path: str | os.PathLike, tokenizer: Tokenizer, max_tokens: int | None = None
) -> Sentences:
    """Read and tokenize a text file or a manifest's texts (`texts.read`).

    max_tokens  of a sentence; None = any number
    raises      UserError if the file can't be read, holds no sentence, or one with a character that
                the tokenizer doesn't know; names file and line
    """
    return gather(path, texts.read(path), tokenizer, max_tokens)


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
    return encode(block.path, texts.parse(block), load(tokenizer), max_tokens)


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
