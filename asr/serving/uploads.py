"""An upload → a recording that may be transcribed: its kind, its length and its channels are checked by its content."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import soundfile

from asr.audio import containers
from asr.audio import load as sound_files
from asr.errors import UserError
from asr.serving.errors import RequestError, without_paths
from asr.serving.options import ServingOptions
from asr.transcription.recordings import Recording

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
                sound_files.forget(path)


def recording(content: IO[bytes], name: str, folder: Path, options: ServingOptions) -> Recording:
    """Write an upload to a folder, and look at it.

    name     the client's; nothing but a known suffix of it is used
    raises   RequestError 413 if it is too long, 415 if it is no sound that can be read, 400 if it is
             damaged or empty
    """
    suffix = Path(name).suffix.lower() if name.isprintable() else ""
    path = folder / f"upload{suffix if suffix in sound_files.SUFFIXES else ''}"
    with open(path, "wb") as file:
        shutil.copyfileobj(content, file, 1 << 20)
    try:
        found = _readable(path, options)
        info = sound_files.info(found)
    except UserError as error:
        raise _error(path, without_paths(str(error), str(folder))) from None
    _check(info, options)
    return Recording("", str(found), 0.0, info.duration)


def _readable(path: Path, options: ServingOptions) -> Path:
    """Return the file, or what ffmpeg has made of it."""
    with open(path, "rb") as file:
        is_container = containers.demuxer(file.read(16)) is not None
    if not is_container:
        return path
    if not containers.is_installed():
        message = "this kind is read by ffmpeg, which the server lacks; send wav, flac, ogg or mp3"
        raise RequestError(415, message, "file", "unsupported_format")
    out, seconds = path.with_name("decoded.au"), 60 * options.max_minutes
    try:
        containers.decode(path, out, options.transcribe_seconds, round(CONVERTED * seconds) + 4096)
    except UserError as error:
        if "when it is decoded" in str(error):
            raise _too_long(options) from None
        raise
    return out


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
