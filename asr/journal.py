"""Finished work of a long command, kept beside its output until that is complete.

A journal is a file of lines, `CRC32 JSON`. The first names the work (what makes the results: model,
options). Each other line holds one finished result and its key (what it is the result of: a
recording and its state). Results are only ever appended, one per write, so the process may be
killed at any moment: a torn last line is cut off, and the result of a damaged one is computed
again. A journal of other work is set aside, not overwritten. Results are read from the file when
they are needed; memory holds only their positions.
"""

import contextlib
import hashlib
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from asr.errors import UserError
from asr.files import UNWRITABLE, make_folder
from asr.logging import logger

VERSION = 1
LINE = re.compile(rb"[0-9a-f]{8} \{")


def beside(output: str | os.PathLike) -> Path:
    """Return the path of an output's journal."""
    output = Path(output)
    return output.with_name(f".{output.name}.journal")


class Journal:
    """Keep the finished results of one work, within `with`; no second process can open it meanwhile.

    path     of the journal; None keeps the results in memory
    work     identifies what makes the results, JSON-like: a journal of other work is moved to
             `PATH.before`
    raises   UserError if another process has it open, or it can't be written
    """

    def __init__(self, path: str | os.PathLike | None, work: Mapping):
        self.path: Any = None if path is None else Path(path)
        self._work = json.loads(json.dumps(dict(work)))
        self._places: dict[bytes, int] = {}
        self._seconds: dict[bytes, tuple[float, float]] = {}
        self._memory: dict[str, dict] = {}
        self._file: Any = None  # unbuffered: what a write has returned from is in the file
        self._reader: Any = None

    def __enter__(self) -> "Journal":
        if self.path is None:
            return self
        make_folder(self.path.parent)
        with self._full_disk_explained():
            self._open()
            if not self._read():
                self._open()
                self._append({"version": VERSION, "work": self._work})
        return self

    def _open(self) -> None:
        """Open the file, for this process alone."""
        self._close()
        self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115 - open as long as the journal
        self._reader = open(self.path, "rb")  # noqa: SIM115
        self._lock()

    def __exit__(self, *_: object) -> None:
        self._close()
        if not self._places:
            self.remove()  # it holds nothing to go on with

    def __contains__(self, key: str) -> bool:
        return key in self._memory or _digest(key) in self._places

    def __len__(self) -> int:
        return len(self._places) + len(self._memory)

    def add(self, key: str, result: Mapping, audio: float, seconds: float) -> None:
        """Keep a finished result.

        audio, seconds   of the recording, and what it took
        raises           UserError if the disk is full; what was kept before stays
        """
        self._seconds[_digest(key)] = audio, seconds
        if self._file is None:
            self._memory[key] = dict(result)
            return
        with self._full_disk_explained():
            line = {"key": key, "audio": audio, "seconds": round(seconds, 4), "result": result}
            self._places[_digest(key)] = self._append(line)

    def get(self, key: str) -> dict:
        """Return the result of a key that is `in` the journal."""
        if self._file is None:
            return self._memory[key]
        with self._full_disk_explained():
            self._reader.seek(self._places[_digest(key)])
            line = _parse(self._reader.readline())
        if line is None:
            raise UserError(f"{self.path}: damaged while it was used; run the same command again")
        return line["result"]

    def seconds(self, keys: Iterable[str]) -> tuple[float, float]:
        """Sum the seconds of audio of these keys, where finished, and the seconds that they took."""
        found = [self._seconds[name] for key in keys if (name := _digest(key)) in self._seconds]
        return sum(audio for audio, _ in found), sum(seconds for _, seconds in found)

    def forget(self, key: str) -> None:
        """Free the memory of a result that isn't needed any more; a result in a file stays."""
        self._memory.pop(key, None)

    def remove(self) -> None:
        """Remove the file: the output is complete."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def _read(self) -> bool:
        """Read what is there; False if it is nothing, or other work."""
        header = self._reader.readline()
        first = _parse(header)
        if first is None or first.get("version") != VERSION or first.get("work") != self._work:
            if not LINE.match(header) and len(header) > len("00000000 "):
                raise UserError(f"{self.path}: isn't a journal of finished work; move it away")
            if self._reader.readline():  # it has results
                aside = self.path.with_name(f"{self.path.name}.before")
                what = (
                    "finished work of another model or other options"
                    if first
                    else "finished work, but is damaged"
                )
                logger.warning(
                    f"{self.path}: holds {what}; it is kept as {aside.name}, and all work begins again"
                )
                os.replace(self.path, aside)
            else:
                self._file.truncate(0)
            return False
        begin = end = len(header)
        for raw in self._reader:
            begin, end = end, end + len(raw)
            if not raw.endswith(b"\n"):  # the last, which a kill or a full disk has cut
                self._file.truncate(begin)
                break
            line = _parse(raw)
            if line is None:
                logger.warning(
                    f"{self.path}: a damaged line is skipped, and its work is done again"
                )
                continue
            self._places[_digest(line["key"])] = begin
            self._seconds[_digest(line["key"])] = line["audio"], line["seconds"]
        return True

    def _append(self, line: Mapping) -> int:
        """Write one line in one piece; return where it begins."""
        content = json.dumps(line, ensure_ascii=False).encode("utf-8", "surrogatepass")
        left, place = b"%08x %s\n" % (zlib.crc32(content), content), self._file.seek(0, os.SEEK_END)
        while left:  # a disk that is nearly full takes a part
            left = left[self._file.write(left) :]
        return place

    def _close(self) -> None:
        for file in (self._file, self._reader):
            if file:
                file.close()

    def _lock(self) -> None:
        try:
            import fcntl

            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            self._close()
            raise UserError(
                f"{self.path}: another process is at this work; wait for it, or choose another output"
            ) from None
        except (ImportError, OSError):  # a system or a disk without locks
            pass

    @contextlib.contextmanager
    def _full_disk_explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in UNWRITABLE:
                raise
            raise UserError(
                f"{self.path}: can't be written ({error.strerror}); {len(self)} finished results are kept there; "
                "fix that and run the same command again to go on"
            ) from None


def _parse(raw: bytes) -> dict | None:
    """Read a line; None if it is damaged."""
    try:
        if int(raw[:8], 16) != zlib.crc32(raw[9:-1]) or not raw.endswith(b"\n"):
            return None
        return json.loads(raw[9:].decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return None


def _digest(key: str) -> bytes:
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
