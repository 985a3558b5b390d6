"""Load any sound file, or part of one, as a mono float32 waveform at a given rate."""

import os
import re
import stat
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soxr

from asr.audio.faults import truncated
from asr.audio.raw import FLAGS
from asr.audio.sound import RATES, SUFFIXES, Sound, opened, readable, say_once
from asr.errors import UserError

TOLERANCE = 1e-3  # seconds by which a caller's times can exceed the file, because durations are rounded to milliseconds
PLAIN_WAV = re.compile(  # its channels, from 1 to 255; 16 bits; rate and sizes are checked
    rb"RIFF....WAVEfmt \x10\0\0\0\x01\0[^\0]\0.{8}..\x10\0data....", re.DOTALL
)
MOST = 1000  # samples per byte, as for silence in Opus; if a header says more, the end is checked
CANCELS = (
    "its channels cancel each other out: their mean is silent; take one of them: asr-prepare has --channel, or "
    "ffmpeg -i FILE -af 'pan=mono|c0=c0' ONE.wav"
)
CANCELLED = 1e-4  # power of the channels' mean relative to the channels'
SILENT = 1e-8  # power of silence


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
