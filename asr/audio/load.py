"""Load any sound file, or part of one, as a mono float32 waveform at a given rate."""

import contextlib
import math
import os
import re
import shlex
import stat
import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path

import numpy as np
import soundfile
import soxr

from asr.audio import archive, chains, containers
from asr.audio.decoder_messages import caught
from asr.audio.link import Link
from asr.errors import UserError
from asr.logging import logger

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
TOLERANCE = 1e-3  # seconds by which a caller's times can exceed the file, because durations are rounded to milliseconds
STREAMED_BYTES = (
    0x7FFF0000  # larger chunk sizes mean that the writer of a pipe didn't know the size
)
SAMPLE_BYTES = {
    "PCM_S8": 1,
    "PCM_U8": 1,
    "ULAW": 1,
    "ALAW": 1,
    "PCM_16": 2,
    "PCM_24": 3,
    "PCM_32": 4,
    "FLOAT": 4,
}
SAMPLE_BYTES |= {"DOUBLE": 8}
SHORT_CHUNK = re.compile(
    r"^\s*(?:data|SSND|Data Size|riff|Riff size)\s*: (\d+) \(should be (\d+)\)", re.MULTILINE
)
PLAIN_WAV = re.compile(  # its channels, from 1 to 255; 16 bits; rate and sizes are checked
    rb"RIFF....WAVEfmt \x10\0\0\0\x01\0[^\0]\0.{8}..\x10\0data....", re.DOTALL
)
RATES = range(1_000, 1_000_001)  # Hz; other rates in a header are wrong
MP3 = {"MP3", "MPEG"}  # read by libmpg123, which writes to stderr by itself
QUIET = SUFFIXES - {".mp3"}  # suffixes of files that it doesn't read
# opening a pipe would wait for a writer
FLAGS = sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_BINARY", "O_CLOEXEC"))
BLOCK = 1 << 22  # samples read at a time: a header can promise more than memory holds
MOST = 1000  # samples per byte, as for silence in Opus; if a header says more, the end is checked
ENDLESS = 1 << 62  # samples; libsndfile's larger numbers mean that it doesn't know
CANCELS = (
    "its channels cancel each other out: their mean is silent; take one of them: asr-prepare has --channel, or "
    "ffmpeg -i FILE -af 'pan=mono|c0=c0' ONE.wav"
)
SAID: set[tuple[Path, str]] = set()  # messages about files that this process has logged
# power of the channels' mean relative to the channels'; power of silence
CANCELLED, SILENT = (
    1e-4,
    1e-8,
)


@dataclass(frozen=True)
class AudioInfo:
    """Contents of a sound file's header: rate in Hz, samples per channel, channels."""

    rate: int
    samples: int
    channels: int

    @property
    def duration(self) -> float:
        """The duration in seconds."""
        return self.samples / self.rate


def find(folder: str | os.PathLike, suffixes: Collection[str] = SUFFIXES) -> list[Path]:  # noqa: B006
    """List the sound files in a folder and its subfolders by name, without hidden files."""
    sounds = (p for p in Path(folder).rglob("*") if p.suffix.lower() in suffixes and p.is_file())
    # such as macOS' ._x.wav beside x.wav
    return sorted(p for p in sounds if not p.name.startswith("."))


