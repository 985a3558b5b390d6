"""What is to be transcribed: files, folders and manifests → utterances with their lengths."""

import os
from collections.abc import Iterable
from dataclasses import dataclass

from asr import audio
from asr.data import manifest
from asr.errors import UserError, shorten


@dataclass(frozen=True)
class Source:
    """A recording, or part of one: id, path, start and duration in seconds."""

    id: str
    path: str
    start: float
    duration: float


def find(paths: str | os.PathLike | Iterable[str], manifests: Iterable[str] = ()) -> list[Source]:
    """List all utterances of sound files, folders (searched deeply, in order of name) and manifests.

    Hidden files of a folder are left out. The id of a file is its path as given, of a manifest's line its own id.

    raises   UserError for a missing or unreadable file, an empty folder or manifest, an id that comes twice, or a name
             that a line of text can't hold
    """
    paths = [os.fspath(paths)] if isinstance(paths, str | os.PathLike) else paths
    files = [_writable(file) for path in paths for file in _files(path)]
    sources = [Source(file, file, 0.0, audio.info(file).duration) for file in files]
    for path in manifests:
        listed = [Source(u.id, u.path, u.start, u.duration) for u in manifest.read(path)]
        if not listed:
            raise UserError(f"{path}: has no utterances; prepare it again")
        sources += listed
    seen: set[str] = set()
    repeated = [s.id for s in sources if s.id in seen or seen.add(s.id)]
    if repeated:
        raise UserError(f"{len(repeated)} utterances are given twice ({shorten(repeated)}); give each once")
    return sources


def _writable(name: str) -> str:
    """The name, which is to be the id of a line."""
    if any(c in "\t\n\r" or "\ud800" <= c <= "\udfff" for c in name):  # Python's for bytes that aren't UTF-8
        raise UserError(f"{name!a}: its name has a tab, a line's end or bytes that aren't UTF-8; rename the file")
    return name


def _files(path: str) -> list[str]:
    if not os.path.isdir(path):
        return [path]
    found = sorted(map(str, audio.find(path)))
    if not found:
        raise UserError(f"{path}: this folder holds no sound file ({', '.join(sorted(audio.SUFFIXES))})")
    return found
