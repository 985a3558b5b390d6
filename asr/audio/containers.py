"""Containers that libsndfile can't read (m4a, mp4, webm, mkv, wma, ...), decoded by ffmpeg into temporary files.

ffmpeg is given a stranger's bytes and nothing else: it reads a pipe, opens no other file and no
connection, guesses no format, and has limits of time and output.
"""

import contextlib
import hashlib
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from asr.errors import UserError
from asr.logging import logger, plain

SUFFIXES = {".m4a", ".aac", ".mp4", ".mov", ".3gp", ".webm", ".mkv", ".wma", ".amr"}
DEMUXERS = {b"\x1aE\xdf\xa3": "matroska", b"0&\xb2u\x8ef\xcf\x11": "asf", b"#!AMR": "amr"}
ATOMS = {b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip"}  # with which an MP4 or MOV begins
SECONDS = 3600.0  # that ffmpeg may take for a file
BYTES = 1 << 34  # that it may write for one: 50 hours of 48 kHz
BLOCK = 1 << 20
KEPT = 1 << 33  # bytes of decoded files; beyond that those go whose last use is longest ago
SEEN_TO = (
    1 << 28
)  # bytes that a process decodes before it sees to that: a look at all files takes time
IN_USE = 60.0  # seconds since its last use, in which a file isn't removed
COMMAND = (
    "ffmpeg -nostdin -hide_banner -v error -protocol_whitelist cache,pipe -format_whitelist {0} -f {0} "
    "-read_ahead_limit -1 -i cache:pipe:0 -map 0:a:0 -vn -sn -dn -threads 1 -f au -c:a pcm_s16be pipe:1"
)  # cache: an MP4's index may stand at its end, however far; a header of AU may leave the length open
CUT = ("partial file", "ended prematurely")  # of MP4, of Matroska
_since: Counter[str] = Counter()  # folder → bytes that this process has decoded since it saw to it
_folders: list[str] = []  # where decoded files are kept, the innermost last; all threads share it


@contextlib.contextmanager
def decoding(shared: str | None = None) -> Iterator[str]:
    """Within it, have sound files be decoded by ffmpeg where libsndfile can't; in the end, remove what it wrote.

    shared   folder that another process has made for that, and will remove; None makes one
    """
    with contextlib.ExitStack() as stack:
        made = shared or stack.enter_context(tempfile.TemporaryDirectory(prefix="asr-decoded-"))
        _folders.append(made)
        try:
            yield made
        finally:
            _folders.remove(made)
            _since.pop(made, None)


def folder() -> str | None:
    """Name the folder of the innermost `decoding`, for other processes; None outside of it."""
    return _folders[-1] if _folders else None


def demuxer(head: bytes) -> str | None:
    """Name ffmpeg's reader of a file that begins so; None if libsndfile should know it, or nobody does."""
    if head[4:8] in ATOMS:
        return "mov"
    if len(head) > 1 and head[0] == 0xFF and head[1] & 0xF6 == 0xF0:  # ADTS
        return "aac"
    return next((name for mark, name in DEMUXERS.items() if head.startswith(mark)), None)


def decoded(path: Path) -> Path | None:
    """Decode a container, unless that is still there; None outside of `decoding`, or if it is none.

    raises   UserError if ffmpeg isn't installed, fails, or exceeds a limit
    """
    if not _folders or path.suffix.lower() not in SUFFIXES:
        return None
    with open(path, "rb", buffering=0) as file:
        reader = demuxer(file.read(16))
        if reader is None:
            return None
        found = Path(_folders[-1], f"{_name(path, os.fstat(file.fileno()))}.au")
        try:
            os.utime(found)
        except FileNotFoundError:
            file.seek(0)
            _decode(path, file.fileno(), reader, found)
            _since[_folders[-1]] += found.stat().st_size
            if _since[_folders[-1]] > SEEN_TO:
                _make_room(found.parent)
                _since[_folders[-1]] = 0
    return found


def fingerprint(path: Path) -> str | None:
    """Name a container by its path, size and time; None if it is none, or can't be opened."""
    if path.suffix.lower() not in SUFFIXES:
        return None
    try:
        if not path.is_file():  # a pipe would wait for its writer
            return None
        with open(path, "rb", buffering=0) as file:
            is_container = demuxer(file.read(16)) is not None
            return _name(path, os.fstat(file.fileno())) if is_container else None
    except (OSError, ValueError):
        return None


def _name(path: Path, state: os.stat_result) -> str:
    facts = f"{os.path.realpath(path)}\0{state.st_size}\0{state.st_mtime_ns}"
    return hashlib.sha256(os.fsencode(facts)).hexdigest()[:32]


def _make_room(folder: Path) -> None:
    """Remove decoded files that were used longest ago, until the others have `KEPT` bytes or were just used."""
    files = []
    for found in folder.glob("*.au"):
        with contextlib.suppress(FileNotFoundError):  # another process makes room, too
            state = found.stat()
            files.append((state.st_mtime, state.st_size, found))
    total, now = 0, time.time()
    for used, size, found in sorted(files, reverse=True):
        total += size
        if total > KEPT and now - used > IN_USE:
            found.unlink(missing_ok=True)


def decode(
    path: Path, out: Path, seconds: float, most: int, stop: threading.Event | None = None
) -> bool:
    """Decode a container, whatever its name is, into another file; False if it is none.

    seconds   that ffmpeg may take
    most      bytes that it may write
    stop      ends it at once when it is set, which it is in the end in any case
    raises    UserError as `decoded`
    """
    with open(path, "rb", buffering=0) as file:
        reader = demuxer(file.read(16))
        if reader:
            file.seek(0)
            _decode(path, file.fileno(), reader, out, seconds, most, stop)
    return reader is not None


def is_installed() -> bool:
    """Whether ffmpeg is there."""
    return shutil.which("ffmpeg") is not None


def _decode(
    path: Path,
    content: int,
    reader: str,
    out: Path,
    seconds: float | None = None,
    most: int | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Decode the first audio stream of a file, open under a number, at its own rate and with its own channels."""
    if not (ffmpeg := shutil.which("ffmpeg")):
        raise UserError(
            f"{path}: this kind is read by ffmpeg, which isn't installed; install it "
            "(apt-get install ffmpeg, brew install ffmpeg), or convert the file to wav or flac"
        )
    with tempfile.NamedTemporaryFile(dir=out.parent, delete=False) as sound:
        try:
            command = [ffmpeg, *COMMAND.format(reader).split()[1:]]
            limits = seconds or SECONDS, most or BYTES, stop or threading.Event()
            complaint = _run(command, content, sound, *limits)
        except BaseException as error:
            os.unlink(sound.name)
            if isinstance(error, OSError):
                what = f"{out.parent}: can't be written ({error.strerror}); set TMPDIR to a larger disk"
                raise UserError(f"{path}: {what}") from None
            raise UserError(f"{path}: {error}") from None if isinstance(error, UserError) else error
    os.replace(sound.name, out)
    if complaint:
        logger.warning(f"{path}: damaged: ffmpeg says `{complaint}`; its output is used anyway")


def _run(
    command: list[str],
    content: int,
    sound: IO[bytes],
    seconds: float,
    most: int,
    stop: threading.Event,
) -> str:
    """Run ffmpeg within the limits; return the last of its complaints.

    raises   UserError if it fails, or exceeds one
    """
    pipe, folder = subprocess.PIPE, os.path.dirname(sound.name)
    process = subprocess.Popen(command, stdin=content, stdout=pipe, stderr=pipe, cwd=folder)
    complaints, late = deque[str](maxlen=1), threading.Event()
    watcher = threading.Thread(target=_watch, args=(process, seconds, stop, late))
    listener = threading.Thread(target=_listen, args=(process.stderr, complaints))
    assert process.stdout and process.stderr
    watcher.start()
    listener.start()
    try:
        size = _copy(process.stdout, sound, most)
        if size <= most:
            process.wait()
    finally:
        stop.set()
        watcher.join()
        status = process.wait()
        listener.join()
        process.stdout.close()
        process.stderr.close()
    if late.is_set():
        raise UserError(
            f"ffmpeg took more than {seconds:g} s; cut the file, or convert it yourself"
        )
    if size > most:
        raise UserError(f"has more than {most / 1e9:g} GB when it is decoded; cut it into parts")
    messages = "".join(complaints)
    if any(words in messages for words in CUT):
        raise UserError(f"truncated (ffmpeg: {messages}); copy it again")
    if status:
        raise UserError(f"ffmpeg can't read it (exit status {status}: {messages or 'no message'})")
    return messages


def _watch(
    process: subprocess.Popen, seconds: float, stop: threading.Event, late: threading.Event
) -> None:
    """End a process after some seconds, or when it shall stop."""
    if not stop.wait(seconds):
        late.set()
    process.kill()  # nothing, if it has ended


def _copy(source: IO[bytes], target: IO[bytes], most: int) -> int:
    """Copy what is written, up to the limit; return the bytes read."""
    size = 0
    while size <= most and (block := source.read(BLOCK)):
        size += len(block)
        target.write(block)
    return size


def _listen(messages: IO[bytes], complaints: deque[str]) -> None:
    """Keep the last line, without the cache's remark that a pipe can't seek to its end."""
    while line := messages.readline(4096):
        text = plain(line.decode("utf-8", "replace").strip())
        if text and not text.startswith("[cache @") and "message repeated" not in text:
            complaints.append(text)
