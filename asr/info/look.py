"""Describe any file or folder, or explain in one line why that isn't possible."""

import errno
import os
import stat

from asr.errors import UserError
from asr.info import files, folders
from asr.info.finding import Finding

SPECIAL = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def look(path: str) -> Finding:
    """Describe a file or folder. None of it is run, and only its first bytes decide how it is read.

    raises   UserError if the path is missing, unreadable, damaged, or of an unknown kind
    """
    if not path:
        raise UserError("got an empty name, expected a file or folder")
    try:
        mode = os.stat(path).st_mode
        if special := SPECIAL.get(stat.S_IFMT(mode)):
            raise UserError(f"{path}: is {special}; expected a file or folder")
        return folders.describe(path) if stat.S_ISDIR(mode) else files.describe(path)
    except FileNotFoundError as error:
        missing = os.fsdecode(error.filename or path)
        broken = "a broken link" if os.path.islink(missing) else "no such file or folder"
        raise UserError(f"{missing}: {broken}{folders.near(missing)}") from None
    except OSError as error:
        name = os.fsdecode(error.filename or path)
        short = f"{name[:80]}…" if error.errno == errno.ENAMETOOLONG else name
        raise UserError(f"{short}: can't be read ({error.strerror or error})") from None
    except (MemoryError, RecursionError) as error:
        what = (
            "needs more memory than there is"
            if isinstance(error, MemoryError)
            else "is nested too deeply"
        )
        raise UserError(f"{path}: {what}; is it damaged, or malicious?") from None