def load(
    path: str | os.PathLike,
    rate: int,
    start: float = 0.0,
    duration: float | None = None,
    channel: int | None = None,
    clip: bool = True,
) -> np.ndarray:
    """Read a sound file as a mono waveform.

    path:      wav, flac, ogg, opus, mp3, NIST sphere or anything else that libsndfile reads, at any
               rate and with any number of channels; a file, or one in an archive
               (asr/audio/archive.py); files joined by `cat` are one recording
    rate:      of the result, in Hz; soxr resamples if the file has another
    start:     seconds to skip
    duration:  seconds to read, None = to the end
    channel:   0, 1, ...; None = the mean of all
    clip:      to [-1, 1], which a file of floats and resampling can exceed
    returns    (samples,) float32
    raises     UserError if the file is missing, not sound, of a kind that needs conversion, empty,
               truncated or too long for the memory, lacks the channel, has NaN or infinite samples,
               or ends more than a millisecond before `start + duration`
    """
    try:
        with opened(path) as sound:
            length = sound.frames / sound.rate
            chain = sound.overlooked(
                lost=start + (duration or 0.0) > length and not sound.ends_well()
            )
            if not chain:
                waveform, first = one_channel(sound, start, duration, channel)
                chain = sound.overlooked()
        if chain:
            with opened(path, chain) as sound:
                waveform, first = one_channel(sound, start, duration, channel)
        check_finite(path, waveform, first, sound.rate)
        return resample(waveform, sound.rate, rate, clip)
    except MemoryError:
        raise UserError(
            f"{path}: is too long for this machine's memory; cut it into parts"
        ) from None


def check_rate(rate: int, argument: str) -> None:
    """See that samples can have a rate, in Hz.

    argument  that gives it
    raises    UserError
    """
    if rate not in RATES:
        what = f"got {rate!r} Hz, expected {RATES[0]:,} to {RATES[-1]:,}"
        raise UserError(what, argument=argument)


def check_finite(path: str | os.PathLike, waveform: np.ndarray, first: int, rate: int) -> None:
    """See that the samples of a file from `first` on are numbers.

    raises   UserError that names the file and the place of the first that isn't
    """
    finite = np.isfinite(waveform)
    if not finite.all():
        place = (first + int(np.argmin(finite))) / rate
        raise UserError(
            f"{path}: has NaN or infinite samples, the first at {place:.3f} s; write the file again"
        )


def resample(
    waveform: np.ndarray, from_rate: float, to_rate: float, clip: bool = True
) -> np.ndarray:
    """Change the sample rate of a (samples,) waveform with soxr's high quality; clip it to [-1, 1]."""
    if from_rate != to_rate:
        waveform = soxr.resample(waveform, from_rate, to_rate)
    return (np.clip(waveform, -1.0, 1.0) if clip else waveform).astype(np.float32, copy=False)


def info(path: str | os.PathLike) -> AudioInfo:
    """Read a sound file's rate, length and channels without decoding it, and check that its end is there.

    raises   UserError like `load`, except for samples that aren't numbers and damage in the middle
    """
    if found := plain_wav(path):
        return found
    with opened(path) as sound:
        well = (
            not (sound.format == "FLAC" or sound.frames > MOST * sound.raw.size)
            or sound.ends_well()
        )
        chain = sound.overlooked(lost=not well)
        if not well and not chain:
            raise truncated(path, readable(path), sound.frames)
        found = AudioInfo(sound.rate, sound.frames, sound.channels)
    if chain:
        with opened(path, chain) as sound:
            found = AudioInfo(sound.rate, sound.frames, sound.channels)
    return found


