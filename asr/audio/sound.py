"""An open sound file: its samples in blocks, and what its header promises."""

import contextlib
import math
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from functools import lru_cache
from io import BytesIO
from pathlib import Path

import numpy as np
import soundfile

from asr.audio import archive, chains, containers
from asr.audio.decoder_messages import caught
from asr.audio.faults import truncated, unreadable
from asr.audio.link import Link
from asr.audio.raw import Raw
from asr.errors import UserError
from asr.logging import logger

RATES = range(1_000, 1_000_001)  # Hz; other rates in a header are wrong
SUFFIXES = {
    ".wav",
    ".flac",
    ".ogg",
    ".opus",
    ".mp3",
    ".sph",
    ".aiff",
    ".aif",
    ".au",
    ".m4a",
    ".webm",
}
MP3 = {"MP3", "MPEG"}  # read by libmpg123, which writes to stderr by itself
QUIET = SUFFIXES - {".mp3"}  # suffixes of files that it doesn't read
BLOCK = 1 << 22  # samples read at a time: a header can promise more than memory holds
ENDLESS = 1 << 62  # samples; libsndfile's larger numbers mean that it doesn't know
# larger chunk sizes mean that the writer of a pipe didn't know the size
STREAMED_BYTES = 0x7FFF0000
SAMPLE_BYTES = {
    "PCM_S8": 1,
    "PCM_U8": 1,
    "ULAW": 1,
    "ALAW": 1,
    "PCM_16": 2,
    "PCM_24": 3,
    "PCM_32": 4,
    "FLOAT": 4,
    "DOUBLE": 8,
}
SHORT_CHUNK = re.compile(
    r"^\s*(?:data|SSND|Data Size|riff|Riff size)\s*: (\d+) \(should be (\d+)\)", re.MULTILINE
)
SAID: set[tuple[Path, str]] = set()  # messages about files that this process has logged


class Sound:
    """An open recording: a file, or several joined in one.

    rate, frames, channels, format, subtype   see soundfile; frames counts all of them
    """

    def __init__(self, path: Path, raw: Raw, files: Sequence[soundfile.SoundFile]):
        self.path, self.raw, self.files = path, raw, files
        self.rate, self.channels = files[0].samplerate, files[0].channels
        self.format, self.subtype = files[0].format, files[0].subtype
        self.frames = sum(file.frames for file in files)

    def blocks(self, first: int, count: int, dtype: str = "float32") -> Iterator[np.ndarray]:
        """Yield `count` samples from `first` on, in blocks (samples, channels); fewer if the file is damaged."""
        begin, last = 0, first + count
        for file in self.files:
            at, end = max(first, begin), min(last, begin + file.frames)
            if at < end:
                self._seek(file, at - begin)
            while at < end and len(block := self._read(file, min(BLOCK, end - at), dtype)):
                at += len(block)
                yield block
            begin += file.frames

    def _seek(self, file: soundfile.SoundFile, place: int) -> None:
        with heard(self.path, self.format in MP3), contextlib.suppress(soundfile.LibsndfileError):
            file.seek(place)

    def _read(self, file: soundfile.SoundFile, count: int, dtype: str) -> np.ndarray:
        with heard(self.path, self.format in MP3), contextlib.suppress(soundfile.LibsndfileError):
            return file.read(count, dtype=dtype, always_2d=True)
        return np.empty((0, self.channels), dtype)

    def ends_well(self) -> bool:
        """Tell whether the last sample can be read."""
        return sum(map(len, self.blocks(self.frames - 1, 1))) == 1

    def overlooked(self, lost: bool = False) -> list[Link] | None:
        """Find joined FLAC files after the last sample of the first has been read; None if there is only one.

        lost     True if it can't be read; the decoder may have looked for it in the files that
                 follow
        """
        if (
            self.format != "FLAC"
            or len(self.files) > 1
            or (self.files[0].tell() < self.frames and not lost)
        ):
            return None
        return chains.flac(self.raw.read, self.raw.size, 0 if lost else self.raw.position)


@contextlib.contextmanager
def opened(path: str | os.PathLike, chain: Sequence[Link] | None = None) -> Iterator[Sound]:
    """Open a sound file; check that it has all samples that its header promises, as far as possible without decoding.

    chain    the recordings joined in it, if known
    """
    path = Path(path)
    with contextlib.ExitStack() as stack:
        raw = stack.enter_context(contextlib.closing(Raw(path)))
        try:
            file = stack.enter_context(decoder(path, raw.handle))
            kind, plain = file.format, True
        except UserError:
            kind, plain = chains.kind(raw.read(0, 4), path.suffix), False
            if kind is None:
                if (found := containers.decoded(path)) is None:
                    raise
                sound = stack.enter_context(opened(found))
                sound.path = path
                yield sound
                return
        chain = chain or (
            chains.find(kind, raw.read, raw.size)
            if kind in chains.AFTER
            else links_in(os.fspath(path), raw.size, raw.changed, kind)
        )
        if plain and chain == []:
            raise cut_off(path, file)
        if chain and (len(chain) > 1 or chain[0].head or not plain):
            parts = (
                BytesIO(link.head + raw.read(link.begin, link.end - link.begin)) for link in chain
            )
            files = [stack.enter_context(decoder(path, part)) for part in parts]
        else:
            files = [file if plain else decoder(path, raw.handle)]
        sound = Sound(path, raw, files)
        check(sound)
        yield sound


