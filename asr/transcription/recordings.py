"""What is to be transcribed: files, folders and manifests → recordings with their lengths."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from asr.audio import archive
from asr.errors import UserError, repeated, shorten
from asr.failures import Failure

if TYPE_CHECKING:  # heavy; a command shows its help without
    from asr.audio.load import AudioInfo

T = TypeVar("T")


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


def find_readable(
    paths: str | os.PathLike | Iterable[str], manifests: Iterable[str] = (), progress: bool = False
) -> tuple[list[Recording], list[Failure]]:
    """List all recordings of sound files, folders (searched deeply, in order of name) and manifests.

    Hidden files of a folder are left out. The id of a file is its path as given, that of a
    manifest's line its own id.

    progress  show a bar on stderr
    returns   the recordings, and the files that can't be read
    raises    UserError for an empty folder, a manifest that is missing, damaged or empty, or an id
              that comes twice
    """
    from asr.data import manifest

    paths = [os.fspath(paths)] if isinstance(paths, str | os.PathLike) else paths
    found = [
        _look(file, header)
        for file, header in _headers([file for path in paths for file in _files(path)], progress)
    ]
    failures = [one for one in found if isinstance(one, Failure)]
    recordings = [one for one in found if isinstance(one, Recording)]
    for path in manifests:
        listed = [
            Recording(u.id, u.path, u.start, u.duration, u.channel) for u in manifest.read(path)
        ]
        if not listed:
            raise UserError(f"{path}: has no utterances; prepare it again")
        recordings += listed
    if twice := repeated([one.id for one in recordings] + [one.id for one in failures]):
        raise UserError(
            f"{len(twice)} utterances are given twice ({shorten(twice)}); give each once"
        )
    return recordings, failures


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


def _headers(
    files: Sequence[str], progress: bool
) -> Iterable[tuple[str, AudioInfo | UserError | None]]:
    """Pair each file with its header, or with what is wrong with it."""
    from asr.audio.headers import read_headers

    faults = [_fault(file) for file in files]
    headers = iter(
        read_headers(
            [file for file, fault in zip(files, faults, strict=True) if not fault], progress
        )
    )
    return [(file, fault or next(headers)) for file, fault in zip(files, faults, strict=True)]


def _look(file: str, header: AudioInfo | UserError | None) -> Recording | Failure:
    if header is None or isinstance(header, UserError):
        return Failure(file, file, str(header or f"{file}: lies in an archive; give its manifest"))
    return Recording(file, file, 0.0, header.duration)


def _fault(name: str) -> UserError | None:
    """Return what keeps a name from being the id of a line."""
    from asr.data import manifest

    if name == "-":
        return UserError(
            "-: standard input isn't read; save the recording to a file and give its name"
        )
    fault = manifest.fault(name)
    return (
        UserError(f"{manifest.shown(name)}: its name {fault}; rename the file") if fault else None
    )


def _files(path: str) -> list[str]:
    from asr.audio import load as audio

    if not path:
        raise UserError("got an empty name, expected a sound file or a folder")
    if not os.path.isdir(path):
        return [path]
    found = sorted(map(str, audio.find(path)))
    if not found:
        raise UserError(
            f"{path}: this folder holds no sound file ({', '.join(sorted(audio.SUFFIXES))})"
        )
    return found
