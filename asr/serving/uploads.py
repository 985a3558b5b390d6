"""An upload → a recording that may be transcribed: its kind, its length and its channels are checked by its content.

What ffmpeg decodes takes as long as a stranger's file makes it: that has threads of its own.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import time
from collections.abc import Hashable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import soundfile

from asr.audio import containers
from asr.audio import load as sound_files
from asr.audio.sound import SUFFIXES, forget
from asr.errors import UserError
from asr.serving.clients import CLOSED, Closed
from asr.serving.errors import RequestError, without_paths
from asr.serving.fairness import FairThreads
from asr.serving.options import ServingOptions
from asr.transcription.recordings import Recording

DECODED = "decoded.au"  # what ffmpeg makes of an upload, beside it
DECODERS = 2  # uploads that ffmpeg decodes at once
CHANNELS = 32
RATE = 192_000  # Hz; a recording of the longest duration has at most this number of samples a second, of all channels
# bytes that ffmpeg may write for each second of the longest duration: 48 kHz in stereo
CONVERTED = 96_000 * 2


@contextmanager
def kept(parent: str) -> Iterator[Path]:
    """Make a folder for a request's files; remove it in the end, and what was noted about them."""
    with tempfile.TemporaryDirectory(dir=parent, ignore_cleanup_errors=True) as folder:
        try:
            yield Path(folder)
        finally:
            for path in Path(folder).iterdir():
                forget(path)


def write(content: IO[bytes], name: str, folder: Path) -> Path:
    """Write an upload to a folder; nothing but a known suffix of the client's name for it is used."""
    suffix = Path(name).suffix.lower() if name.isprintable() else ""
    path = folder / f"upload{suffix if suffix in SUFFIXES else ''}"
    with open(path, "wb") as file:
        shutil.copyfileobj(content, file, 1 << 20)
    return path


def is_container(path: Path) -> bool:
    """Whether ffmpeg reads an upload."""
    with open(path, "rb") as file:
        return containers.demuxer(file.read(16)) is not None


def recording(path: Path, options: ServingOptions) -> Recording:
    """Look at an upload, or at what ffmpeg has made of it.

    raises   RequestError 413 if it is too long, 415 if it is no sound that can be read, 400 if it is
             damaged or empty
    """
    with _explained(path):
        info = sound_files.info(path)
    _check(info, options)
    return Recording("", str(path), 0.0, info.duration)


class Decoders:
    """Threads in which ffmpeg decodes uploads; clients take turns."""

    def __init__(self, options: ServingOptions):
        self._options, self._turns = options, FairThreads(DECODERS, "asr-decoder")
        self._open = dict[Future[Path], threading.Event]()  # and what ends them
        self._closed = False

    @contextmanager
    def decoding(self, path: Path, client: Hashable) -> Iterator[Future[Path]]:
        """Have a container be decoded, and give the path of what comes of it; leaving ends ffmpeg.

        raises   RequestError 415 without ffmpeg; Closed, also of the future, if these are closed. The
                 future's exceptions are RequestError 413 and 400, too
        """
        if not containers.is_installed():
            message = (
                "this kind is read by ffmpeg, which the server lacks; send wav, flac, ogg or mp3"
            )
            raise RequestError(415, message, "file", "unsupported_format")
        future, stop = Future[Path](), threading.Event()
        self._open[future] = stop
        try:
            with contextlib.suppress(RuntimeError):  # these are closed
                self._turns.begin(client, self._decode(path, future, stop))
            if self._closed:
                raise Closed(CLOSED)
            yield future
        finally:
            del self._open[future]
            _end(future, stop)

    def close(self) -> None:
        """End what runs."""
        self._closed = True
        self._turns.close()
        for pair in list(self._open.items()):
            _end(*pair)

    def _decode(self, path: Path, future: Future[Path], stop: threading.Event) -> Iterator[float]:
        """Decode, in one of the threads; yield the seconds that it took."""
        began = time.monotonic()
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(_decoded(path, self._options, stop))
        except Exception as error:
            if stop.is_set():
                _clear(path)
            future.set_exception(Closed(CLOSED) if self._closed else error)
        yield time.monotonic() - began


def _clear(path: Path) -> None:
    """Remove what ffmpeg made of an upload, and its folder if the request, gone before that, couldn't."""
    with contextlib.suppress(OSError):
        path.with_name(DECODED).unlink(missing_ok=True)
        path.parent.rmdir()


def _end(future: Future[Path], stop: threading.Event) -> None:
    future.cancel()  # if it waits
    stop.set()  # if it runs


def _decoded(path: Path, options: ServingOptions, stop: threading.Event) -> Path:
    out, seconds = path.with_name(DECODED), 60 * options.max_minutes
    most = round(CONVERTED * seconds) + 4096
    with _explained(path):
        try:
            containers.decode(path, out, options.transcribe_seconds, most, stop)
        except UserError as error:
            if "when it is decoded" in str(error):
                raise _too_long(options) from None
            raise
    return out


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Answer what is wrong with an upload."""
    try:
        yield
    except UserError as error:
        raise _error(path, without_paths(str(error), str(path.parent))) from None


def _check(info: sound_files.AudioInfo, options: ServingOptions) -> None:
    seconds = 60 * options.max_minutes
    if info.duration > seconds or info.samples * info.channels > RATE * seconds:
        raise _too_long(options)
    if info.channels > CHANNELS:
        message = f"got {info.channels} channels, expected at most {CHANNELS}"
        raise RequestError(400, message, "file", "invalid_audio")


def _too_long(options: ServingOptions) -> RequestError:
    message = f"a recording has at most {options.max_minutes:g} minutes"
    return RequestError(413, message, "file", "too_long")


def _error(path: Path, message: str) -> RequestError:
    """Tell a damaged file, 400, from one of no known kind, 415."""
    known = path.stat().st_size == 0
    with (
        contextlib.suppress(RuntimeError, TypeError, OSError),
        open(path, "rb", buffering=0) as file,
    ):
        known |= containers.demuxer(file.read(16)) is not None
        file.seek(0)
        with soundfile.SoundFile(file.fileno(), closefd=False):
            known = True
    if known:
        return RequestError(400, message, "file", "invalid_audio")
    return RequestError(415, message, "file", "unsupported_format")
