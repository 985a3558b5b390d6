"""Unpack archives completely or not at all, and only into their folder.

An archive can hold regular files and folders, with paths that stay inside and sizes that are known:
each name and size is checked here, before the member is written. Links, devices and anything else
have no `Member`, because no corpus needs them.

`read_tar` doesn't use Python's tarfile, because what that accepts depends on the interpreter's
version: links out of the folder through a path longer than the system's limit, negative sizes that
are read forever, patterns that backtrack, headers read into memory whole, recursion. The format is
POSIX's ustar, with long names of pax and GNU. `read_zip` uses Python's zipfile, with more checks.
"""

import functools
import gzip
import io
import itertools
import os
import re
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from tqdm import tqdm

from asr.download.disk import readable, unwritten
from asr.errors import UserError
from asr.logging import bars_hidden, plain, progress_bar

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


BLOCK = 512
TAR_READ = 1 << 20
LONGEST_HEADER = 1 << 16  # bytes of a member's extra header: pax's records, GNU's long name
TAR_ERRORS = (OSError, EOFError, zlib.error)  # raised for an incomplete gzip file
RECORD = re.compile(b"([0-9]{1,6}) ([^=]{1,200})=")  # pax: LENGTH KEY=VALUE
FILE, FOLDER, PAX, PAX_GLOBAL, GNU_NAME, GNU_LINK = b"0", b"5", b"x", b"g", b"L", b"K"
KINDS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a fifo",
    b"S": "a sparse file",
}


@damaged_by(*TAR_ERRORS)
def read_tar(file: IO[bytes], budget: Budget) -> Iterator[Member]:
    """Iterate over the members of an open .tar.gz, up to its very end, where gzip's checksum is.

    The content of a member is available until the next one is requested. All decompressed bytes
    count.
    raises   Refused for anything that no corpus holds, or too much; Damaged
    """
    with gzip.open(file) as stream:
        yield from members(stream, budget)
        if not stream.tell():
            raise Damaged("it is empty")
        while rest := stream.read(TAR_READ):
            budget.take(len(rest))


def members(stream: io.BufferedIOBase, budget: Budget) -> Iterator[Member]:
    """Iterate over the members of an open .tar."""
    further: dict[str, bytes] = {}  # what the headers before a member's own say about it
    while header := next_header(stream, budget):
        kind, size = kind_of(header), number(header[124:136])
        if kind in (PAX, PAX_GLOBAL, GNU_NAME, GNU_LINK):
            body = further_header(stream, size, budget)
            if kind == PAX:
                further |= records(body)
            elif kind == PAX_GLOBAL and records(body):
                raise Refused("it gives all its members one name or size")
            elif kind == GNU_NAME:
                further["path"] = body.rstrip(b"\0")
            continue
        name = decoded(further.get("path", name_of(header)))
        if "size" in further:
            size = decimal(further["size"])
        if kind not in (FILE, FOLDER):
            raise Refused(f"{ascii(name[:80])} is {KINDS.get(kind, 'neither a file nor a folder')}")
        is_folder = kind == FOLDER or name.endswith("/")
        size = 0 if is_folder else size
        budget.take(size + -size % BLOCK, members=1)
        content = tar_blocks(stream, size)
        yield Member(path_of(name), size, is_folder, content)
        for _ in content:  # the bytes that the caller left unread
            pass
        exactly(stream, -size % BLOCK)
        further = {}
    if further:
        raise Damaged("its last header has no member")


def next_header(stream: io.BufferedIOBase, budget: Budget) -> bytes:
    """Read a header; empty at the end, which is a block of zeros or no block at all."""
    header = stream.read(BLOCK)
    budget.take(len(header))
    if not header.strip(b"\0"):
        return b""
    if len(header) < BLOCK:
        raise Damaged("it ends within a header")
    blank = header[:148] + b" " * 8 + header[156:]
    if number(header[148:156]) not in (
        sum(blank),
        sum(byte - 256 * (byte > 127) for byte in blank),
    ):
        raise Damaged("a header's checksum is wrong")
    return header


