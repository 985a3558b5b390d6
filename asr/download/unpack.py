"""Unpack archives completely or not at all, and only into their folder."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from tqdm import tqdm

from asr.download.disk import unwritten
from asr.download.members import Budget, Damaged, Member, Refused
from asr.download.tar import read_tar
from asr.download.zip import read_zip
from asr.errors import UserError
from asr.logging import bars_hidden, progress_bar


@contextmanager
def members_of(archive: Path, budget: Budget, what: str) -> Iterator[Iterator[Member]]:
    """Open a .tar.gz, .tgz or .zip and iterate over its members, with a progress bar.

    raises   Refused, Damaged
    """
    with (
        open(archive, "rb") as file,
        tqdm.wrapattr(
            file,
            "read",
            total=archive.stat().st_size,
            desc=f"{what} {archive.name}",
            disable=bars_hidden(),
            leave=False,
        ) as read,
    ):
        yield (read_zip if archive.suffix == ".zip" else read_tar)(read, budget)


def unpack(archive: Path, folder: Path, budget: Budget) -> None:
    """Unpack an archive into a new folder. Remove what an earlier call left of it, and everything on failure.

    Files and folders get the permissions that the umask leaves, whatever the archive says.
    raises   Refused, Damaged; UserError if the disk is full
    """
    shutil.rmtree(folder, ignore_errors=True)
    made = {PurePosixPath(".")}
    try:
        folder.mkdir()
        with members_of(archive, budget, "unpacking") as members:
            for member in members:
                write(member, folder, made, budget)
    except (Refused, Damaged):
        shutil.rmtree(folder, ignore_errors=True)  # frees the disk space
        raise
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise unwritten(error, folder, f"the archive {archive} stays") from None


def write(member: Member, folder: Path, made: set[PurePosixPath], budget: Budget) -> None:
    """Write a member into a folder that holds only what was written here, and so no link.

    made:    the folders that exist already
    raises   Refused, Damaged, OSError
    """
    try:
        for parent in [*reversed(member.path.parents), *[member.path] * member.is_folder]:
            if parent not in made:
                budget.take(members=1)
                os.mkdir(folder / parent)
                made.add(parent)
        if not member.is_folder:
            with open(folder / member.path, "xb") as file:
                file.writelines(member.content)
    except FileExistsError:
        raise Refused(
            f"{ascii(str(member.path))} is in it twice, or as both a file and a folder"
        ) from None


def unpack_nested(archives: Sequence[Path], target: Path, budget: Budget) -> None:
    """Unpack archives within a target in place, and remove each one once it is unpacked.

    raises   UserError if one is damaged, holds something that no corpus does, or the disk is full
    """
    for archive in progress_bar(archives, desc=f"unpacking the archives in {target.name}"):
        unpacked = archive.with_name(f".unpacking-{archive.name}")
        try:
            unpack(archive, unpacked, budget)
        except Refused as error:
            raise UserError(f"{archive}: refused, {error}; remove {target}") from None
        except Damaged as error:
            raise UserError(
                f"{archive}: damaged ({error}); remove {target} and run the same command again"
            ) from None
        merge(unpacked, archive.parent)
        archive.unlink()


def merge(unpacked: Path, folder: Path) -> None:
    """Move the unpacked files to the same places in another folder."""
    for file in sorted(unpacked.rglob("*")):
        if file.is_file():
            place = folder / file.relative_to(unpacked)
            place.parent.mkdir(parents=True, exist_ok=True)
            file.replace(place)
    shutil.rmtree(unpacked)


def install(unpacked: Path, folder: Path, target: str) -> None:
    """Move unpacked files to their place: first those beside the target, such as LibriSpeech's SPEAKERS.TXT, then it.

    Files beside a target that has no folder around it are left out: they would land among the
    user's own files.
    raises   Refused if the archive doesn't hold the target
    """
    source, destination = unpacked / target, folder / target
    if not source.is_dir():
        raise Refused(f"it holds no {target}")
    destination.parent.mkdir(parents=True, exist_ok=True)
    for file in list(source.parent.iterdir()) if source.parent != unpacked else []:
        if file.is_file():
            file.replace(destination.parent / file.name)
    source.rename(destination)
    shutil.rmtree(unpacked)
