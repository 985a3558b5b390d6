"""Tokenize the blocks of a text in several processes."""

import itertools
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache, partial
from multiprocessing import connection, get_context, parent_process

from asr.data import texts
from asr.data.sentences import Sentences, encode
from asr.data.texts import Block
from asr.errors import UserError
from asr.provenance import cores
from asr.text import tokenizer as tokenizers

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
