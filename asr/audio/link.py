"""One of several recordings that are joined in a file."""

from typing import NamedTuple


class Link(NamedTuple):
    """Bytes for a decoder to read as a separate file.

    begin, end  within the file
    head        bytes to put before them
    """

    begin: int
    end: int
    head: bytes = b""
