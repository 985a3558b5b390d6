"""What is to be transcribed: files, folders, globs, lists and manifests → recordings with their lengths."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from asr.audio import archive, containers
from asr.errors import UserError, repeated, shorten
from asr.failures import Failure
from asr.files import open_file

if TYPE_CHECKING:  # heavy; a command shows its help without
    from asr.audio.load import AudioInfo
    from asr.data.manifest import Utterance

T = TypeVar("T")
Wanted = (
    int | str | None
)  # channel of recordings that name none: its number, "all", None for the mean


@dataclass(frozen=True)
class Recording:
    """A recording or a part of one, in seconds; channel None: the mean of all."""

    id: str
    path: str
    start: float
    duration: float
    channel: int | None = None

    @cached_property
    def key(self) -> str:
        """Identify the work: place and part, and the file's state when this is first read."""
        within = archive.place(self.path)
        try:
            state = os.stat(within.archive if within else self.path)
            facts = (state.st_size, state.st_mtime_ns)
        except OSError:
            facts = None
        return repr((self.id, self.path, self.start, self.duration, self.channel, facts))


def find(
    paths: str | os.PathLike | Iterable[str], manifests: Iterable[str] = ()
) -> list[Recording]:
    """List all recordings of sound files, folders and manifests; see `find_readable`.

    raises    UserError for a file that can't be read, an empty folder, a manifest that is missing,
              damaged or empty, or an id that comes twice
    """
    recordings, failures = find_readable(paths, manifests)
    if failures:
        raise UserError(failures[0].reason)
    return recordings


def one_recording(path: str | os.PathLike, fix: str) -> Recording:
    """Return the recording of a sound file; fix: what to do with several.

    raises    UserError if it can't be read, or is a folder of several
    """
    found = find(path)
    if len(found) != 1:
        raise UserError(f"audio: {path} holds {len(found)} recordings, expected one; {fix}")
    return found[0]


def find_readable(
    paths: str | os.PathLike | Iterable[str],
    manifests: Iterable[str] = (),
    progress: bool = False,
    channel: Wanted = None,
    choose: Callable[[list], list] = list,
) -> tuple[list[Recording], list[Failure]]:
    """List all recordings of sound files, folders (searched deeply, in order of name) and manifests.

    Hidden files of a folder are left out. The id of a file is its path as given, that of a
    manifest's line its own id.

    progress  show a bar on stderr
    channel   for recordings whose manifest names none: its number from 0; "all" makes a recording
              ID#0, ID#1, ... of each; None the mean
    choose    keeps some of the files and lines, before any file is opened
    returns   the recordings, and the files that can't be read or lack the channel
    raises    UserError for an empty folder, a manifest that is missing, damaged or empty, or an id
              that comes twice
    """
    paths = [os.fspath(paths)] if isinstance(paths, str | os.PathLike) else paths
    given: list[str | Utterance] = [file for path in paths for file in sounds_of(path)]
    given = choose(given + [line for path in manifests for line in _lines(path)])
    headers = iter(_headers([one for one in given if isinstance(one, str)], progress))
    found = [
        each
        for one in given
        for each in (
            _look(*next(headers), channel) if isinstance(one, str) else _of_line(one, channel)
        )
    ]
    failures = [one for one in found if isinstance(one, Failure)]
    recordings = [one for one in found if isinstance(one, Recording)]
    if twice := repeated([one.id for one in found]):
        raise UserError(
            f"{len(twice)} utterances are given twice ({shorten(twice)}); give each once"
        )
    return recordings, failures


def matching(path: str) -> list[str]:
    """List the files that a glob such as `calls/**/*.wav` names, sorted; a name without `*?[`, or of a file, is itself.

    raises   UserError if there are none
    """
    if os.path.lexists(path) or not glob.has_magic(path):
        return [path]
    found = sorted(glob.glob(path, recursive=True))
    if "**" in path:  # names folders beside the files in them
        found = [one for one in found if not os.path.isdir(one)]
    if not found:
        raise UserError(f"{path}: names no file; expected a sound file, a folder, or a pattern")
    return found


