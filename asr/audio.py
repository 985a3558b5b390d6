"""Any sound file, or part of one → a mono float32 waveform at the wanted rate."""

import math
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import soundfile
import soxr

from asr import archive
from asr.errors import UserError

SUFFIXES = {".wav", ".flac", ".ogg", ".opus", ".mp3", ".sph", ".aiff", ".aif", ".au", ".m4a", ".webm"}
TOLERANCE = 1e-3  # seconds that a caller's times may exceed the file, for durations rounded to milliseconds
STREAMED_BYTES = 0x7FFF0000  # from here on a chunk's size means that a pipe's writer didn't know it
SAMPLE_BYTES = {"PCM_S8": 1, "PCM_U8": 1, "ULAW": 1, "ALAW": 1, "PCM_16": 2, "PCM_24": 3, "PCM_32": 4, "FLOAT": 4}
SAMPLE_BYTES |= {"DOUBLE": 8}
SHORT_CHUNK = re.compile(r"^\s*(?:data|SSND|Data Size|riff|Riff size)\s*: (\d+) \(should be (\d+)\)", re.MULTILINE)
TO_CONVERT = {".m4a", ".aac", ".mp4", ".mov", ".3gp", ".webm", ".mkv", ".wma", ".amr"}
PROBED = {"FLAC", "MP3", "MPEG"}  # whose header states a length that the rest may not hold
OGG_TAIL_BYTES = 1 << 17  # an Ogg page has at most 65,307


@dataclass(frozen=True)
class AudioInfo:
    """What a sound file's header says: rate in Hz, samples per channel, channels."""

    rate: int
    samples: int
    channels: int

    @property
    def duration(self) -> float:
        """Seconds."""
        return self.samples / self.rate


def find(folder: str | os.PathLike) -> list[Path]:
    """List the sound files of a folder, searched deeply, in order of name; hidden files are left out."""
    sounds = (p for p in Path(folder).rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
    return sorted(p for p in sounds if not p.name.startswith("."))  # as macOS' ._x.wav beside x.wav


def load(
    path: str | os.PathLike,
    rate: int,
    start: float = 0.0,
    duration: float | None = None,
    channel: int | None = None,
    clip: bool = True,
) -> np.ndarray:
    """Read a sound file as a mono waveform.

    path:      wav, flac, ogg, opus, mp3, NIST sphere: whatever libsndfile reads, at any rate and channel count; a file,
               or one in an archive (asr/archive.py)
    rate:      of the result, Hz; soxr resamples where the file has another
    start:     seconds to skip
    duration:  seconds to read, None = to the end
    channel:   0, 1, ...; None = the mean of all
    clip:      to [-1, 1], which a file of floats and resampling may leave
    returns    (samples,) float32
    raises     UserError if the file is absent, no sound, of a kind that needs conversion, empty or truncated, has
               NaN or infinite samples, or ends more than a millisecond before `start + duration`
    """
    with opened(path) as file:
        first, count = part(file, path, start, duration)
        waveform = read(file, path, first, count, channel)
        if not np.isfinite(waveform).all():
            place = (first + int(np.argmin(np.isfinite(waveform)))) / file.samplerate
            raise UserError(f"{path}: has NaN or infinite samples, the first at {place:.3f} s; write the file anew")
        return resample(waveform, file.samplerate, rate, clip)


def resample(waveform: np.ndarray, from_rate: float, to_rate: float, clip: bool = True) -> np.ndarray:
    """Change the sample rate of a (samples,) waveform with soxr's high quality; clip it to [-1, 1]."""
    if from_rate != to_rate:
        waveform = soxr.resample(waveform, from_rate, to_rate)
    return (np.clip(waveform, -1.0, 1.0) if clip else waveform).astype(np.float32, copy=False)


def info(path: str | os.PathLike) -> AudioInfo:
    """Read a sound file's rate, length and channels without decoding it, and see that its end is there.

    raises   UserError as `load` does, but for samples that aren't numbers or damage in the middle
    """
    with opened(path) as file:
        if file.format in PROBED and not ends_well(file):
            raise truncated(path, readable(path), file.frames)
        return AudioInfo(file.samplerate, file.frames, file.channels)


@contextmanager
def opened(path: str | os.PathLike) -> Iterator[soundfile.SoundFile]:
    """Open a sound file that has samples, all that its header promises as far as that shows without decoding."""
    path = Path(path)
    try:
        file = soundfile.SoundFile(bytes_or_path(path))
    except (RuntimeError, TypeError) as error:  # soundfile's own error is a RuntimeError; a TypeError means headerless
        raise unreadable(path, error) from None
    except UnicodeEncodeError:  # Python has stand-ins for bytes that aren't UTF-8
        raise UserError(f"{str(path)!a}: its name isn't UTF-8; rename the file") from None
    with file:
        if not file.frames:
            raise UserError(f"{path}: has no samples; expected a recording")
        promised = promise(file, path)
        if promised is None:
            raise UserError(f"{path}: truncated: it ends within an Ogg page after {file.frames} samples; copy it again")
        if promised > file.frames:
            raise truncated(path, file.frames, promised)
        yield file


def bytes_or_path(path: str | os.PathLike) -> IO[bytes] | Path:
    """What soundfile opens: it is faster with paths."""
    return archive.open_binary(path) if archive.place(path) else Path(path)


def part(file: soundfile.SoundFile, path: str | os.PathLike, start: float, duration: float | None) -> tuple[int, int]:
    """Turn seconds into the first sample and a count within the file."""
    length = file.frames / file.samplerate
    end = length if duration is None else start + duration
    first, last = round(start * file.samplerate), min(round(end * file.samplerate), file.frames)
    if start < 0 or end > length + max(TOLERANCE, 1 / file.samplerate) or first >= last:
        raise UserError(f"{path}: asked for {start:.3f} to {end:.3f} s, but the file has {length:.3f} s")
    return first, last - first


def read(
    file: soundfile.SoundFile, path: str | os.PathLike, first: int, count: int, channel: int | None = None
) -> np.ndarray:
    """Read `count` samples from `first` on, of one channel or the mean of all, (count,) float32."""
    try:
        file.seek(first)
        channels = file.read(count, dtype="float32", always_2d=True)  # (count, channels)
    except soundfile.LibsndfileError:
        channels = ()
    if len(channels) < count:
        raise truncated(path, readable(path), file.frames)
    return channels.mean(axis=1) if channel is None and file.channels > 1 else channels[:, channel or 0]


def promise(file: soundfile.SoundFile, path: Path) -> int | None:
    """Count the samples that the header promises; None if that's more than there are by an unknown number.

    libsndfile shortens a truncated file silently, and says so in its log only; for NIST sphere not even there.
    """
    if file.format == "OGG":
        return file.frames if whole_page(path) else None
    if file.format == "NIST":
        count = re.search(rb"sample_count -i (\d+)", archive.open_binary(path).read(1024))
        return int(count[1]) if count else file.frames
    chunks = [(int(said), int(there)) for said, there in SHORT_CHUNK.findall(file.extra_info)]
    lost = max((said - there for said, there in chunks if said < STREAMED_BYTES), default=0)
    each = SAMPLE_BYTES.get(file.subtype, 1) * file.channels
    return file.frames + (math.ceil(lost / each) if lost >= each else 0)  # a missing pad byte is no loss


def whole_page(path: Path) -> bool:
    """See that an Ogg file's last page is complete."""
    with archive.open_binary(path) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - OGG_TAIL_BYTES))
        tail = file.read()
    page = tail[tail.rfind(b"OggS") :]
    return len(page) > 26 and len(page) >= 27 + page[26] + sum(page[27 : 27 + page[26]])


