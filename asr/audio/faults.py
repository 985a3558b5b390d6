"""Errors that say why a file can't be read as sound, and how to make it readable."""

import os
import re
import shlex
from pathlib import Path

from asr.audio import archive, containers
from asr.audio.first_bytes import is_text
from asr.errors import UserError


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
    # "does not exist" is libsndfile's message for an mp3 without sound
    if isinstance(error, TypeError) or "does not exist" in reason:
        reason = "no known kind of sound"
    return UserError(
        f"{path}: can't be read as sound ({reason}); expected wav, flac, ogg, opus, mp3 or NIST sphere"
    )


def needs_conversion(path: Path, head: bytes) -> bool:
    """Recognize files that ffmpeg reads and libsndfile doesn't, by their first bytes or name."""
    named = path.suffix.lower() in containers.SUFFIXES and not is_text(head)
    return containers.demuxer(head) is not None or named
