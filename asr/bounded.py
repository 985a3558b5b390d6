"""Files that others made, read within bounds of size: whole, or line by line; what keeps one from being read, in words.

A .gz of some megabytes may hold a line of gigabytes.
"""

import os
import stat
from collections.abc import Iterator
from io import BufferedIOBase
from pathlib import Path
from typing import IO

from asr.errors import UserError

LINE = 1 << 24  # bytes of a line


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


def read_lines(
    file: IO[bytes] | BufferedIOBase, path: str | os.PathLike, most: int = LINE
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