def ends_well(file: soundfile.SoundFile) -> bool:
    """Read the last sample."""
    try:
        file.seek(file.frames - 1)
        return len(file.read(1)) == 1
    except soundfile.LibsndfileError:
        return False


def readable(path: str | os.PathLike) -> int:
    """Count the samples of a damaged file that can be read from its begin, in blocks of 1024."""
    count = 0
    try:
        with soundfile.SoundFile(bytes_or_path(path)) as file:
            while block := len(file.read(1024)):
                count += block
    except soundfile.LibsndfileError:
        pass
    return count


def truncated(path: str | os.PathLike, got: int, expected: int) -> UserError:
    """Say how much of a file is there."""
    return UserError(f"{path}: truncated or damaged: got {got} of {expected} samples; copy or record it again")


def unreadable(path: Path, error: Exception) -> UserError:
    """Say why a file can't be opened as sound, and what would help."""
    try:
        head = archive.open_binary(path).read(512)
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
        return UserError(f"{path}: libsndfile can't read this kind; convert it: ffmpeg -i {m4a} -ar 16000 -ac 1 {wav}")
    if b"shorten" in head:
        sph = shlex.quote(str(path))
        return UserError(f"{path}: NIST sphere compressed by shorten; convert it: sph2pipe -f wav {sph} x.wav")
    if is_text(head):
        return UserError(f"{path}: is text, not sound")
    reason = str(error).split(": ", 1)[-1].rstrip(".")
    if isinstance(error, TypeError) or "does not exist" in reason:  # libsndfile's words for an mp3 without sound
        reason = "no known kind of sound"
    return UserError(f"{path}: can't be read as sound ({reason}); expected wav, flac, ogg, opus, mp3 or NIST sphere")


def needs_conversion(path: Path, head: bytes) -> bool:
    """Know what ffmpeg reads and libsndfile doesn't, by its first bytes or its name.

    MP4 and its kin (m4a, mov, 3gp), Matroska (webm), AAC in ADTS, ASF (wma), AMR.
    """
    adts = len(head) > 1 and head[0] == 0xFF and head[1] & 0xF6 == 0xF0
    known = head[4:8] == b"ftyp" or head.startswith((b"\x1aE\xdf\xa3", b"0&\xb2u\x8ef\xcf\x11", b"#!AMR"))
    return adts or known or (path.suffix.lower() in TO_CONVERT and not is_text(head))


def is_text(head: bytes) -> bool:
    """Tell text by its first bytes: UTF-8 (the last character may be cut) without control characters."""
    text = head.decode("utf-8", errors="ignore")
    return len(text.encode()) > len(head) - 4 and all(c.isprintable() or c.isspace() for c in text)
