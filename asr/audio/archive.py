"""Open a file, or a file within a tar: `ARCHIVE.tar:OFFSET+SIZE` names its bytes, so nothing has to be searched."""

import os
import re
from io import BytesIO
from typing import IO, NamedTuple

from asr.errors import UserError

NAME = re.compile(r"(?s)(.+\.tar):(\d+)\+(\d+)")
FIX = "asr-prepare --shar writes it again"


class Span(NamedTuple):
    """Bytes within an archive."""

    archive: str
    offset: int
    size: int

    def __str__(self) -> str:
        return f"{self.archive}:{self.offset}+{self.size}"


def place(path: str | os.PathLike) -> Span | None:
    """Parse a path into an archive; None if it is that of an ordinary file."""
    match = NAME.fullmatch(os.fspath(path))
    return Span(match[1], int(match[2]), int(match[3])) if match else None


def open_binary(path: str | os.PathLike) -> IO[bytes]:
    """Open a file, or read the bytes of one within an archive.

    raises   UserError if the archive is missing or too short; OSError for an ordinary file
    """
    within = place(path)
    return open(path, "rb") if within is None else read(within)


def read(within: Span) -> BytesIO:
    """Read the bytes of a file within an archive.

    raises   UserError if the archive is missing or too short
    """
    check(within)
    try:
        with open(within.archive, "rb", buffering=0) as file:
            file.seek(within.offset)
            return BytesIO(file.read(within.size))
    except OSError as error:
        raise unreadable(within, error) from None


def check(within: Span) -> None:
    """Check that the archive has the bytes.

    raises   UserError that names the archive
    """
    try:
        size = os.stat(within.archive).st_size
    except OSError as error:
        raise unreadable(within, error) from None
    if size < within.offset + within.size:
        raise UserError(
            f"{within.archive}: truncated: has {size} of {within.offset + within.size} bytes; {FIX}"
        )


def unreadable(within: Span, error: OSError) -> UserError:
    """Make the error for an archive that can't be read."""
    return UserError(f"{within.archive}: can't be read ({error.strerror}); {FIX}")
