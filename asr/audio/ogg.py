"""Read the pages of an Ogg file, to find joined recordings and see whether the last page is complete.

A page has a header of 27 bytes, a table of segment sizes, and the segments. `cat a.ogg b.ogg` and
internet radio join recordings: a new one begins where a page that begins a stream follows one that
doesn't. Decoders read only the first one. Layout: RFC 3533.
"""

import zlib

from asr.audio.link import Link

BEGINS = 2  # flag of a page that begins a stream
REVERSED = bytes(int(f"{n:08b}"[::-1], 2) for n in range(256))


def links(content: bytes) -> list[Link]:
    """Find the recordings joined in an Ogg file; an empty list if a page is damaged or cut off."""
    begins, at, within, whole = [], content.find(b"OggS"), True, False
    while at >= 0:
        begin = len(content) > at + 5 and bool(content[at + 5] & BEGINS)
        if begin and within:
            begins.append(at)
        within = not begin
        size = page(content, at)
        whole = size > 0 and sound(content[at : at + size])
        if not whole:
            break
        following = at + size
        at = (
            following
            if content[following : following + 4] == b"OggS"
            else content.find(b"OggS", following)
        )
    if not whole:
        return []
    return [Link(*ends) for ends in zip(begins or [0], [*begins[1:], len(content)], strict=True)]


def page(content: bytes, at: int) -> int:
    """Return the size of the page at a position; 0 if the content ends within it."""
    if len(content) < at + 27:
        return 0
    segments = content[at + 27 : at + 27 + content[at + 26]]
    size = 27 + content[at + 26] + sum(segments)
    return size if len(segments) == content[at + 26] and at + size <= len(content) else 0


def sound(page: bytes) -> bool:
    """Tell whether a page's checksum is right; decoders skip pages with a wrong one.

    Ogg's checksum is zlib's with all bits reversed and without its inversions.
    """
    plain = page[:22] + bytes(4) + page[26:]
    crc = zlib.crc32(plain.translate(REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return crc.to_bytes(4, "big").translate(REVERSED) == page[22:26]
