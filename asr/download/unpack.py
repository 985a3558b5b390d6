"""Archives: unpacked whole or not at all, and nowhere but into their folder."""

import gzip
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from tqdm import tqdm

from asr.download.disk import full
from asr.errors import UserError

BLOCK = 1 << 20
DAMAGED = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError)


class Outside(Exception):
    """A name in an archive that leads out of the folder."""


def unpack(archive: Path, folder: Path, culprit: Path | None = None) -> None:
    """Unpack a .tar.gz, .tgz or .zip into a folder, with a bar.

    culprit:  for the message: what to remove where the archive is damaged, if not the archive
    raises    UserError if it is damaged, would write outside of the folder, or the disk is full
    """
    size, what = archive.stat().st_size, f"unpacking {archive.name}"
    try:
        with (
            open(archive, "rb") as file,
            tqdm.wrapattr(file, "read", total=size, desc=what, disable=None, leave=False) as read,
        ):
            (unzip if archive.suffix == ".zip" else untar)(read, folder)
    except (Outside, tarfile.FilterError) as error:
        raise UserError(f"{archive}: refused, it would write outside of its folder ({error})") from None
    except DAMAGED as error:
        raise UserError(
            f"{archive}: damaged ({error}); remove {culprit or archive} and run the same command again"
        ) from None
    except OSError as error:
        raise full(error, folder, f"the archive {archive} stays") from None


def untar(file: IO[bytes], folder: Path) -> None:
    """Unpack an open .tar.gz, and read it to its very end, where gzip's checksum stands."""
    with gzip.open(file) as content, tarfile.open(fileobj=content, mode="r:") as tar:
        tar.extractall(folder, filter="data")
        while content.read(BLOCK):
            pass


def unzip(file: IO[bytes], folder: Path) -> None:
    """Unpack an open .zip."""
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise Outside(repr(name))
            archive.extract(name, folder)


def unpack_nested(archives: Sequence[Path], target: Path) -> None:
    """Unpack archives within a target where they stand, and remove each when all of it is there."""
    for archive in tqdm(archives, desc=f"unpacking the archives in {target.name}", disable=None, leave=False):
        unpack(archive, archive.parent, culprit=target)
        archive.unlink()


def install(unpacked: Path, folder: Path, target: str) -> None:
    """Move what was unpacked to its place: first the files beside the target, as LibriSpeech's SPEAKERS.TXT, then it.

    raises   UserError if the archive doesn't hold the target
    """
    source, destination = unpacked / target, folder / target
    if not source.is_dir():
        raise UserError(f"{unpacked}: the archive holds no {target}; it isn't the one expected")
    destination.parent.mkdir(parents=True, exist_ok=True)
    for file in list(source.parent.iterdir()):
        if file.is_file():
            file.replace(destination.parent / file.name)
    source.rename(destination)
    shutil.rmtree(unpacked)