def kind_of(header: bytes) -> bytes:
    """Read the kind of member from its header; files of an old tar have none."""
    kind = header[156:157]
    return FILE if kind == b"\0" else kind


def name_of(header: bytes) -> bytes:
    """Read a member's name; POSIX stores the folders of a long one separately."""
    name, prefix = header[:100].split(b"\0")[0], header[345:500].split(b"\0")[0]
    return prefix + b"/" + name if header[257:263] == b"ustar\0" and prefix else name


def number(field: bytes) -> int:
    """Read an octal number, or GNU's binary one."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.split(b"\0")[0].strip()
    if not re.fullmatch(b"[0-7]*", digits):
        raise Damaged(f"{field!r} where a header has a number")
    return int(digits or b"0", 8)


def decimal(field: bytes) -> int:
    """Read a decimal number."""
    if not re.fullmatch(b"[0-9]{1,18}", field):
        raise Damaged(f"{field[:20]!r} where a header has a number")
    return int(field)


def further_header(stream: io.BufferedIOBase, size: int, budget: Budget) -> bytes:
    """Read the body of an extra header."""
    if size > LONGEST_HEADER:
        raise Refused(f"it has a header of {size} bytes")
    budget.take(size + -size % BLOCK)
    body = exactly(stream, size)
    exactly(stream, -size % BLOCK)
    return body


def records(body: bytes) -> dict[str, bytes]:
    """Read a member's name and size from a pax header; ignore its other records."""
    known, start = {}, 0
    while start < len(body) and body[start]:
        match = RECORD.match(body, start)
        end = start + int(match[1]) if match else 0
        if not match or not match.end() < end <= len(body) or body[end - 1] != ord("\n"):
            raise Damaged("a pax header isn't one")
        if match[2].startswith(b"GNU.sparse."):
            raise Refused("it holds a sparse file")
        if match[2] in (b"path", b"size"):
            known[match[2].decode()] = body[match.end() : end - 1]
        start = end
    return known


@damaged_by(*TAR_ERRORS)
def tar_blocks(stream: io.BufferedIOBase, size: int) -> Iterator[bytes]:
    """Read `size` bytes, block by block."""
    while size:
        block = exactly(stream, min(size, TAR_READ))
        size -= len(block)
        yield block


def exactly(stream: io.BufferedIOBase, size: int) -> bytes:
    """Read `size` bytes at once."""
    block = stream.read(size) if size else b""
    if len(block) < size:
        raise Damaged("it ends within a member")
    return block


