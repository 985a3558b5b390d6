"""Fetch and unpack a corpus part by part: skip what is done, continue what was interrupted.

A `Place` is where the files of a part are, and how far the work on it has come.
"""

import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from asr.download.archives import Damaged, Refused, install, unpack, unpack_nested
from asr.download.check import check, read_list, retain
from asr.download.disk import Need, free, need, readable, unwritten
from asr.download.fetch import DownloadError, fetch, remove
from asr.download.sources import SOURCES, CorpusPart, Source
from asr.errors import UserError, did_you_mean, shorten
from asr.files import lock, make_folder
from asr.logging import logger

WORK = ".download"  # folder for unfinished work, within the corpus folder


@dataclass(frozen=True)
class Place:
    """A part in a corpus folder."""

    folder: Path
    part: CorpusPart

    @property
    def target(self) -> Path:
        """The result, which gets this name once it is complete."""
        return self.folder / self.part.target

    @property
    def kept(self) -> Path:
        """The archive, if the user has put it here or wants to keep it."""
        return self.folder / self.part.file

    @property
    def archive(self) -> Path:
        """The file being downloaded."""
        return self.folder / WORK / self.part.file

    @property
    def unpacked(self) -> Path:
        """The folder being unpacked."""
        return self.folder / WORK / self.part.name

    def nested(self) -> list[Path]:
        """List the archives within the target that are still to unpack."""
        return (
            sorted(path for path in self.target.glob(self.part.nested) if path.is_file())
            if self.part.nested
            else []
        )

    def look(self) -> None:
        """Check that anything with the name of the target or the archive is of the right kind.

        raises   UserError
        """
        kind = "a folder" if self.part.unpacked else "a file"
        right = self.target.is_dir() if self.part.unpacked else self.target.is_file()
        if os.path.lexists(self.target) and not right:
            raise UserError(
                f"{self.target}: exists and isn't {kind}; move it away: {self.part.name} needs that name"
            )
        if self.target.is_dir() and not any(self.target.iterdir()):
            raise UserError(
                f"{self.target}: exists and is empty; remove it, so that {self.part.name} is fetched"
            )
        if os.path.lexists(self.kept) and not self.kept.is_file():
            found = "a folder" if self.kept.is_dir() else "not a regular file"
            raise UserError(
                f"{self.kept}: is {found}; move it away, so that {self.part.name} is fetched"
            )

    def done(self) -> bool:
        """Tell whether nothing is left to do."""
        return self.target.exists() and not self.nested() and not self.archive.exists()

    def to_fetch(self) -> int:
        """Return the bytes that are still to fetch."""
        if self.target.exists() or self.kept.exists():
            return 0
        here = self.archive.stat().st_size if self.archive.exists() else 0
        return max(0, self.part.bytes - here)

    def to_unpack(self) -> int:
        """Return the bytes that unpacking will add."""
        if not self.target.exists():
            return self.part.unpacked
        return (
            sum(path.stat().st_size for path in self.nested())
            * self.part.unpacked
            // self.part.bytes
        )


def download(
    corpus: str,
    folder: str | os.PathLike,
    parts: Sequence[str] = (),
    mirror: str = "",
    keep_archives: bool = False,
    dry_run: bool = False,
) -> list[Path]:
    """Download parts of a corpus into a folder: fetch, check, unpack, remove the archive.

    corpus:   one of `sources.SOURCES`
    parts:    their names; all if empty
    mirror:   a server to try first, with the same paths as in `sources`
    dry_run:  only report what would be done, and the disk space for it
    returns   the resulting folders or files
    raises    UserError; finished work stays, and the same call continues from it
    """
    source = find(corpus)
    look(folder)
    if mirror:
        look_at_mirror(mirror)
    places = [Place(Path(folder), part) for part in source.choose(parts)]
    for place in places:
        place.look()
    todo = [place for place in places if not place.done()]
    for place in places:
        logger.info(tell(place, place not in todo, mirror))
    if todo:
        room = need(((place.to_fetch(), place.to_unpack()) for place in todo), keep_archives)
        logger.info(tell_room(room, Path(folder)))
        look_writable(Path(folder))
        room.check(Path(folder))
        if not dry_run:
            work(todo, source, mirror, keep_archives)
    return [place.target for place in places]


def look(folder: str | os.PathLike) -> None:
    """Check that a name is that of a folder, or can become one.

    raises   UserError
    """
    if not os.fspath(folder) or "\0" in os.fspath(folder):
        name = "an empty name" if not os.fspath(folder) else "a name with a NUL"
        raise UserError(f"FOLDER: got {name}, expected a folder's name; . is the current folder")
    try:
        if not stat.S_ISDIR(os.stat(folder).st_mode):
            raise UserError(f"{folder}: isn't a folder; choose another")
    except FileNotFoundError:
        if os.path.islink(folder):
            raise UserError(
                f"{folder}: is a broken link; remove it, or choose another folder"
            ) from None
    except OSError as error:
        raise UserError(f"{folder}: can't be a folder ({error.strerror}); choose another") from None


def look_writable(folder: Path) -> None:
    """Check that the folder is writable or can be made, and that no links lie where files will be written.

    raises   UserError
    """
    work = folder / WORK
    for path in (work, *work.glob("*")):
        if path.is_symlink():
            raise UserError(f"{path}: is a link, which asr-download never makes there; remove it")
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    if not os.access(there, os.W_OK | os.X_OK):
        raise UserError(
            f"{folder}: can't write into {there} (permission denied, or read-only); choose another folder"
        )


