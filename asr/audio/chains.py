"""Find the recordings in a file that holds several, joined as by `cat a.mp3 b.mp3 > c.mp3`.

Decoders read the first one and silently ignore the others. Usually there is only one. To see that,
the whole file must be read only for Ogg, and for an mp3 whose header doesn't state its length.
"""

import re
import struct
from collections.abc import Callable

from asr.audio import mp3, ogg
from asr.audio.link import Link

Read = Callable[[int, int], bytes]  # first byte, count → bytes
TAIL = 1 << 16  # bytes; more than a FLAC decoder reads ahead
FLAC_BEGIN = b"fLaC\0\0\0\x22"  # with the length of the block that must follow


def find(kind: str, read: Read, size: int) -> list[Link] | None:
    """Find a file's recordings.

    kind     libsndfile's name of the file's kind
    read     reads its bytes
    size     in bytes
    returns  an empty list if the end of the file is missing; None if that is unknown, or there is
             one recording, which a decoder reads completely
    """
    if kind == "OGG":
        return ogg.links(read(0, size))
    if kind in ("MP3", "MPEG"):
        return None if mp3.agrees(read, size) else mp3.links(read(0, size))
    if kind in AFTER:
        return repeated(read, size, AFTER[kind])
    return None


def repeated(read: Read, size: int, after: Callable[[bytes], int]) -> list[Link] | None:
    """Find joined files whose headers say where they end."""
    begins, head = [0], read(0, 1024)
    while (length := after(read(begins[-1], 1024))) > 0 and begins[-1] + length + 8 < size:
        if read(begins[-1] + length, 4) != head[:4]:
            break
        begins.append(begins[-1] + length)
    return (
        [Link(*ends) for ends in zip(begins, [*begins[1:], size], strict=True)]
        if begins[1:]
        else None
    )


def after_nist(head: bytes) -> int:
    """Find where a NIST sphere file ends by its header; 0 if it doesn't say, or the file is compressed."""
    numbers = {name: int(value) for name, value in re.findall(rb"(\w+) -i (\d{1,15})\s", head)}
    names = (b"sample_count", b"channel_count", b"sample_n_bytes")
    begin = head[8:16].strip()
    if (
        not begin.isdigit()
        or not numbers.keys() >= {*names}
        or re.search(rb"shorten|wavpack|shortpack", head)
    ):
        return 0
    count, channels, each = (numbers[name] for name in names)
    return int(begin) + count * channels * each


def after_au(head: bytes) -> int:
    """Find where an AU file ends by its header; 0 if it doesn't say."""
    begin, count = struct.unpack(">II", head[4:12]) if len(head) >= 12 else (0, 0xFFFFFFFF)
    return begin + count if head[:4] == b".snd" and count != 0xFFFFFFFF else 0


def after_aiff(head: bytes) -> int:
    """Find where an AIFF file ends by its header."""
    count = int.from_bytes(head[4:8], "big")
    return 8 + count + count % 2


def after_riff(head: bytes) -> int:
    """Find where a wav file ends by its header."""
    count = int.from_bytes(head[4:8], "little")
    return 8 + count + count % 2


AFTER = {"NIST": after_nist, "AU": after_au, "AIFF": after_aiff, "WAV": after_riff}


def kind(letters: bytes, suffix: str) -> str | None:
    """Guess the kind of a file that libsndfile can perhaps read only in parts, by its first four bytes and its name."""
    return {b"RIFF": "WAV", b"FORM": "AIFF"}.get(letters) or (
        "MP3" if suffix.lower() == ".mp3" else None
    )


def flac(read: Read, size: int, position: int) -> list[Link] | None:
    """Find joined FLAC files; None if there is only one.

    position  how far in the file a decoder had read when it returned the last sample: anything
              after it was not heard
    """
    tail = max(0, position - TAIL, 0 if position < size else size - TAIL)
    if FLAC_BEGIN not in read(max(tail, 1), size):
        return None
    begins = [match.start() for match in re.finditer(re.escape(FLAC_BEGIN), read(0, size))]
    return (
        [Link(*ends) for ends in zip(begins, [*begins[1:], size], strict=True)]
        if begins[1:]
        else None
    )
