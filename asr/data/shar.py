"""Recordings in a few large files: lhotse's Shar, written without lhotse; a test holds that lhotse reads it.

A folder of shards `recording.000000.tar` and `cuts.000000.jsonl.gz`, each with up to SHARD
utterances drawn at random, and beside it a manifest in the order of the corpus, which says where in
which tar each recording begins. Whoever reads the manifest knows all lengths and opens no shard.
"""

import hashlib
import json
import os
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from threading import Event

from asr.audio import archive
from asr.audio.archive import Span
from asr.audio.flac import LOSSY, as_flac, fits_flac
from asr.audio.sound import Sound, opened
from asr.data import manifest
from asr.data.manifest import Utterance
from asr.errors import UserError, refuse
from asr.files import make_folder, replacing, write_text
from asr.logging import progress_bar
from asr.parts import Part, check_complete
from asr.stamp import Stamp, is_stamped

SHARD = 1000  # utterances
# subtypes that FLAC keeps to the bit
EXACT = {"PCM_S8", "PCM_U8", "PCM_16", "PCM_24", "ULAW", "ALAW"}


def paths(folder: str | os.PathLike, split: str) -> tuple[Path, Path]:
    """The manifest of a split's Shar, and the folder of its shards."""
    return Path(folder) / f"{split}.shar.jsonl.gz", Path(folder) / f"{split}.shar"


def stamp_of(folder: str | os.PathLike, split: str, identity: str) -> Stamp:
    """The stamp of a finished Shar; identity: of the utterances, the state of their sound files, and `flac`."""
    return Stamp(
        paths(folder, split)[0], "asr-prepare --shar", {"digest": identity, "shard": SHARD}, []
    )


def remove_other(folder: str | os.PathLike, split: str, identities: Iterable[str]) -> bool:
    """Remove the manifest of a Shar that was made of other utterances; say whether there was one."""
    path, own = paths(folder, split)[0], [stamp_of(folder, split, one) for one in identities]
    other = path.exists() and not any(stamp.is_current() for stamp in own)
    if other:
        path.unlink()
    return other


def check_folders(folder: str | os.PathLike, splits: Iterable[str]) -> None:
    """See that what stands where the shards will is a Shar, finished or begun: it may be removed.

    raises   UserError if it is something else
    """
    for split in splits:
        path, shards = paths(folder, split)
        if os.path.lexists(shards) and not (begun(shards).exists() or is_stamped(path)):
            raise UserError(
                f"{shards}: is there already, and asr-prepare --shar did not make it; move it away"
            )


def check_names(ids: Iterable[str]) -> None:
    """See that ids can be the names of files in a tar: readers that unpack one must stay in their folder.

    raises   UserError that names those which can't
    """
    led_out = [name for name in ids if name.startswith("/") or ".." in name.split("/")]
    refuse(
        led_out,
        "ids that lead out of a folder as names in a tar",
        "give them others, or leave --shar away",
    )


def begun(shards: Path) -> Path:
    """What says that shards are being written."""
    return shards.with_name(f".{shards.name}.begun")


def write(
    utterances: Sequence[Utterance],
    folder: str | os.PathLike,
    split: str,
    identity: str,
    progress: bool = False,
    flac: bool = False,
) -> bool:
    """Write `folder/<split>.shar/` and its manifest `folder/<split>.shar.jsonl.gz`, unless they are there.

    utterances:  whole recordings
    identity:    of the utterances, the state of their sound files, and `flac`: shards that were
                 finished for the same ones are kept
    progress:    show a bar on stderr
    flac:        decode mp3, Opus and Vorbis, too, and write them as FLAC
    returns      whether anything was to be done
    raises       UserError if a recording has become unreadable or the disk is full; finished shards
                 stay
    """
    stamp, (path, shards) = stamp_of(folder, split, identity), paths(folder, split)
    if stamp.is_current():
        return False
    mark = begun(shards)
    path.unlink(missing_ok=True)
    if not mark.exists() or mark.read_text(encoding="utf-8") != identity:
        shutil.rmtree(shards, ignore_errors=True)
        write_text(mark, identity)
    found = write_shards(shards, list(enumerate(divided(utterances))), progress, flac)
    manifest.write(path, placed(utterances, found))
    stamp.write()
    mark.unlink()
    return True


