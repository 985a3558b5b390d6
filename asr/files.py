"""Files that are whole or absent: written under a temporary name, synced, renamed."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from asr.errors import UserError

UNWRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def replacing(path: str | os.PathLike, name: Callable[[], Path] | None = None) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success sync it and rename it to `path`, else remove it.

    The temporary name keeps the suffixes of `path`, so that writers which look at them (`.jsonl.gz`) still work.
    name     says the path to rename it to instead, once it is written
    raises   UserError if the folder can't be written, the disk is full, or `path` is a folder
    """
    path = Path(path)
    temporary = path.with_name(f".partial-{os.getpid()}-{path.name}")
    make_folder(path.parent)
    if path.is_dir():
        raise UserError(f"{path}: is a folder; expected the name of a file to write")
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, name() if name else path)
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        raise UserError(f"{path}: can't be written ({error.strerror}); choose another output, or mend that") from None
    finally:
        temporary.unlink(missing_ok=True)


def make_folder(folder: str | os.PathLike) -> Path:
    """Create a folder and its parents and see that files can be written there.

    raises   UserError that names the folder and the reason
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".partial-{os.getpid()}-probe"
        probe.touch()
        probe.unlink(missing_ok=True)  # another machine's process may have the same number
    except OSError as error:
        raise UserError(f"{folder}: can't write into this folder ({error.strerror}); choose another output") from None
    return folder


def hold(folder: str | os.PathLike) -> IO:
    """Keep other processes from holding a folder, until the returned file is closed or this process ends.

    raises   UserError if another process holds it; where the system or its disk knows no locks, nobody is kept out
    """
    try:
        file = open(Path(folder) / ".held", "a")  # noqa: SIM115 - open as long as it holds
    except PermissionError:
        raise UserError(f"{folder}: is another's, who may alone write .held there; choose another output") from None
    try:
        import fcntl

        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # flock's would live on in forked data workers
    except (BlockingIOError, PermissionError):
        file.close()
        raise UserError(f"{folder}: another process is at work in it; wait for it, or choose another output") from None
    except (ImportError, OSError):
        pass
    return file


def append_text(path: str | os.PathLike, text: str) -> None:
    """Append to a UTF-8 text file.

    raises   UserError if the file can't be written, or the disk is full
    """
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        raise UserError(f"{path}: can't be written ({error.strerror}); mend that") from None


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write a UTF-8 text file in one piece."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
