"""Files: written whole or not at all, under a temporary name, synced and renamed; read within bounds of size.

What others made is read whole or line by line, and what keeps one from reading it is said in words:
a .gz of some megabytes may hold a line of gigabytes.
"""

import contextlib
import errno
import gzip
import io
import os
import platform
import re
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from asr.errors import UserError

DEVICES = ("/dev", "/dev/fd", "/proc/self/fd")
PARTIAL = ".partial-"  # how temporary names begin
HOST = re.sub(r"[^A-Za-z0-9]", "", platform.node())[:12]
UNWRITABLE = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EIO,
}
UNWRITABLE |= {errno.ENAMETOOLONG, errno.ELOOP, errno.ENXIO, errno.ENODEV}


@contextmanager
def replacing(path: str | os.PathLike, name: Callable[[], Path] | None = None) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success sync it and rename it to `path`, else remove it.

    The temporary name keeps the suffixes of `path`, so that writers which look at them
    (`.jsonl.gz`) still work. The file has the permissions that the umask gives, whatever its writer
    chose. A link is followed: its target is replaced.
    name     says the path to rename it to instead, once it is written
    raises   UserError if the folder can't be written, the disk is full, or `path` is a folder, a
             device or a pipe
    """
    check_file(path)
    path = Path(path)
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    make_folder(target.parent)
    remove_stale(target)
    temporary = target.with_name(f"{PARTIAL}{HOST}-{os.getpid()}-{target.name}")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode
        yield temporary
        with contextlib.suppress(OSError):  # some disks know no modes
            os.chmod(temporary, stat.S_IMODE(mode))  # writers such as safetensors' make it 0600
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, name() if name else target)
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        raise UserError(
            f"{path}: can't be written ({error.strerror}); choose another output, or fix that"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def check_file(path: str | os.PathLike) -> None:
    """See that a path is one where a file can stand.

    raises   UserError if it is empty, a folder, or no regular file: a device, a pipe, a socket
    """
    if not os.fspath(path) or "\0" in os.fspath(path):
        raise UserError(f"got {os.fspath(path)!r}, expected the name of a file to write")
    if os.path.isdir(path) or os.fspath(path).endswith(os.sep):
        raise UserError(f"{path}: is a folder; expected the name of a file to write")
    special = os.path.dirname(os.path.abspath(path)) in DEVICES  # whatever they are linked to
    with contextlib.suppress(OSError):  # absent, or without rights: the folder is looked at next
        special = special or not stat.S_ISREG(os.stat(path).st_mode)
    if special:
        raise UserError(
            f"{path}: is a device or a pipe; expected a file's name, or - for standard output"
        )


def remove_stale(path: Path) -> None:
    """Remove what processes of this machine that were killed while they wrote `path` have left beside it."""
    mark = re.compile(re.escape(f"{PARTIAL}{HOST}-") + r"(\d+)" + re.escape(f"-{path.name}"))
    with contextlib.suppress(OSError):
        for name in os.listdir(path.parent):
            match = mark.fullmatch(name)
            if match and not is_alive(int(match[1])):
                (path.parent / name).unlink(missing_ok=True)


def is_alive(process: int) -> bool:
    """Whether a process of this machine runs."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's
        return True
    return True


def make_folder(folder: str | os.PathLike) -> Path:
    """Create a folder and its parents and see that files can be written there.

    raises   UserError that names the folder and the reason
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f"{PARTIAL}{HOST}-{os.getpid()}-probe"
        probe.touch()
        probe.unlink(missing_ok=True)  # another machine's process may have the same number
    except OSError as error:
        raise UserError(
            f"{folder}: can't write into this folder ({error.strerror}); choose another output"
        ) from None
    return folder


def lock(folder: str | os.PathLike) -> IO:
    """Keep other processes from holding a folder, until the returned file is closed or this process ends.

    raises   UserError if another process holds it; where the system or its disk knows no locks,
             nobody is kept out
    """
    try:
        file = open(Path(folder) / ".lock", "a")  # noqa: SIM115 - open as long as it holds
    except PermissionError:
        raise UserError(
            f"{folder}: is another's, who may alone write .lock there; choose another output"
        ) from None
    except IsADirectoryError:
        raise UserError(f"{folder}/.lock: is a folder; move it, or choose another output") from None
    try:
        import fcntl

        # flock's would live on in forked data workers
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        file.close()
        raise UserError(
            f"{folder}: another process is at work in it; wait for it, or choose another output"
        ) from None
    except (ImportError, OSError):
        pass
    return file


def append_text(path: str | os.PathLike, text: str) -> None:
    """Append to a UTF-8 text file, all of the text or nothing.

    raises   UserError if the file can't be written, or the disk is full
    """
    rest = memoryview(text.encode("utf-8"))
    try:
        # no buffer: what is left in one would be written when the file is closed
        with open(path, "ab", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            try:
                while rest:
                    rest = rest[file.write(rest) :]
            except OSError:
                with contextlib.suppress(OSError):  # a device has no size
                    file.truncate(size)
                raise
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        raise UserError(f"{path}: can't be written ({error.strerror}); fix that") from None


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write a UTF-8 text file in one piece."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


LINE = 1 << 24  # bytes of a line
DAMAGED = EOFError, zlib.error, gzip.BadGzipFile  # raised where a .gz is read


def open_file(path: str | os.PathLike, missing: str) -> IO[bytes]:
    """Open a file for reading its bytes.

    missing  what to say of a file that isn't there, and the fix
    raises   UserError: there is no such file, it may not be read, or it is none (a folder, a pipe,
             a device)
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would be waited for
            raise UserError(
                f"{path}: is no file, but a folder, a pipe or a device; {missing.rpartition('; ')[2]}"
            )
        return open(path, "rb")
    except FileNotFoundError:
        raise UserError(f"{path}: {missing}") from None
    except (OSError, ValueError) as error:  # the latter for a NUL in the path
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: can't be read ({reason}); fix that, it isn't missing") from None


def read_bytes(path: str | os.PathLike, missing: str, most: int) -> bytes:
    """Read a file of `most` bytes or less.

    raises   UserError as `open_file`, or if the file is larger, or reading it fails
    """
    with open_file(path, missing) as file:
        try:
            content = file.read(most + 1)
        except OSError as error:
            raise UserError(f"{path}: can't be read ({error.strerror}); fix that") from None
    if len(content) > most:
        raise UserError(
            f"{path}: larger than {most / 1e6:g} MB, which {Path(path).name} never is; is it another file?"
        )
    return content


def unpacked(file: IO[bytes], path: str | os.PathLike) -> IO[bytes] | io.BufferedIOBase:
    """Give the content of an open file: unpacked, if its name ends in .gz."""
    if not os.fspath(path).endswith(".gz"):
        return file
    return io.BufferedReader(gzip.GzipFile(fileobj=file), 1 << 20)


def read_lines(
    file: IO[bytes] | io.BufferedIOBase, path: str | os.PathLike, most: int = LINE
) -> Iterator[bytes]:
    """Yield the lines of a file, with their ends.

    raises   UserError for one of more than `most` bytes; names file and line
    """
    number = 0
    while line := file.readline(most + 1):
        number += 1
        if len(line) > most:
            raise too_long(path, number, most)
        yield line


def too_long(path: str | os.PathLike, number: int, most: int = LINE) -> UserError:
    """The error of a line that is too long."""
    size = f"{most >> 20} MB" if most >> 20 else f"{most:,} bytes"
    return UserError(
        f"{path}:{number}: a line of more than {size}; is it the right file, and are its lines ended?"
    )