def divided(utterances: Sequence[Utterance]) -> list[list[Utterance]]:
    """Divide utterances into shards, each of which is a random sample."""
    order = sorted(utterances, key=lambda u: hashlib.sha256(u.id.encode()).digest())
    return [order[n : n + SHARD] for n in range(0, len(order), SHARD)]


def placed(utterances: Iterable[Utterance], spans: Mapping[str, Span | str]) -> Iterator[Utterance]:
    """Yield utterances, each with the place of its recording in a shard."""
    return (replace(u, path=str(spans[u.id])) for u in utterances)


def write_shards(
    folder: Path, shards: Sequence[tuple[int, Sequence[Utterance]]], progress: bool, flac: bool
) -> dict[str, Span]:
    """Write shards, by number, unless they are there; return where each recording lies."""
    found: dict[str, Span] = {}
    count = sum(len(shard) for _, shard in shards)
    with workers(folder.name, count, progress) as (run, told):
        for spans in run(lambda one: write_shard(make_folder(folder), told, flac, *one), shards):
            found |= spans
    return found


# in parts, each by a process of its own on any machine, which know of each other by their files alone


def part_of(folder: str | os.PathLike, split: str, identity: str, part: Part) -> Stamp:
    """The stamp of a part: a file that says where the recordings of its shards lie."""
    output = part.path(os.fspath(paths(folder, split)[1]))
    return stamp_of(folder, split, identity).of(output, part=str(part))


def parts_folder(folder: str | os.PathLike, split: str, identity: str) -> Path:
    """Where parts write their shards: nobody has to remove what was begun from other recordings."""
    return Path(folder) / f".{split}.shar-{identity}" / f"{split}.shar"


def write_part(
    utterances: Sequence[Utterance],
    folder: str | os.PathLike,
    split: str,
    identity: str,
    part: Part,
    progress: bool = False,
    flac: bool = False,
) -> bool:
    """Write a part of the shards, unless they are there; for the arguments and errors see `write`."""
    own, stamp = (
        part.of(list(enumerate(divided(utterances)))),
        part_of(folder, split, identity, part),
    )
    whole, shards = stamp_of(folder, split, identity), parts_folder(folder, split, identity)
    if whole.is_current() or stamp.is_current() and are_there(shards, own):
        return False
    found = write_shards(shards, own, progress, flac)
    stamp.begin()
    write_text(stamp.output, json.dumps({id: str(span) for id, span in found.items()}) + "\n")
    stamp.write()
    return True


def are_there(folder: Path, shards: Iterable[tuple[int, list[Utterance]]]) -> bool:
    """Whether finished shards are there, as far as their names say."""
    return all(path.exists() for number, _ in shards for path in files_of(folder, number))


def join(
    utterances: Sequence[Utterance],
    folder: str | os.PathLike,
    split: str,
    identity: str,
    count: int,
) -> bool:
    """Make of `count` parts what `write` makes, to the byte, and remove what else they have left.

    returns   whether anything was to be done
    raises    UserError that names the parts that are missing
    """
    stamp, (path, shards) = stamp_of(folder, split, identity), paths(folder, split)
    if stamp.is_current():
        return False
    mark, made = begun(shards), parts_folder(folder, split, identity)
    moved = not made.exists() and mark.exists() and mark.read_text(encoding="utf-8") == identity
    stamps = {part: part_of(folder, split, identity, part) for part in Part.all(count)}
    numbered, there = list(enumerate(divided(utterances))), shards if moved else made
    check_complete(
        [
            part
            for part, own in stamps.items()
            if not (own.is_current() and are_there(there, part.of(numbered)))
        ],
        count,
    )
    found: dict[str, str] = {}
    for own in stamps.values():
        found |= json.loads(own.output.read_text(encoding="utf-8"))
    path.unlink(missing_ok=True)
    if not moved:
        write_text(mark, identity)  # from here on, what stands in the place of the shards is void
        shutil.rmtree(shards, ignore_errors=True)
        for torn in {*made.iterdir()} - {file for n, _ in numbered for file in files_of(made, n)}:
            torn.unlink()
        made.rename(shards)
    manifest.write(path, placed(utterances, found))
    stamp.write()
    mark.unlink()
    for own in stamps.values():
        own.output.unlink()
        own.path.unlink()
    for left in Path(folder).glob(f".{split}.shar-*"):
        shutil.rmtree(left, ignore_errors=True)
    return True