def plain_wav(path: str | os.PathLike) -> AudioInfo | None:
    """Read the header of a wav file of 16-bit samples that ends where its samples do; None for any other file.

    Most files are such, and libsndfile takes six times as long.
    """
    try:
        number = os.open(path, os.O_RDONLY | FLAGS)
    except (OSError, ValueError):
        return None
    try:
        state = os.fstat(number)
        head, size = os.read(number, 44) if stat.S_ISREG(state.st_mode) else b"", state.st_size
    except OSError:
        return None
    finally:
        os.close(number)
    if len(head) < 44 or not re.fullmatch(PLAIN_WAV, head):
        return None
    riff, channels, rate, data = struct.unpack("<4xI14xHI12xI", head)
    ends = riff + 8 == data + 44 == size and data % (2 * channels or 1) == 0
    return (
        AudioInfo(rate, data // 2 // channels, channels)
        if ends and data and rate in RATES
        else None
    )


def verify(path: str | os.PathLike) -> AudioInfo:
    """Read a file like `info`, and decode all of it, block by block.

    raises   UserError like `load`
    """
    found, count = info(path), 0
    with opened(path) as sound:
        if sound.frames != found.samples:  # joined recordings that opening doesn't show
            load(path, found.rate)
            return found
        for block in sound.blocks(0, sound.frames):
            if not np.isfinite(block).all():
                raise UserError(
                    f"{path}: has NaN or infinite samples after {count / sound.rate:.1f} s; write it again"
                )
            count += len(block)
    if count < found.samples:
        raise truncated(path, count, found.samples)
    return found


class Raw:
    """The bytes of a sound file, or of one in an archive; libsndfile reads from `handle`."""

    def __init__(self, path: Path):
        """Open it.

        raises   UserError if it is missing, unreadable, or a device or a pipe, which might never
                 end
        """
        self._path = path
        try:
            within = archive.place(path)
            self._memory = archive.read(within) if within else None
            self._number = -1 if self._memory else os.open(path, os.O_RDONLY | FLAGS)
        except (OSError, ValueError) as error:  # for a name with a NUL
            raise unreadable(path, error) from None
        self.handle: int | BytesIO = self._memory or self._number
        if self._memory:
            self.size, self.changed = len(self._memory.getbuffer()), 0
            return
        state = os.fstat(self._number)
        self.size, self.changed = state.st_size, state.st_mtime_ns
        if not stat.S_ISREG(state.st_mode):
            os.close(self._number)
            is_what = "a folder" if stat.S_ISDIR(state.st_mode) else "a device or a pipe"
            raise UserError(f"{path}: is {is_what}; expected a sound file")

    def read(self, first: int, count: int) -> bytes:
        """Read some bytes without moving the decoder's position."""
        if self._memory:
            return bytes(self._memory.getbuffer()[first : first + count])
        try:
            return os.pread(self._number, min(count, max(0, self.size - first)), first)
        except OSError as error:
            raise UserError(f"{self._path}: can't be read ({error.strerror})") from None

    @property
    def position(self) -> int:
        """The number of bytes that the decoder has read."""
        return self._memory.tell() if self._memory else os.lseek(self._number, 0, os.SEEK_CUR)

    def close(self) -> None:
        """Close it."""
        if not self._memory:
            os.close(self._number)


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
    except (
        RuntimeError,
        TypeError,
    ) as error:  # soundfile's own error is a RuntimeError; a TypeError means headerless
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


def part(sound: Sound, start: float, duration: float | None) -> tuple[int, int]:
    """Turn seconds into the first sample and a count within the file."""
    length = sound.frames / sound.rate
    end = length if duration is None else start + duration
    fits = start >= 0 and end <= length + max(TOLERANCE, 1 / sound.rate)  # NaN doesn't
    first, last = (
        (round(start * sound.rate), min(round(end * sound.rate), sound.frames)) if fits else (0, 0)
    )
    if first >= last:
        raise UserError(
            f"{sound.path}: {start:.3f} to {end:.3f} s were requested, but the file has {length:.3f} s"
        )
    return first, last - first


def one_channel(
    sound: Sound, start: float, duration: float | None, channel: int | None
) -> tuple[np.ndarray, int]:
    """Read seconds of one channel, or of the mean of all: (samples,) float32; and the index of the first sample."""
    first, count = part(sound, start, duration)
    parts = list(mono(sound, first, count, channel))
    return (parts[0] if len(parts) == 1 else np.concatenate(parts)), first


def mono(sound: Sound, first: int, count: int, channel: int | None) -> Iterator[np.ndarray]:
    """Yield `count` samples from `first` on of one channel, or of the mean of all, in blocks (samples,).

    raises   UserError if the channel is lacking, or the file ends earlier
    """
    if channel is not None and not 0 <= channel < sound.channels:
        has = "1 channel" if sound.channels == 1 else f"{sound.channels} channels"
        raise UserError(f"{sound.path}: has {has}, counted from 0; channel {channel} was requested")
    got, own, together = 0, 0.0, 0.0
    for block in sound.blocks(first, count):  # (samples, channels)
        is_mean = channel is None and sound.channels > 1
        one = block.mean(axis=1) if is_mean else block[:, channel or 0]
        got += len(one)
        if is_mean:
            own += float(np.vdot(block, block)) / sound.channels
            together += float(np.vdot(one, one))
        yield one
    if got < count:
        raise truncated(sound.path, readable(sound.path), sound.frames)
    if own > SILENT * count and together < CANCELLED * own:
        say_once(sound.path, CANCELS)


def cancels(path: str | os.PathLike, start: float, duration: float) -> bool:
    """Tell whether the channels of a part of a sound file cancel each other out."""
    with opened(path) as sound:
        blocks = list(sound.blocks(*part(sound, start, duration)))
    own = sum(float(np.vdot(block, block)) / sound.channels for block in blocks)
    mean = sum(float(np.square(block.mean(axis=1)).sum()) for block in blocks)
    return own > SILENT * sum(map(len, blocks)) and mean < CANCELLED * own


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


def truncated(path: str | os.PathLike, got: int, expected: int) -> UserError:
    """Make the error for a truncated file."""
    return UserError(
        f"{path}: truncated or damaged: got {got} of {expected} samples; copy or record it again"
    )


def unreadable(path: Path, error: Exception) -> UserError:
    """Make the error for a file that can't be opened as sound, with the fix."""
    if isinstance(error, UnicodeEncodeError):  # Python has surrogates for bytes that aren't UTF-8
        return UserError(f"{str(path)!a}: its name isn't UTF-8; rename the file")
    if "\0" in str(path):
        return UserError(f"{str(path)!a}: has a NUL, which no file's name can have")
    if re.match(r"[a-z][a-z0-9+]+:/", str(path)):
        return UserError(f"{path}: no such file; URLs aren't fetched: download it first")
    try:
        with open(path, "rb") if archive.place(path) is None else archive.open_binary(path) as file:
            head = file.read(512)
    except FileNotFoundError:
        return UserError(f"{path}: no such file")
    except IsADirectoryError:
        return UserError(f"{path}: is a folder; expected a sound file")
    except OSError as fault:
        return UserError(f"{path}: can't be read ({fault.strerror})")
    if not head:
        return UserError(f"{path}: is empty (0 bytes); expected a recording")
    if needs_conversion(path, head):
        m4a, wav = (shlex.quote(str(name)) for name in (path, path.with_suffix(".wav")))
        return UserError(
            f"{path}: libsndfile can't read this kind; convert it: ffmpeg -i {m4a} -ar 16000 -ac 1 {wav}"
        )
    if b"shorten" in head:
        sph = shlex.quote(str(path))
        return UserError(
            f"{path}: NIST sphere compressed by shorten; convert it: sph2pipe -f wav {sph} x.wav"
        )
    if is_text(head):
        return UserError(f"{path}: is text, not sound")
    reason = str(error).split(": ", 1)[-1].rstrip(".")
    if (
        isinstance(error, TypeError) or "does not exist" in reason
    ):  # libsndfile's message for an mp3 without sound
        reason = "no known kind of sound"
    return UserError(
        f"{path}: can't be read as sound ({reason}); expected wav, flac, ogg, opus, mp3 or NIST sphere"
    )


def needs_conversion(path: Path, head: bytes) -> bool:
    """Recognize files that ffmpeg reads and libsndfile doesn't, by their first bytes or name."""
    named = path.suffix.lower() in containers.SUFFIXES and not is_text(head)
    return containers.demuxer(head) is not None or named


def looks_like_sound(head: bytes) -> bool:
    """Recognize the usual kinds of sound by their first bytes."""
    return head.startswith(
        (b"RIFF", b"RF64", b"fLaC", b"OggS", b"ID3", b"FORM", b".snd", b"NIST_1A")
    )


def is_text(head: bytes) -> bool:
    """Tell text by its first bytes: UTF-8 (the last character may be cut) without control characters."""
    text = head.decode("utf-8", errors="ignore")
    return len(text.encode()) > len(head) - 4 and all(c.isprintable() or c.isspace() for c in text)