ZIP_READ = 1 << 20
ENTRY = 256  # bytes per member in the list at the archive's end, about twice what corpora need
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ENCRYPTED = 1
HEADER = 30  # bytes before each member, at least
# what zipfile raises for damaged files; NotImplementedError is a RuntimeError, an overflow an
# ArithmeticError
ZIP_ERRORS = (
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


@damaged_by(*ZIP_ERRORS)
def read_zip(file: IO[bytes], budget: Budget) -> Iterator[Member]:
    """Iterate over the members of an open .zip. All sizes are checked before the first member.

    raises   Refused for anything that no corpus holds, or too much; Damaged
    """
    with zipfile.ZipFile(Bounded(file, ZIP_READ + ENTRY * budget.members)) as archive:
        infos = archive.infolist()
        look(infos, budget)
        for info in infos:
            yield Member(
                path_of(info.filename), info.file_size, info.is_dir(), zip_blocks(archive, info)
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


@damaged_by(*ZIP_ERRORS)
def zip_blocks(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    """Read a member up to its end, where its checksum is verified."""
    size = 0
    with archive.open(info) as content:
        while block := content.read(ZIP_READ):
            size += len(block)
            yield block
    if size != info.file_size:
        raise Damaged(
            f"{ascii(info.orig_filename[:80])} has {size} bytes, expected {info.file_size}"
        )


@contextmanager
def members_of(archive: Path, budget: Budget, what: str) -> Iterator[Iterator[Member]]:
    """Open a .tar.gz, .tgz or .zip and iterate over its members, with a progress bar.

    raises   Refused, Damaged
    """
    with (
        open(archive, "rb") as file,
        tqdm.wrapattr(
            file,
            "read",
            total=archive.stat().st_size,
            desc=f"{what} {archive.name}",
            disable=bars_hidden(),
            leave=False,
        ) as read,
    ):
        yield (read_zip if archive.suffix == ".zip" else read_tar)(read, budget)


def unpack(archive: Path, folder: Path, budget: Budget) -> None:
    """Unpack an archive into a new folder. Remove what an earlier call left of it, and everything on failure.

    Files and folders get the permissions that the umask leaves, whatever the archive says.
    raises   Refused, Damaged; UserError if the disk is full
    """
    shutil.rmtree(folder, ignore_errors=True)
    made = {PurePosixPath(".")}
    try:
        folder.mkdir()
        with members_of(archive, budget, "unpacking") as members:
            for member in members:
                write(member, folder, made, budget)
    except (Refused, Damaged):
        shutil.rmtree(folder, ignore_errors=True)  # frees the disk space
        raise
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise unwritten(error, folder, f"the archive {archive} stays") from None


def write(member: Member, folder: Path, made: set[PurePosixPath], budget: Budget) -> None:
    """Write a member into a folder that holds only what was written here, and so no link.

    made:    the folders that exist already
    raises   Refused, Damaged, OSError
    """
    try:
        for parent in [*reversed(member.path.parents), *[member.path] * member.is_folder]:
            if parent not in made:
                budget.take(members=1)
                os.mkdir(folder / parent)
                made.add(parent)
        if not member.is_folder:
            with open(folder / member.path, "xb") as file:
                file.writelines(member.content)
    except FileExistsError:
        raise Refused(
            f"{ascii(str(member.path))} is in it twice, or as both a file and a folder"
        ) from None


def unpack_nested(archives: Sequence[Path], target: Path, budget: Budget) -> None:
    """Unpack archives within a target in place, and remove each one once it is unpacked.

    raises   UserError if one is damaged, holds something that no corpus does, or the disk is full
    """
    for archive in progress_bar(archives, desc=f"unpacking the archives in {target.name}"):
        unpacked = archive.with_name(f".unpacking-{archive.name}")
        try:
            unpack(archive, unpacked, budget)
        except Refused as error:
            raise UserError(f"{archive}: refused, {error}; remove {target}") from None
        except Damaged as error:
            raise UserError(
                f"{archive}: damaged ({error}); remove {target} and run the same command again"
            ) from None
        merge(unpacked, archive.parent)
        archive.unlink()


def merge(unpacked: Path, folder: Path) -> None:
    """Move the unpacked files to the same places in another folder."""
    for file in sorted(unpacked.rglob("*")):
        if file.is_file():
            place = folder / file.relative_to(unpacked)
            place.parent.mkdir(parents=True, exist_ok=True)
            file.replace(place)
    shutil.rmtree(unpacked)


def install(unpacked: Path, folder: Path, target: str) -> None:
    """Move unpacked files to their place: first those beside the target, such as LibriSpeech's SPEAKERS.TXT, then it.

    Files beside a target that has no folder around it are left out: they would land among the
    user's own files.
    raises   Refused if the archive doesn't hold the target
    """
    source, destination = unpacked / target, folder / target
    if not source.is_dir():
        raise Refused(f"it holds no {target}")
    destination.parent.mkdir(parents=True, exist_ok=True)
    for file in list(source.parent.iterdir()) if source.parent != unpacked else []:
        if file.is_file():
            file.replace(destination.parent / file.name)
    source.rename(destination)
    shutil.rmtree(unpacked)
