"""Recordings that only ffmpeg reads (m4a, mp4, webm, ...), decoded once: training reads each in every epoch."""

import os
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from asr.audio import containers
from asr.audio.flac import as_flac
from asr.audio.sound import opened
from asr.data.shar import workers
from asr.errors import UserError
from asr.files import make_folder, replacing

FOLDER = "decoded"  # in OUT


def places(paths: Iterable[Path], out: str | os.PathLike) -> dict[Path, Path]:
    """Name the FLAC of each recording that ffmpeg decodes; it follows from the file's path, size and time."""
    folder, found = Path(os.path.abspath(out), FOLDER), {}
    for path in paths:
        if name := containers.fingerprint(path):
            # with a temporary name's beginning, 255 bytes at most
            found[path] = folder / f"{path.stem[:40]}-{name}.flac"
    return found


def decode(
    paths: Iterable[Path], out: str | os.PathLike, progress: bool = False
) -> dict[Path, Path | UserError]:
    """Decode what only ffmpeg reads to FLAC in OUT/decoded, at its own rate and with its own channels.

    returns   path → FLAC, or what is wrong, of these recordings alone; what is there is kept
    """
    found = places(paths, out)
    todo = {path: flac for path, flac in found.items() if not flac.exists()}
    if not todo:
        return dict(found)
    make_folder(Path(out, FOLDER))
    with workers("decoding", len(todo), progress) as (run, tell):

        def one(path: Path) -> UserError | None:
            fault = _decode(path, todo[path])
            tell(1)
            return fault

        faults = {path: fault for path, fault in zip(todo, run(one, todo), strict=True) if fault}
    return found | faults


def _decode(path: Path, flac: Path) -> UserError | None:
    """Decode one recording; return what is wrong with it."""
    try:
        with TemporaryDirectory(prefix="asr-decoded-") as folder:
            decoded = Path(folder, "sound.au")
            containers.decode(path, decoded, containers.SECONDS, containers.BYTES)
            with opened(decoded) as sound:
                sound.path = path  # which errors name
                content = as_flac(sound)
    except UserError as error:
        return error
    with replacing(flac) as temporary:
        temporary.write_bytes(content)
    return None
