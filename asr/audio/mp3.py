"""Count the frames of an mp3 without decoding, because its header can be wrong.

An mp3 has no container. It consists of frames, each with a header of four bytes that gives its
length, and tags around them. A first frame without sound, called Xing or Info after its four
letters, can say how many frames follow. Decoders believe it: of two files joined by `cat` they read
the first. Without it, they guess from the size in bytes. Layout:
http://mpgedit.org/mpgedit/mpeg_format/MP3Format.html.
"""

import struct
from functools import lru_cache
from typing import NamedTuple

from asr.audio.link import Link

LAYER_3 = 1
BITRATES = {  # kbit/s, by MPEG 1 or not and the layer's bits, for index 1 to 14
    (True, 3): (32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    (True, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (True, 1): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (False, 3): (32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (False, 2): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (False, 1): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
# Hz, by the bits of the version
RATES = {
    3: (44100, 48000, 32000),
    2: (22050, 24000, 16000),
    0: (11025, 12000, 8000),
}
FRAMES, BYTES = 1, 2  # flags of a Xing frame: the numbers in it
HEAD = 1 << 14  # bytes in which a Xing frame must begin, after a tag


class Frame(NamedTuple):
    """Contents of a frame's header.

    length  in bytes
    info    offset of the letters in a Xing frame; 0 for layers I and II, which have none
    kind    version, layer, rate, and mono or not: these stay the same throughout a recording
    """

    length: int
    info: int
    kind: tuple[int, int, int, bool]


@lru_cache(1024)
def frame(head: bytes) -> Frame | None:
    """Read four bytes; None if they aren't a header, or one that doesn't give the length of its frame."""
    if len(head) < 4 or head[0] != 0xFF or head[1] < 0xE0:
        return None
    version, layer, bare = head[1] >> 3 & 3, head[1] >> 1 & 3, head[1] & 1
    index, rate_index, padding, mono = (
        head[2] >> 4,
        head[2] >> 2 & 3,
        head[2] >> 1 & 1,
        head[3] >> 6 == 3,
    )
    if version == 1 or layer == 0 or not 0 < index < 15 or rate_index == 3:
        return None
    first, rate = version == 3, RATES[version][rate_index]
    bits = 1000 * BITRATES[first, layer][index - 1]
    if layer == 3:
        length = (12 * bits // rate + padding) * 4
    else:
        length = (144 if first or layer == 2 else 72) * bits // rate + padding
    side = {(True, False): 32, (True, True): 17, (False, False): 17, (False, True): 9}[first, mono]
    return Frame(
        length, 4 + side + 2 * (not bare) if layer == LAYER_3 else 0, (version, layer, rate, mono)
    )


class Xing(NamedTuple):
    """Contents of a Xing frame: number of frames that follow, and bytes from its own start; None if missing."""

    frames: int | None
    bytes: int | None


def xing(content: bytes, at: int, found: Frame) -> Xing | None:
    """Read the frame at a position as a Xing frame; None if it holds sound."""
    place = at + found.info
    if (
        not found.info
        or content[place : place + 4] not in (b"Xing", b"Info")
        or len(content) < place + 16
    ):
        return None
    flags, *numbers = struct.unpack_from(">III", content, place + 4)
    frames = numbers[0] if flags & FRAMES else None
    return Xing(frames, numbers[bool(flags & FRAMES)] if flags & BYTES else None)


def tag(content: bytes, at: int) -> int:
    """Return the size of the tag at a position; 0 if there is none."""
    letters = content[at : at + 10]
    if letters[:3] == b"ID3" and len(letters) == 10 and max(letters[6:]) < 0x80:
        a, b, c, d = letters[6:]
        return 10 + (a << 21 | b << 14 | c << 7 | d) + 10 * (letters[5] >> 4 & 1)
    if letters[:8] == b"APETAGEX":
        return 32 + (
            int.from_bytes(content[at + 12 : at + 16], "little") if at + 16 <= len(content) else 0
        )
    return 128 if letters[:3] == b"TAG" else 0


def agrees(read, size: int) -> bool:
    """Tell from its size alone whether a file has a constant bit rate and the number of frames in its Xing frame.

    read    (first byte, count) → bytes
    """
    at = tag(read(0, 32), 0)
    head = read(at, HEAD)
    found = frame(head[:4])
    stated = xing(head, 0, found) if found else None
    if (
        not found
        or not stated
        or not stated.frames
        or not stated.bytes
        or head[found.info : found.info + 4] != b"Info"
    ):
        return False
    after = frame(head[found.length : found.length + 4])
    each = (
        stated.bytes - found.length
    ) / stated.frames  # frames can differ by one byte, as the rate requires
    rest = size - at - stated.bytes
    whole = rest == 0 or (rest == 128 and read(size - 128, 3) == b"TAG")
    return (
        whole and after is not None and after.kind == found.kind and abs(each - after.length) <= 1
    )


class Run:
    """Consecutive frames of one kind, which are read as one recording."""

    def __init__(self, begin: int, kind: tuple, stated: int | None):
        self.begin, self.kind, self.stated, self.count, self.sound, self.header = (
            begin,
            kind,
            stated,
            0,
            begin,
            b"",
        )

    @property
    def lacking(self) -> bool:
        """Tell whether there are fewer frames than its Xing frame says, whether or not it counts itself."""
        return self.stated is not None and self.count < self.stated - 1

    def link(self, end: int) -> Link:
        """Return its bytes, after a new Xing frame with the number of frames if there is none."""
        if self.stated == self.count or self.kind[1] != LAYER_3:
            return Link(self.begin, end)
        return Link(self.sound, end, info_frame(self.header, self.count, end - self.sound))


def info_frame(header: bytes, count: int, size: int) -> bytes:
    """Make an Info frame, in the form of a frame with this header, to put before `count` frames of `size` bytes."""
    for index in range(header[2] >> 4, 15):  # of the same rate, and large enough to hold it
        # 1: without a checksum
        head = bytes([header[0], header[1] | 1, index << 4 | header[2] & 0x0C, header[3]])
        found = frame(head)
        if found and found.length >= found.info + 16:
            break
    assert found, "a sound frame's header, at another bit rate, is one"
    body = (
        bytes(found.info - 4)
        + b"Info"
        + struct.pack(">III", FRAMES | BYTES, count, found.length + size)
    )
    return (head + body).ljust(found.length, b"\0")


def links(content: bytes) -> list[Link] | None:
    """Find the recordings joined in an mp3, and check that the last frame is complete.

    returns  an empty list if frames are missing; None if no frame gives its length
    """
    runs: list[Run] = []
    at, end, known, whole = 0, len(content), None, True
    while at + 4 <= end:
        found = frame(content[at : at + 4])
        if found and (found.kind == known or confirmed(content, at, found)):
            known = found.kind
            take(runs, content, at, found)
            whole = at + found.length <= end
            at += found.length
        elif skipped := tag(content, at):
            at += skipped
        else:
            known = None
            at = content.find(b"\xff", at + 1)
            if at < 0:
                break
    if not runs:
        return None
    if not whole or any(run.lacking for run in runs):
        return []
    runs = [run for run in runs if run.count]
    ends = [*(run.begin for run in runs[1:]), end]
    return [run.link(end) for run, end in zip(runs, ends, strict=True)]


def confirmed(content: bytes, at: int, found: Frame) -> bool:
    """Tell whether an apparent frame is followed by another of its kind, or only by tags."""
    there = at + found.length
    after = frame(content[there : there + 4])
    return after.kind == found.kind if after else there == len(content) or bool(tag(content, there))


def take(runs: list[Run], content: bytes, at: int, found: Frame) -> None:
    """Add a frame to the last run, or begin a new one: at a Xing frame, another kind, or after the promised frames.

    A single extra frame isn't a recording of its own.
    """
    run, stated = runs[-1] if runs else None, xing(content, at, found)
    if stated or run is None or run.kind != found.kind:
        runs.append(run := Run(at, found.kind, stated.frames if stated else None))
        if stated:
            run.sound = at + found.length
            return
    if run.stated is not None and run.count == run.stated + 1:
        runs.append(run := Run(at, found.kind, None))
    run.header = run.header or content[at : at + 4]
    run.count += 1