def decoder(path: Path, handle: int | BytesIO) -> soundfile.SoundFile:
    """Open a file with libsndfile.

    raises   UserError if it can't be read
    """
    try:
        with heard(path, path.suffix.lower() not in QUIET):
            return soundfile.SoundFile(handle, closefd=False)
    # soundfile's own error is a RuntimeError; a TypeError means headerless
    except (RuntimeError, TypeError) as error:
        raise unreadable(path, error) from None


@contextlib.contextmanager
def heard(path: Path, noisy: bool) -> Iterator[None]:
    """Capture the complaints of a noisy decoder, and log them once, with the file's name."""
    if not noisy:
        yield
        return
    with caught() as complaints:
        yield
    for complaint in complaints[:1]:
        say_once(
            path,
            f"damaged: its decoder says `{complaint}`; its output is used anyway; copy the file again",
        )


def say_once(path: Path, message: str) -> None:
    """Log a message about a file once, not in each epoch."""
    if (path, message) not in SAID:
        SAID.add((path, message))
        logger.warning(f"{path}: {message}")


def forget(path: Path) -> None:
    """Forget what was logged about a file that is gone."""
    SAID.difference_update({known for known in SAID.copy() if known[0] == path})


@lru_cache(4096)
def links_in(path: str, size: int, changed: int, kind: str) -> list[Link] | None:
    """Find the recordings in a file like `chains.find`; size and time are keys of the cache."""
    with contextlib.closing(Raw(Path(path))) as raw:
        return chains.find(kind, raw.read, size)


def check(sound: Sound) -> None:
    """Check that a file has samples, a plausible rate, and all samples that its header promises."""
    path, file = sound.path, sound.files[0]
    if not sound.frames:
        raise UserError(f"{path}: has no samples; expected a recording")
    if sound.frames >= ENDLESS:
        flac = shlex.quote(str(path.with_suffix(".whole.flac")))
        fix = f"write it again: ffmpeg -i {shlex.quote(str(path))} {flac}"
        raise UserError(
            f"{path}: its header doesn't state its length, as in a FLAC written to a pipe; {fix}"
        )
    if sound.rate not in RATES:
        expected = f"{RATES[0]:,} to {RATES[-1]:,}"
        raise UserError(
            f"{path}: its header says {sound.rate:,} Hz, expected {expected}; write it with its true rate"
        )
    if len({(file.samplerate, file.channels) for file in sound.files}) > 1:
        kinds = ", ".join(f"{file.samplerate} Hz × {file.channels}" for file in sound.files[:3])
        raise UserError(
            f"{path}: holds several recordings of different kinds ({kinds}); {as_one(path)}"
        )
    if len(sound.files) == 1 and (promised := promise(sound)) > file.frames:
        raise truncated(path, file.frames, promised)


def as_one(path: Path) -> str:
    """Give the command that makes one recording of several that can't be read together."""
    names = (shlex.quote(str(name)) for name in (path, path.with_suffix(".one.wav")))
    return "join them: ffmpeg -i {} -ar 16000 -ac 1 {}".format(*names)


def promise(sound: Sound) -> int:
    """Count the samples that the header of one file promises.

    libsndfile shortens a truncated file silently; only its log says so, and for NIST sphere not
    even that.
    """
    file = sound.files[0]
    if sound.format == "NIST":
        with archive.open_binary(sound.path) as content:
            count = re.search(rb"sample_count -i (\d{1,18})\s", content.read(1024))
        return int(count[1]) if count else file.frames
    chunks = [(int(stated), int(there)) for stated, there in SHORT_CHUNK.findall(file.extra_info)]
    lost = max((stated - there for stated, there in chunks if stated < STREAMED_BYTES), default=0)
    each = SAMPLE_BYTES.get(sound.subtype, 1) * sound.channels
    # a missing pad byte is no loss
    return file.frames + (math.ceil(lost / each) if lost >= each else 0)


def readable(path: str | os.PathLike) -> int:
    """Count the samples of a damaged file that can be read from its start, in blocks of 1024."""
    count = 0
    try:
        with (
            contextlib.closing(Raw(Path(path))) as raw,
            caught(),
            soundfile.SoundFile(raw.handle, closefd=False) as file,
        ):
            while block := len(file.read(1024)):
                count += block
    except (soundfile.LibsndfileError, MemoryError):
        pass
    return count


def cut_off(path: Path, file: soundfile.SoundFile) -> UserError:
    """Make the error for an mp3 or Ogg file with a missing part."""
    if file.format in MP3 and (got := readable(path)) != file.frames:
        return truncated(path, got, file.frames)
    if file.format in MP3:
        old, new = (shlex.quote(str(name)) for name in (path, path.with_suffix(".whole.mp3")))
        keep = f"ffmpeg -i {old} -c copy {new}"
        return UserError(
            f"{path}: truncated or damaged: its last frame is cut off; copy it again, or keep the rest: {keep}"
        )
    return UserError(
        f"{path}: truncated or damaged: an Ogg page is cut off or has a wrong checksum; copy it again"
    )