def look_at_mirror(mirror: str) -> None:
    """Check that a mirror is the URL of a server, to which the paths of files can be added.

    raises   UserError
    """
    try:
        url = urlsplit(mirror)
        fits = url.scheme in ("http", "https") and url.hostname and (url.port or 1)
    except ValueError:
        fits = False
    if (
        not fits
        or not mirror.isascii()
        or not mirror.isprintable()
        or " " in mirror
        or "?" in mirror
        or "#" in mirror
    ):
        raise UserError(
            f"got {mirror!r}, expected the URL of a server, http://... or https://..., in ASCII, without spaces, ? and "
            "#; put a local file into FOLDER instead",
            argument="mirror",
        )
    if "@" in url.netloc:
        raise UserError(
            f"{url.hostname} comes with a name or a password, which would be shown and stored; leave that out",
            argument="mirror",
        )


def find(corpus: str) -> Source:
    """Find a corpus by its name.

    raises   UserError for an unknown corpus
    """
    if corpus not in SOURCES:
        raise UserError(
            f"got {corpus!r}, expected a corpus: {', '.join(SOURCES)}{did_you_mean(corpus, SOURCES)}"
        )
    return SOURCES[corpus]


def tell(place: Place, done: bool, mirror: str) -> str:
    """Describe what is left to do for a part."""
    if done:
        return f"{place.part.name}: there already, {place.target}"
    if place.target.exists():
        return (
            f"{place.part.name}: {place.target} is there, with archives still to unpack or remove"
        )
    if place.kept.exists():
        return f"{place.part.name}: {place.kept} → {place.target}"
    begun = f", {readable(place.to_fetch())} left" if place.archive.exists() else ""
    return f"{place.part.name}: {place.part.urls(mirror)[0]} ({readable(place.part.bytes)}{begun}) → {place.target}"


def tell_room(room: Need, folder: Path) -> str:
    """Describe the disk space that the work needs."""
    return (
        f"disk: about {readable(room.most)} more at its fullest, {readable(room.lasting)} when done; "
        f"{readable(free(folder))} free"
    )


def work(places: Sequence[Place], source: Source, mirror: str, keep_archives: bool) -> None:
    """Finish each part, with the folder locked against other processes."""
    folder = places[0].folder
    with lock(make_folder(folder / WORK)):
        try:
            for place in places:
                provide(place, source, mirror, keep_archives)
                logger.info(f"{place.part.name}: done, {place.target}")
        except OSError as error:
            raise unwritten(error, Path(error.filename or folder), "finished work stays") from None
        finally:
            tidy(folder / WORK)


def tidy(folder: Path) -> None:
    """Remove the working folder, unless it holds unfinished work."""
    if all(path.name == ".lock" for path in folder.iterdir()):
        shutil.rmtree(folder)


def provide(place: Place, source: Source, mirror: str, keep_archives: bool) -> None:
    """Fetch and unpack a part, and unpack the archives within it."""
    if not place.target.exists():
        archive = get(place, source, mirror)
        if not place.part.unpacked:
            archive.replace(place.target)
        else:
            unpack_into_place(archive, place)
            if keep_archives:
                archive.replace(place.kept)
    remove(place.archive)
    unpack_nested(place.nested(), place.target, place.part.budget())


def get(place: Place, source: Source, mirror: str) -> Path:
    """Return the complete, checked file of a part: the one that the user put into the folder, or a fetched one.

    raises   UserError
    """
    if place.kept.exists():
        try:
            check(place.kept, place.part)
        except (DownloadError, OSError) as failure:
            raise UserError(f"{place.kept}: {failure}; remove it to fetch it again") from None
        return place.kept
    instead = f"without a network, put it into {place.folder} yourself, or use a local copy: {source.instead}"
    urls, most = place.part.urls(mirror), place.part.most
    fetch(urls, place.archive, most, lambda path: check(path, place.part), instead)
    return place.archive


def unpack_into_place(archive: Path, place: Place) -> None:
    """Unpack under a temporary name, check, and move the complete folder to its place.

    raises   UserError; then a fetched archive with wrong content is removed, which frees its disk
             space
    """
    try:
        unpack(archive, place.unpacked, place.part.budget())
        if place.part.files:
            keep_listed(place)
        install(place.unpacked, place.folder, place.part.target)
    except (Refused, Damaged, DownloadError) as error:
        shutil.rmtree(place.unpacked, ignore_errors=True)
        remove(place.archive)
        what = "damaged" if isinstance(error, Damaged) else "refused"
        fix = "remove it" if archive == place.kept else "it was removed"
        raise UserError(
            f"{archive}: {what}, {error}; {fix}; run the same command to fetch it again"
        ) from None


def keep_listed(place: Place) -> None:
    """Compare the unpacked files with their list of SHA-256 digests, and remove those that aren't in it.

    raises   DownloadError
    """
    strange = retain(read_list(place.part.files), place.unpacked)
    if strange:
        logger.info(
            f"{place.part.name}: left out, because the list of SHA-256 digests doesn't have them: {shorten(strange)}"
        )
