"""The bytes of a sound file, or of one in an archive, for a decoder to read."""

import os
import stat
from io import BytesIO
from pathlib import Path

from asr.audio import archive
from asr.audio.faults import unreadable
from asr.errors import UserError

# opening a pipe would wait for a writer
FLAGS = sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_BINARY", "O_CLOEXEC"))


class Raw:
    """The bytes of a sound file, or of one in an archive; libsndfile reads from `handle`."""

    def __init__(self, path: Path):
        """Open it.

        raises   UserError if it is missing, unreadable, or a device or a pipe, which might never
                 end
        """
        self._path = path
        try:
            within = archive.place(path)
            self._memory = archive.read(within) if within else None
            self._number = -1 if self._memory else os.open(path, os.O_RDONLY | FLAGS)
        except (OSError, ValueError) as error:  # for a name with a NUL
            raise unreadable(path, error) from None
        self.handle: int | BytesIO = self._memory or self._number
        if self._memory:
            self.size, self.changed = len(self._memory.getbuffer()), 0
            return
        state = os.fstat(self._number)
        self.size, self.changed = state.st_size, state.st_mtime_ns
        if not stat.S_ISREG(state.st_mode):
            os.close(self._number)
            is_what = "a folder" if stat.S_ISDIR(state.st_mode) else "a device or a pipe"
            raise UserError(f"{path}: is {is_what}; expected a sound file")

    def read(self, first: int, count: int) -> bytes:
        """Read some bytes without moving the decoder's position."""
        if self._memory:
            return bytes(self._memory.getbuffer()[first : first + count])
        try:
            return os.pread(self._number, min(count, max(0, self.size - first)), first)
        except OSError as error:
            raise UserError(f"{self._path}: can't be read ({error.strerror})") from None

    @property
    def position(self) -> int:
        """The number of bytes that the decoder has read."""
        return self._memory.tell() if self._memory else os.lseek(self._number, 0, os.SEEK_CUR)

    def close(self) -> None:
        """Close it."""
        if not self._memory:
            os.close(self._number)