@contextmanager
def workers(name: str, count: int, progress: bool) -> Iterator[tuple]:
    """Threads that end soon when the work is stopped: `map` of a pool, and what a worker is to call for each item."""
    stopped, settings = Event(), {} if progress else {"disable": True}
    bar = progress_bar(total=count, desc=name, unit="", mininterval=0.5, **settings)
    pool = ThreadPoolExecutor(min(8, os.cpu_count() or 1))

    def tell(done: int) -> None:
        if stopped.is_set():
            raise InterruptedError
        bar.update(done)

    with bar:
        try:
            yield pool.map, tell
        finally:
            stopped.set()
            pool.shutdown(cancel_futures=True)


def write_shard(
    folder: Path, tell, flac: bool, number: int, utterances: Sequence[Utterance]
) -> dict[str, Span]:
    """Write a shard, its cuts last, unless it is there; say where each recording lies, relative to the manifest."""
    tar, cuts = files_of(folder, number)
    if cuts.exists() and (found := places(tar)).keys() == {u.id for u in utterances}:
        tell(len(utterances))
        return found
    with (
        replacing(tar) as temporary,
        tarfile.open(temporary, "w", format=tarfile.GNU_FORMAT) as file,
    ):
        for utterance in utterances:
            tell(1)
            suffix, sound = recording(utterance.path, flac)
            add(file, f"{utterance.id}{suffix}", sound)
            add(
                file,
                f"{utterance.id}.json",
                json.dumps(placeholder(utterance)["recording"]).encode() + b"\n",
            )
    manifest.write(cuts, (replace(u, path="") for u in utterances))
    return places(tar)


def files_of(folder: Path, number: int) -> tuple[Path, Path]:
    """The files of a shard; the second one is written last."""
    return folder / f"recording.{number:06d}.tar", folder / f"cuts.{number:06d}.jsonl.gz"


def placeholder(utterance: Utterance) -> dict:
    """A cut's line as Shar has it: its recording's source is to be filled in."""
    return replace(utterance, path="").line()


def add(file: tarfile.TarFile, name: str, content: bytes) -> None:
    """Append a file to a tar."""
    member = tarfile.TarInfo(name)
    member.size = len(content)
    file.addfile(member, BytesIO(content))


def places(tar: Path) -> dict[str, Span]:
    """Where the recordings of a shard lie, by id; nothing if the tar is absent or damaged."""
    within = f"{tar.parent.name}/{tar.name}"
    try:
        with tarfile.open(tar) as file:
            members = [member for member in file if not member.name.endswith(".json")]
    except (OSError, tarfile.TarError):
        return {}
    return {os.path.splitext(m.name)[0]: Span(within, m.offset_data, m.size) for m in members}


def recording(path: str, flac: bool = False) -> tuple[str, bytes]:
    """The suffix and content of a recording: FLAC of what is not compressed, any other file as it is.

    Joined files become one FLAC, because other readers would read the first of them.

    flac     write mp3, Opus and Vorbis as FLAC, too
    raises   UserError if it can't be read, or is of joined files that FLAC can't hold
    """
    with opened(path) as sound:
        if parts := sound.overlooked(lost=True):
            with opened(path, parts) as whole:
                return ".flac", joined(whole)
        is_plain = sound.format != "FLAC" and sound.subtype in EXACT
        wanted = is_plain or flac and sound.format in LOSSY
        if len(sound.files) > 1 or wanted and fits_flac(sound):
            return ".flac", joined(sound)
        with archive.open_binary(path) as content:
            return Path(path).suffix or f".{sound.format.lower()}", content.read()


def joined(sound: Sound) -> bytes:
    """Write a recording as FLAC, whose files may be joined.

    raises   UserError if a part of it can't be read, or FLAC can't hold it
    """
    if not fits_flac(sound):
        has = f"{sound.channels} channels at {sound.rate:,} Hz"
        what = f"holds several recordings of {has}, which FLAC can't hold as one"
        raise UserError(f"{sound.path}: {what}; split the file, or leave `shar` out")
    return as_flac(sound)
