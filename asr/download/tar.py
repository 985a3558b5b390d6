"""Read a .tar.gz as a stream of its members.

Python's tarfile isn't used, because what it accepts depends on the interpreter's version: links out
of the folder through a path longer than the system's limit, negative sizes that are read forever,
patterns that backtrack, headers read into memory whole, recursion. Besides, only files and folders
are needed here. The format is POSIX's ustar, with long names of pax and GNU.
"""

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from typing import IO

from asr.download.members import Budget, Damaged, Member, Refused, damaged_by, decoded, path_of

BLOCK = 512
READ = 1 << 20
LONGEST_HEADER = 1 << 16  # bytes of a member's extra header: pax's records, GNU's long name
ERRORS = (OSError, EOFError, zlib.error)  # raised for an incomplete gzip file
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


@damaged_by(*ERRORS)
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
        while rest := stream.read(READ):
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
        content = blocks(stream, size)
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


@damaged_by(*ERRORS)
def blocks(stream: io.BufferedIOBase, size: int) -> Iterator[bytes]:
    """Read `size` bytes, block by block."""
    while size:
        block = exactly(stream, min(size, READ))
        size -= len(block)
        yield block


def exactly(stream: io.BufferedIOBase, size: int) -> bytes:
    """Read `size` bytes at once."""
    block = stream.read(size) if size else b""
    if len(block) < size:
        raise Damaged("it ends within a member")
    return block
