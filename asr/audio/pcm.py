"""Samples without a header, as a microphone's program writes them to a pipe: 16 bits, little-endian, one channel."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import soundfile

from asr.audio.first_bytes import looks_like_sound
from asr.audio.load import check_rate
from asr.errors import UserError
from asr.logging import logger

BLOCK = 1 << 20
NAME = "standard-input.wav"


@contextmanager
def spooled(stream: IO[bytes], rate: int) -> Iterator[str]:
    """Yield the path of a temporary sound file with all samples of a stream of any length.

    rate     in Hz
    raises   UserError if the rate is none, the stream has no sample or a header, or the disk is full
    """
    check_rate(rate, "raw")
    with tempfile.TemporaryDirectory(prefix="asr-raw-") as folder:
        path = Path(folder, NAME)
        try:
            _write(stream, path, rate)
        except OSError as error:
            what = f"standard input: can't be kept in {folder} ({error.strerror})"
            raise UserError(f"{what}; set TMPDIR to a larger disk") from None
        yield os.fspath(path)


def check_head(head: bytes) -> None:
    """See that what begins with these bytes are samples.

    raises   UserError if they are a file's header
    """
    if looks_like_sound(head):
        raise UserError(
            f"standard input: begins with a file's header ({head.decode('latin-1')}), expected samples alone "
            "(`arecord -t raw -f S16_LE`); save it to a file and give its name"
        )


def no_samples() -> UserError:
    """The error of a stream that ended before its first sample."""
    return UserError("standard input: has no samples; expected 16-bit little-endian ones")


def say_torn() -> None:
    """Tell that a stream ended within a sample."""
    logger.warning("standard input: ends within a sample; are they 16 bits wide?")


def _write(stream: IO[bytes], path: Path, rate: int) -> None:
    block, left = stream.read(4), b""
    check_head(block)
    with soundfile.SoundFile(path, "w", rate, 1, "PCM_16", format="RF64") as file:
        while block:
            block = left + block
            even = len(block) // 2 * 2
            file.buffer_write(block[:even], "int16")
            left, block = block[even:], stream.read(BLOCK)
        count = file.frames
    if not count:
        raise no_samples()
    if left:
        say_torn()
