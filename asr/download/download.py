"""A corpus, fetched and unpacked part by part; what is done is left alone, what was stopped goes on."""

import os
import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path

from asr.download.check import check
from asr.download.disk import Need, free, need, readable
from asr.download.fetch import Failure, fetch, remove
from asr.download.place import WORK, Place
from asr.download.sources import SOURCES, Source
from asr.download.unpack import install, unpack, unpack_nested
from asr.errors import UserError, did_you_mean
from asr.files import hold, make_folder
from asr.say import say


def download(
    corpus: str,
    folder: str | os.PathLike,
    parts: Sequence[str] = (),
    mirror: str = "",
    keep_archives: bool = False,
    dry_run: bool = False,
) -> list[Path]:
    """Bring parts of a corpus into a folder: fetch, check, unpack, remove the archive.

    corpus:   one of `sources.SOURCES`
    parts:    their names; none: all
    mirror:   a server to ask first; it has the files under the paths of `sources`
    dry_run:  say what there is to do and what it takes, and do nothing
    returns   what the parts have become, folders or files
    raises    UserError; what is there by then stays, and the same call goes on from it
    """
    source = find(corpus)
    places = [Place(Path(folder), part) for part in source.choose(parts)]
    if mirror and not mirror.startswith(("http://", "https://")):
        raise UserError(f"--mirror: got {mirror!r}, expected a server's URL, http://... or https://...")
    todo = [place for place in places if not place.done()]
    for place in places:
        say(tell(place, place not in todo, mirror))
    if todo:
        room = need(((place.to_fetch(), place.to_unpack()) for place in todo), keep_archives)
        say(tell_room(room, Path(folder)))
        if not dry_run:
            work(todo, room, source, mirror, keep_archives)
    return [place.target for place in places]


def find(corpus: str) -> Source:
    """Find a corpus by its name.

    raises   UserError if it isn't one of those that can be fetched
    """
    if corpus not in SOURCES:
        raise UserError(f"got {corpus!r}, expected a corpus: {', '.join(SOURCES)}{did_you_mean(corpus, SOURCES)}")
    return SOURCES[corpus]


def tell(place: Place, done: bool, mirror: str) -> str:
    """Say what there is to do for a part."""
    if done:
        return f"{place.part.name}: there already, {place.target}"
    if place.target.exists():
        return f"{place.part.name}: {place.target} is there, archives are left to unpack or to remove"
    if place.kept.exists():
        return f"{place.part.name}: {place.kept} → {place.target}"
    begun = f", {readable(place.to_fetch())} are left" if place.archive.exists() else ""
    return f"{place.part.name}: {place.part.urls(mirror)[0]} ({readable(place.part.bytes)}{begun}) → {place.target}"


def tell_room(room: Need, folder: Path) -> str:
    """Say what the work takes of the disk."""
    return (
        f"disk: about {readable(room.most)} more at its fullest, {readable(room.lasting)} when done; "
        f"{readable(free(folder))} are free"
    )


def work(places: Sequence[Place], room: Need, source: Source, mirror: str, keep_archives: bool) -> None:
    """Do what there is to do for each part, while no other process works in the folder."""
    if not hasattr(tarfile, "data_filter"):
        raise UserError("this Python can't unpack archives safely; it takes 3.10.12, 3.11.4, 3.12 or newer")
    folder = places[0].folder
    room.check(folder)
    with hold(make_folder(folder / WORK)):
        try:
            for place in places:
                bring(place, source, mirror, keep_archives)
                say(f"{place.part.name}: done, {place.target}")
        finally:
            tidy(folder / WORK)


def tidy(folder: Path) -> None:
    """Remove the working folder, unless something waits in it to be gone on with."""
    if all(path.name == ".held" for path in folder.iterdir()):
        shutil.rmtree(folder)


def bring(place: Place, source: Source, mirror: str, keep_archives: bool) -> None:
    """Fetch a part, unpack it, and the archives within it."""
    if not place.target.exists():
        archive = get(place, source, mirror)
        if not place.part.unpacked:
            archive.replace(place.target)
        else:
            unpack_into_place(archive, place)
            if keep_archives:
                archive.replace(place.kept)
    remove(place.archive)
    unpack_nested(place.nested(), place.target)


def get(place: Place, source: Source, mirror: str) -> Path:
    """Give the whole, checked file of a part: the one that the person has put into the folder, or fetch it.

    raises   UserError
    """
    if place.kept.exists():
        try:
            check(place.kept, place.part.digest)
        except (Failure, OSError) as failure:
            raise UserError(f"{place.kept}: {failure}; remove it, and it is fetched") from None
        return place.kept
    instead = f"without a network, put it into {place.folder} yourself, or use a copy at hand: {source.instead}"
    fetch(place.part.urls(mirror), place.archive, lambda path: check(path, place.part.digest), instead)
    return place.archive


def unpack_into_place(archive: Path, place: Place) -> None:
    """Unpack under a temporary name, then give what is whole its own; a half that an earlier call left is redone."""
    shutil.rmtree(place.unpacked, ignore_errors=True)
    try:
        unpack(archive, place.unpacked)
        install(place.unpacked, place.folder, place.part.target)
    except UserError:
        shutil.rmtree(place.unpacked, ignore_errors=True)  # gives the disk its room back
        raise
