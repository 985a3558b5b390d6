"""Read a .zip member by member with Python's zipfile, with additional checks."""

import itertools
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO

from asr.download.members import Budget, Damaged, Member, Refused, damaged_by, path_of

READ = 1 << 20
ENTRY = 256  # bytes per member in the list at the archive's end, about twice what corpora need
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ENCRYPTED = 1
HEADER = 30  # bytes before each member, at least
# what zipfile raises for damaged files; NotImplementedError is a RuntimeError, an overflow an
# ArithmeticError
ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
    LookupError,
    ArithmeticError,
)


class Bounded:
    """A file that refuses large reads: zipfile reads the whole list of members into memory."""

    def __init__(self, file: IO[bytes], most: int):
        self.file, self.most = file, most
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        """Read `size` bytes, or with -1 all that are left."""
        block = self.file.read(self.most + 1 if size < 0 else min(size, self.most + 1))
        if len(block) > self.most:
            raise Refused("its list of members is too long")
        return block


@damaged_by(*ERRORS)
def read_zip(file: IO[bytes], budget: Budget) -> Iterator[Member]:
    """Iterate over the members of an open .zip. All sizes are checked before the first member.

    raises   Refused for anything that no corpus holds, or too much; Damaged
    """
    with zipfile.ZipFile(Bounded(file, READ + ENTRY * budget.members)) as archive:
        infos = archive.infolist()
        look(infos, budget)
        for info in infos:
            yield Member(
                path_of(info.filename), info.file_size, info.is_dir(), blocks(archive, info)
            )


def look(infos: list[zipfile.ZipInfo], budget: Budget) -> None:
    """Check all members.

    raises   Refused
    """
    for info in infos:
        budget.take(info.file_size, members=1)
        name, kind = ascii(info.orig_filename[:80]), stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise Refused(
                f"{name} is {'a symbolic link' if kind == stat.S_IFLNK else 'neither a file nor a folder'}"
            )
        if info.flag_bits & ENCRYPTED or info.compress_type not in METHODS:
            raise Refused(f"{name} is encrypted, or compressed in a way that corpora aren't")
        if info.orig_filename != info.filename:
            raise Refused(f"{name} isn't a name that a corpus has")
        if info.is_dir() and info.file_size:
            raise Refused(f"{name} is a folder with content")
    for info, after in itertools.pairwise(sorted(infos, key=lambda info: info.header_offset)):
        if info.header_offset + HEADER + info.compress_size > after.header_offset:
            raise Refused(f"{ascii(info.orig_filename[:80])} overlaps the next member")


@damaged_by(*ERRORS)
def blocks(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    """Read a member up to its end, where its checksum is verified."""
    size = 0
    with archive.open(info) as content:
        while block := content.read(READ):
            size += len(block)
            yield block
    if size != info.file_size:
        raise Damaged(
            f"{ascii(info.orig_filename[:80])} has {size} bytes, expected {info.file_size}"
        )
