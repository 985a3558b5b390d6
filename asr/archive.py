"""A file, or a file within a tar: `ARCHIVE.tar:OFFSET+SIZE` names its bytes, so that nothing has to be searched."""

import os
import re
from io import BytesIO
from typing import IO, NamedTuple

from asr.errors import UserError

NAME = re.compile(r"(?s)(.+\.tar):(\d+)\+(\d+)")
FIX = "asr-prepare --shar writes it again"


class Place(NamedTuple):
    """Bytes within an archive."""

    archive: str
    offset: int
    size: int

    def __str__(self) -> str:
        return f"{self.archive}:{self.offset}+{self.size}"


def place(path: str | os.PathLike) -> Place | None:
    """Where a path points to within an archive; None if it names a file of its own."""
    match = NAME.fullmatch(os.fspath(path))
    return Place(match[1], int(match[2]), int(match[3])) if match else None


def open_binary(path: str | os.PathLike) -> IO[bytes]:
    """Open a file, or one within an archive, whose bytes are read at once.

    raises   UserError if the archive is absent or ends before them; OSError for a file of its own
    """
    within = place(path)
    if within is None:
        return open(path, "rb")
    check(within)
    try:
        with open(within.archive, "rb", buffering=0) as file:
            file.seek(within.offset)
            return BytesIO(file.read(within.size))
    except OSError as error:
        raise unreadable(within, error) from None


def check(within: Place) -> None:
    """See that the archive has the bytes.

    raises   UserError that names the archive
    """
    try:
        size = os.stat(within.archive).st_size
    except OSError as error:
        raise unreadable(within, error) from None
    if size < within.offset + within.size:
        raise UserError(f"{within.archive}: truncated: has {size} of {within.offset + within.size} bytes; {FIX}")


def unreadable(within: Place, error: OSError) -> UserError:
    """Say why an archive can't be read."""
    return UserError(f"{within.archive}: can't be read ({error.strerror}); {FIX}")
