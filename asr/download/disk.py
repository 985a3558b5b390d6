"""Disk space: what a download needs, what is free, and the message for a full disk."""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from asr.errors import UserError


@dataclass(frozen=True)
class Need:
    """Bytes that a download will add: at its fullest moment, and when it is done."""

    most: int
    lasting: int

    def check(self, folder: Path) -> None:
        """Check the free space on the disk of a folder.

        raises   UserError if there is less than the download needs at its fullest moment
        """
        if self.most > (room := free(folder)):
            raise UserError(
                f"{folder}: needs {readable(self.most)} of disk space, but {readable(room)} are free; free "
                f"{readable(self.most - room)} more, choose another folder, or fewer `parts`"
            )


def need(parts: Iterable[tuple[int, int]], keep_archives: bool) -> Need:
    """Compute the disk space for parts that are fetched and unpacked one after another.

    parts:   (bytes still to fetch, bytes after unpacking) of each; (bytes, 0) for a file that isn't
             unpacked

    >>> need([(10, 11), (20, 22)], keep_archives=False)
    Need(most=53, lasting=33)
    """
    most = now = 0
    for fetched, unpacked in parts:
        most = max(most, now + fetched + unpacked)
        now += unpacked + fetched * (keep_archives or not unpacked)
    return Need(most, now)


def free(folder: Path) -> int:
    """Return the bytes free on the disk that holds, or will hold, a folder."""
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def unwritten(error: OSError, path: Path, kept: str) -> UserError:
    """Make the error for a file that can't be written.

    kept:   the part of the work that isn't lost
    """
    why = error.strerror or error
    return UserError(
        f"{path}: can't be written ({why}); {kept}; fix that and run the same command again"
    )


def readable(size: int | None) -> str:
    """Format a number of bytes.

    >>> readable(6_387_309_499), readable(337_926_286), readable(None)
    ('6.39 GB', '338 MB', 'an unknown length')
    """
    if size is None:
        return "an unknown length"
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            digits = max(0, 3 - len(str(int(size / unit))))
            return f"{size / unit:.{digits}f} {name}"
    return f"{size} bytes"
