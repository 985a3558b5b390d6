"""Capture what a decoder writes to stderr by itself: libmpg123 names no file, and complains about good ones."""

import contextlib
import os
import re
import tempfile
import threading
from collections.abc import Iterator
from functools import lru_cache
from typing import IO

# libmpg123's formats; other lines that arrive meanwhile belong to other threads
DECODER = re.compile(
    rb"\[[^\]\n]*libmpg123.*|(?:Note|Warning|Error): (?:.*(?:MPEG|Xing|resync|LAME|ID3|end of track|real sample count|"
    rb"input|frame|header).*)|\s*Skipped \d+ bytes.*"
)
HARMLESS = re.compile(  # after a seek, at the start of a part cut from a stream, and about numbers in a header
    rb"part2_3_length|missing bits|bit reservoir|Xing stream size|end of track|ID3|tag"
)
LOCK = threading.Lock()
MOST = 1 << 20  # bytes of its output that are examined


@contextlib.contextmanager
def caught() -> Iterator[list[str]]:
    """Capture what native code writes to stderr; pass on the lines of other threads.

    yields  a list that in the end holds the decoder's complaints, except harmless ones

    Native code writes to the file descriptor, which belongs to the process, so only one thread at a
    time can do this.
    """
    share_with_children()
    complaints: list[str] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(LOCK)
        try:
            file = stack.enter_context(scratch())
            kept = os.dup(2)
        except OSError:  # stderr is closed, or there is no scratch file: don't capture anything
            yield complaints
            return
        try:
            os.dup2(file.fileno(), 2)
            yield complaints
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            if size := os.fstat(file.fileno()).st_size:
                complaints += sort(os.pread(file.fileno(), min(size, MOST), 0))


def scratch() -> IO[bytes]:
    """Open a file without a name, in memory if the system supports that."""
    return (
        open(os.memfd_create("asr"), "w+b")
        if hasattr(os, "memfd_create")
        else tempfile.TemporaryFile()
    )


def sort(written: bytes) -> list[str]:
    """Extract a decoder's complaints from what was written; pass everything else on to stderr."""
    complaints: list[str] = []
    for line in written.splitlines(keepends=True):
        if line == b"\n":
            continue
        if not DECODER.match(line):
            with contextlib.suppress(OSError):
                os.write(2, line)
        elif not HARMLESS.search(line):
            complaints.append(line.decode(errors="replace").strip().split("] ")[-1])
    return complaints


@lru_cache(1)
def share_with_children() -> None:
    """Let a process fork only while nothing is captured: a child would have no stderr, and a lock forever."""
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(
            before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release
        )
