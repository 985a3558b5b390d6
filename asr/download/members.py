"""What an archive can hold: regular files and folders, with paths that stay inside and sizes that are known.

`tar` and `zip` read archives member by member. Each name and size is checked here before the member
is written. Links, devices and anything else that an archive can carry have no `Member`, because no
corpus needs them.
"""

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from asr.download.disk import readable
from asr.logging import plain

LONGEST = 1024  # bytes of a path, so that it fits into any sensible folder
LONGEST_PART = 255  # bytes between two slashes: the limit of file systems
DEEPEST = 32  # levels of folders; each is made on the way


class Refused(Exception):
    """The archive holds something that no corpus does, and isn't unpacked."""


class Damaged(Exception):
    """The archive can't be read in the format of its name."""


@dataclass(frozen=True)
class Member:
    """A regular file or a folder of an archive; its path is relative and stays inside."""

    path: PurePosixPath
    size: int
    is_folder: bool
    content: Iterator[bytes]


@dataclass
class Budget:
    """Bytes and members that an archive can still have."""

    bytes: int
    members: int

    def take(self, bytes: int = 0, members: int = 0) -> None:
        """Use up some of the budget.

        raises   Refused if that is more than is left
        """
        if bytes > self.bytes:
            raise Refused(
                f"it holds more than the corpus: {readable(bytes)} more, expected at most {readable(self.bytes)}"
            )
        if members > self.members:
            raise Refused("it holds more files and folders than the corpus")
        self.bytes -= bytes
        self.members -= members


def damaged_by(*errors: type[Exception]) -> Callable:
    """Decorate a generator that reads an archive: turn these errors into Damaged."""

    def wrap(generator: Callable[..., Iterator]) -> Callable[..., Iterator]:
        @functools.wraps(generator)
        def run(*arguments) -> Iterator:
            try:
                yield from generator(*arguments)
            except errors as error:
                words = getattr(error, "strerror", None) or str(error) or type(error).__name__
                raise Damaged(plain(words)) from None

        return run

    return wrap


def path_of(name: str) -> PurePosixPath:
    """Turn a member's name into a path.

    raises   Refused if the name leads out of the folder, isn't portable, or could fool a terminal

    >>> path_of("./an4/wav//an4_clstk/")
    PurePosixPath('an4/wav/an4_clstk')
    """
    shown = ascii(name if len(name) <= 80 else f"{name[:80]}...")
    if name.startswith("/") or ".." in name.split("/") or re.match("[A-Za-z]:", name):
        raise Refused(f"{shown} leads out of its folder")
    if not name or "\\" in name or not name.isprintable():
        raise Refused(
            f"{shown} isn't a name that a corpus has: empty, with a backslash or a control character"
        )
    path = PurePosixPath(name)
    if len(name.encode()) > LONGEST or any(
        len(part.encode()) > LONGEST_PART for part in path.parts
    ):
        raise Refused(f"{shown} is too long: {len(name.encode())} bytes")
    if len(path.parts) > DEEPEST:
        raise Refused(f"{shown} is {len(path.parts)} levels deep")
    return path


def decoded(name: bytes) -> str:
    """Read a name as UTF-8.

    raises   Refused if it isn't
    """
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        raise Refused(f"{name[:80]!r} isn't a name in UTF-8") from None