def read_list(path: str) -> list[str]:
    """Read a list of paths, each ended by a NUL if there is any, else by a line's end; `-` is standard input.

    raises   UserError if it can't be read, or is empty
    """
    if path == "-":
        content = sys.stdin.buffer.read()
    else:
        with open_file(path, "no such list; give a file with a path on each line") as file:
            content = file.read()
    ends = b"\0" if b"\0" in content else b"\n"
    names = [os.fsdecode(name.removesuffix(b"\r")) for name in content.split(ends) if name.strip()]
    if not names:
        name = "standard input" if path == "-" else path
        raise UserError(f"{name}: has no paths; expected one on each line")
    return names


def in_order(
    recordings: Sequence[Recording], results: Iterable[tuple[Recording, T]]
) -> Iterator[tuple[Recording, T]]:
    """Yield results in the order of the recordings, each as soon as all before it are there."""
    waiting, place = {}, 0
    for recording, result in results:
        waiting[recording] = result
        while place < len(recordings) and recordings[place] in waiting:
            yield recordings[place], waiting.pop(recordings[place])
            place += 1


def cut(recordings: Iterable[Recording], seconds: float) -> Iterator[list[Recording]]:
    """Yield runs of at most `seconds` of audio; a longer recording is a run of its own."""
    run: list[Recording] = []
    audio = 0.0
    for recording in recordings:
        if run and audio + recording.duration > seconds:
            yield run
            run, audio = [], 0.0
        run.append(recording)
        audio += recording.duration
    if run:
        yield run


def _headers(
    files: Sequence[str], progress: bool
) -> Iterable[tuple[str, AudioInfo | UserError | None]]:
    """Pair each file with its header, or with what is wrong with it."""
    from asr.audio.headers import read_headers

    faults = [fault_of(file) for file in files]
    headers = iter(
        read_headers(
            [file for file, fault in zip(files, faults, strict=True) if not fault], progress
        )
    )
    return [(file, fault or next(headers)) for file, fault in zip(files, faults, strict=True)]


def _lines(path: str) -> list[Utterance]:
    from asr.data import manifest

    listed = list(manifest.read(path))
    if not listed:
        raise UserError(f"{path}: has no utterances; prepare it again")
    return listed


def _look(
    file: str, header: AudioInfo | UserError | None, channel: Wanted
) -> list[Recording] | list[Failure]:
    if header is None or isinstance(header, UserError):
        reason = str(header or f"{file}: lies in an archive; give its manifest")
        return [Failure(file, file, reason)]
    return _on_channel(Recording(file, file, 0.0, header.duration), header.channels, channel)


def _of_line(line: Utterance, channel: Wanted) -> list[Recording] | list[Failure]:
    recording = Recording(line.id, line.path, line.start, line.duration, line.channel)
    return (
        [recording] if line.channel is not None else _on_channel(recording, line.channels, channel)
    )


def _on_channel(
    recording: Recording, channels: int, channel: Wanted
) -> list[Recording] | list[Failure]:
    """Take one of a recording's channels, or each as a recording of its own."""
    if channel == "all":
        return [
            replace(recording, id=f"{recording.id}#{n}", channel=n if channels > 1 else None)
            for n in range(channels)
        ]
    number = channel if isinstance(channel, int) else None
    if number is not None and number >= channels:
        has = "1 channel" if channels == 1 else f"{channels} channels"
        reason = f"{recording.path}: has {has}, counted from 0; channel {number} was requested"
        return [Failure(recording.id, recording.path, reason)]
    return [replace(recording, channel=number if channels > 1 else None)]


def fault_of(name: str) -> UserError | None:
    """Return what keeps a name from being the id of a line."""
    from asr.data import manifest

    if name == "-":
        return UserError(
            "-: standard input isn't read as a sound file; save it to a file and give its name, "
            "or give the rate of raw samples (raw)"
        )
    fault = manifest.fault(name)
    return (
        UserError(f"{manifest.shown(name)}: its name {fault}; rename the file") if fault else None
    )


def sounds_of(path: str) -> list[str]:
    """List the sound files of a folder; a file is its own.

    raises   UserError if the folder has none
    """
    from asr.audio.load import find
    from asr.audio.sound import SUFFIXES

    if not path:
        raise UserError("got an empty name, expected a sound file or a folder")
    if not os.path.isdir(path):
        return [path]
    suffixes = SUFFIXES | containers.SUFFIXES
    found = sorted(map(str, find(path, suffixes)))
    if not found:
        raise UserError(f"{path}: this folder holds no sound file ({', '.join(sorted(suffixes))})")
    return found
