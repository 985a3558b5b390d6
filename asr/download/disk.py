"""Space on the disk: what a download will take, what is free, and what is said when there is none left."""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from asr.errors import UserError
from asr.files import UNWRITABLE


@dataclass(frozen=True)
class Need:
    """Bytes that a download will add: at its fullest moment, and when it is done."""

    most: int
    lasting: int

    def check(self, folder: Path) -> None:
        """Look for room on the disk of a folder.

        raises   UserError if it has less than the fullest moment takes
        """
        if self.most > (room := free(folder)):
            raise UserError(
                f"{folder}: needs {readable(self.most)} of disk, has {readable(room)} free; free "
                f"{readable(self.most - room)}, choose another folder, or fewer --parts"
            )


def need(parts: Iterable[tuple[int, int]], keep_archives: bool) -> Need:
    """Reckon what parts take that are fetched and unpacked one after another.

    parts:   (bytes still to fetch, bytes of what is unpacked) each; of a file that isn't unpacked (bytes, 0)

    >>> need([(10, 11), (20, 22)], keep_archives=False)
    Need(most=53, lasting=33)
    """
    most = now = 0
    for fetched, unpacked in parts:
        most = max(most, now + fetched + unpacked)
        now += unpacked + fetched * (keep_archives or not unpacked)
    return Need(most, now)


def free(folder: Path) -> int:
    """Bytes free on the disk where a folder stands or will be made."""
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def full(error: OSError, path: Path, kept: str) -> Exception:
    """Say that a file can't be written, as one sentence; give back other errors as they are.

    kept:   what of the work is not lost
    """
    if error.errno not in UNWRITABLE:
        return error
    return UserError(f"{path}: can't be written ({error.strerror}); {kept}; mend that and run the same command again")


def readable(size: int | None) -> str:
    """Say a number of bytes.

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
