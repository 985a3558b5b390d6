"""Samples that arrive in portions: from a file, a pipe or a microphone; resampled as if they had come at once."""

import contextlib
import queue
import select
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

import numpy as np
import soxr

from asr.audio import pcm
from asr.audio.load import check_finite, check_rate, mono, resample
from asr.audio.sound import Sound, opened
from asr.errors import UserError
from asr.logging import logger

PORTION = 0.1  # seconds
WAIT = 0.5  # seconds without a sample, after which it is seen whether to stop
BACKLOG = 60.0  # seconds of a microphone that wait for the reader
Portions = Iterator[tuple[np.ndarray, int]]  # samples (n,) float32 of one channel, and their rate


def from_file(path: str, channel: int | None = None) -> Portions:
    """Read a sound file in portions, in bounded memory; channel None: the mean of all.

    raises   UserError as `asr.audio.load.load`
    """
    with opened(path) as sound:
        yield from _portions(sound, 0, channel)
        chain, done = sound.overlooked(), sound.frames
    if chain:  # FLAC files joined by `cat`: the others follow
        with opened(path, chain) as sound:
            yield from _portions(sound, done, channel)


def _portions(sound: Sound, first: int, channel: int | None) -> Portions:
    size = max(1, round(PORTION * sound.rate))
    for block in mono(sound, first, sound.frames - first, channel):
        check_finite(sound.path, block, first, sound.rate)
        first += len(block)
        for begin in range(0, len(block), size):
            yield block[begin : begin + size], sound.rate


def never() -> bool:
    """Never stop: for sources that end by themselves, and readers who read them to the end."""
    return False


def from_pipe(stream: IO[bytes], rate: int, stopped: Callable[[], bool] = never) -> Portions:
    """Read 16-bit little-endian samples of one channel as they come, until the pipe is closed.

    While nothing comes, empty portions do.

    stopped  once it says so, what has come is read, up to BACKLOG seconds, and nothing is waited for
    raises   UserError if they begin with a file's header, or there are none, or they can't be read on
    """
    head, left = b"", b""
    size, most = 2 * max(1, round(PORTION * rate)), round(BACKLOG / PORTION)  # after a stop
    for block in _arriving(getattr(stream, "raw", stream), size, stopped):
        if stopped() and most == 0:
            break
        most -= int(stopped())
        if len(head) < 4:
            head = (head + block)[:4]
            pcm.check_head(head)
        block = left + block
        even = len(block) // 2 * 2
        yield np.frombuffer(block[:even], "<i2").astype(np.float32) / 32768, rate
        left = block[even:]
    if len(head) < 2 and not stopped():
        raise pcm.no_samples()
    if left and not stopped():
        pcm.say_torn()


def _arriving(stream: IO[bytes], size: int, stopped: Callable[[], bool]) -> Iterator[bytes]:
    """Yield what comes, at most `size` bytes at once, and nothing every now and then while nothing comes.

    stopped  once it says so, nothing is waited for
    raises   UserError if reading fails
    """
    while True:
        try:
            waits = not select.select([stream], [], [], 0 if stopped() else WAIT)[0]
        except OSError:  # such as io.UnsupportedOperation: it never waits, or can't be asked
            waits = False
        try:
            block = b"" if waits else stream.read(size)
        except OSError as error:
            raise UserError(
                f"standard input: can't be read on ({error.strerror or error}), expected samples until it ends; look "
                "at what writes them"
            ) from None
        if not block and (not waits or stopped()):
            return
        yield block


def from_microphone(device: str | None = None, stopped: Callable[[], bool] = never) -> Portions:
    """Read a microphone at its own rate; warn when samples were lost.

    device   its number or a part of its name; the system's default unless given
    stopped  once it says so, the microphone is closed, and what it has heard is read to the end
    raises   UserError if the package sounddevice, a device or its driver is missing, or the device
             stops, as one does that is unplugged
    """
    try:
        import sounddevice
    except (ImportError, OSError) as error:  # an OSError if PortAudio isn't there
        raise UserError(
            f"the microphone needs sounddevice ({error}); pip install sounddevice, and on Linux "
            "the package libportaudio2"
        ) from None
    heard, name = _Heard(), device or "the default microphone"
    with contextlib.ExitStack() as stack:
        try:
            chosen = int(device) if device and device.isdecimal() else device
            rate = int(sounddevice.query_devices(chosen, "input")["default_samplerate"])
            size = max(1, round(PORTION * rate))
            microphone = sounddevice.InputStream(
                rate, size, chosen, 1, "float32", callback=heard.take
            )
            stack.enter_context(microphone)  # starts it
        except (sounddevice.PortAudioError, ValueError) as error:
            raise UserError(f"{name}: {error}", argument="mic") from None
        while not stopped():
            try:
                yield heard.blocks.get(timeout=WAIT), rate
            except queue.Empty:
                try:
                    active = microphone.active
                except sounddevice.PortAudioError:  # the driver knows it no more
                    active = False
                if not active:
                    what = f"{name}: has stopped, expected samples until Ctrl-C; is it plugged in?"
                    raise UserError(what, argument="mic") from None
                yield np.zeros(0, np.float32), rate  # the reader has others, too
    while heard.blocks.qsize():
        yield heard.blocks.get_nowait(), rate


class _Heard:
    """Blocks of a microphone that wait for the reader; a warning counts those that are lost."""

    def __init__(self):
        self.blocks: queue.Queue[np.ndarray] = queue.Queue(round(BACKLOG / PORTION))
        self._lost = 0

    def take(self, samples: np.ndarray, frames: int, time: Any, status: Any) -> None:
        """Take a block from the driver, in its thread."""
        lost = bool(status.input_overflow)
        try:
            self.blocks.put_nowait(samples[:, 0].copy())
        except queue.Full:  # whoever reads is slower than real time
            lost = True
        if lost:
            self._lost += 1
            logger.warning(f"the microphone's samples were lost, {self._lost} times so far")


def paced(portions: Portions) -> Portions:
    """Hand portions on when they would have been spoken."""
    started, seconds = time.monotonic(), 0.0
    for samples, rate in portions:
        seconds += len(samples) / rate
        time.sleep(max(0.0, started + seconds - time.monotonic()))
        yield samples, rate


class Resampler:
    """Take samples at the rates of their devices to one rate.

    rate   of the result, Hz

    What comes out in all, up to a `flush`, is what `asr.audio.load.resample` gives for all that went
    in, however that was divided.
    """

    def __init__(self, rate: int):
        self.rate = rate
        self._from = rate
        self._stream: soxr.ResampleStream | None = None

    def __call__(self, samples: np.ndarray, rate: int) -> np.ndarray:
        """Samples (n,) float32 at `rate` Hz → those of the result that are complete, (m,) float32.

        raises   UserError if the rate is none
        """
        check_rate(rate, "sample_rate")
        before = self.flush() if rate != self._from else samples[:0]
        if rate == self.rate:
            return np.concatenate([before, _clipped(samples)])
        if self._stream is None:
            self._from = rate
            self._stream = soxr.ResampleStream(rate, self.rate, 1, dtype="float32", quality="HQ")
        return np.concatenate([before, _clipped(self._stream.resample_chunk(samples))])

    def flush(self) -> np.ndarray:
        """End what has come so far, and return the rest of it; what comes next begins anew."""
        nothing = np.zeros(0, np.float32)
        rest = self._stream.resample_chunk(nothing, last=True) if self._stream else nothing
        self._stream, self._from = None, self.rate
        return _clipped(rest)


def _clipped(samples: np.ndarray) -> np.ndarray:
    return resample(samples, 1, 1)
