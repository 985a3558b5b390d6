"""Corpora → manifests: read the corpus' own files, check every sound file, and write one CutSet per split.

Everything is checked before manifests are written. Cheap checks come first (texts, sizes and times of
files); a stamp of them tells whether the manifests are up to date without opening a sound file.

A mistake in the corpus' own files (a line, an id, an empty text) stops the preparation. A sound
file that can't be used is left out and listed in OUT/failed.tsv. If too many can't, the folder is
probably wrong. A recording that only ffmpeg reads becomes a FLAC in OUT/decoded first.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from asr.data import decoded, manifest
from asr.data import shar as shars
from asr.data.corpora import CORPORA, Corpus, Item, reader
from asr.data.items import as_asked
from asr.data.manifest import Utterance
from asr.data.recordings import about_channels, about_decoded, failure, headers_of, look
from asr.data.split import CARVED, with_carved
from asr.data.statistics import Statistics
from asr.errors import UserError, did_you_mean
from asr.failures import Failure
from asr.failures import read as read_failures
from asr.failures import write as write_failures
from asr.files import make_folder, write_text
from asr.outputs import check_folder
from asr.parts import Part
from asr.stamp import Stamp
from asr.stamp import read as read_stamp

FAILED = "failed.tsv"  # in OUT


@dataclass(frozen=True)
class Preparation:
    """The result of a preparation, new or found up to date.

    manifests:   split → path; those of Shar as `<split>.shar`
    statistics:  split → counts; empty if `current`
    notes:       messages for the user
    current:     True if the manifests were up to date and nothing was done
    failed:      recordings that were left out because their sound file can't be used
    """

    manifests: dict[str, Path]
    statistics: dict[str, Statistics]
    notes: list[str]
    current: bool
    failed: list[Failure]


def prepare(
    corpus: str,
    source: str | os.PathLike,
    out: str | os.PathLike,
    dev: float | None = None,
    test: float | None = None,
    normalize: str | None = None,
    splits: Sequence[str] | None = None,
    shar: bool = False,
    channel: int | None = None,
    force: bool = False,
    headers_only: bool = False,
    progress: bool = False,
    part: Part | None = None,
    join: int | None = None,
    flac: bool = False,
) -> Preparation:
    """Write `out/<split>.jsonl.gz` for each split of a corpus.

    corpus:    a name of `asr.data.corpora.CORPORA`
    source:    its folder, in the corpus' own layout; for `tsv` a file or folder
    out:       folder for the manifests, made if missing
    dev:       utterances (or a fraction below 1) to split off train if the corpus has no dev set;
               None = the number that the corpus' reader suggests. The speakers are then listed in
               `out/{train,dev}.speakers`
    test:      the same for a test set
    normalize: a convention of `asr.text.normalize` to rewrite the texts by; None = keep them as
               they are
    splits:    names of the corpus' own splits, None = all; other manifests in `out` stay
    shar:      also copy the recordings into shards: `out/<split>.shar/`, with a manifest
               `out/<split>.shar.jsonl.gz`
    channel:   of the sound files, from 0, if the corpus doesn't say; None = the mean of all
    force:     replace files of these names in `out` that it didn't make
    headers_only:  check only the beginnings and ends of sound files, and don't decode them to find
               damage within
    progress:  show a progress bar on stderr
    part:      with shar, copy this share of the recordings only, after manifests were made without
    join:      with shar, make one Shar of that number of parts
    flac:      with shar, decode mp3, Opus and Vorbis, and copy them as FLAC of 16 bits
    raises     UserError for a mistake in the corpus' own files, or if the sound files of a whole
               split, or more than half of all, can't be used; then no manifest is written
    """
    check_request(corpus, shar, part, join, flac)
    whole = reader(corpus)(Path(os.path.abspath(source)))
    found = as_asked(whole, splits, normalize, channel)
    parts, notes, carved = with_carved(found, dev, test)
    if shar:
        shars.check_names(item.id for items in parts.values() for item in items)
        shars.check_folders(out, parts)
        own = {name: own_identity(out, name, items, flac) for name, items in parts.items()}
    arguments = {"corpus": corpus, "source": os.path.abspath(source), "dev": dev, "test": test}
    arguments |= {} if channel is None else {"channel": channel}
    stamp = stamp_of(out, arguments, found, parts)
    manifests = {name: Path(out) / f"{name}.jsonl.gz" for name in parts}
    statistics, failures = {}, listed(stamp)
    current = is_done(stamp, manifests.values(), failures, parts, whole=not headers_only)
    if (part or join) and not current:
        raise UserError(
            f"{out}: its manifests are absent, or made of other recordings or options; first run the same command "
            "once without `shar` and the options that belong to it"
        )
    if not current or failures is None:
        check_folder("OUT", out, made_files(parts, carved), "asr-prepare", [source], force)
        utterances, failures = look(parts, out, progress, whole=not headers_only)
        make_folder(out)
        remove_others(stamp, {*parts, *whole.splits, *kept(whole, parts)})
        notes += about_decoded(utterances, out) + about_channels(utterances)
        notes += write_all(stamp, parts, carved, utterances, failures, shar)
        statistics = {name: Statistics.of(u) for name, u in utterances.items()}
    done = bool(statistics)
    for name in parts if shar else ():
        what = list(manifest.read(manifests[name])), out, name, own[name]
        manifests[f"{name}.shar"], copied = copy(*what, part, join, progress, flac)
        done |= copied
    return Preparation(manifests, statistics, notes, not done, failures)


def check_request(corpus: str, shar: bool, part: Part | None, join: int | None, flac: bool) -> None:
    """Refuse an unknown corpus, and what is said about copies where none are made."""
    if corpus not in CORPORA:
        known = f"known are {', '.join(CORPORA)}"
        raise UserError(f"{corpus}: no such corpus{did_you_mean(corpus, CORPORA)}; {known}")
    if (part or join) and (not shar or part and join):
        raise UserError("give one of `part` and `join`, with `shar`")
    if flac and not shar:
        raise UserError("needs `shar`: give both, or neither", argument="flac")


def own_identity(out: str | os.PathLike, split: str, items: Iterable[Item], flac: bool) -> str:
    """The fingerprint of the Shar of a split's items.

    raises   UserError if one is there that was finished with the other choice of `flac`: copying
             takes long
    """
    as_is, decoded = identities(items)
    own, other = (decoded, as_is) if flac else (as_is, decoded)
    if (stamp := shars.stamp_of(out, split, other)).is_finished():
        how = "without `flac`" if flac else "with `flac`"
        raise UserError(
            f"{shars.paths(out, split)[1]}: is there already, made {how}; use it so, or remove {stamp.output} to "
            "have it made again"
        )
    return own


def stamp_of(
    out: str | os.PathLike, arguments: dict, corpus: Corpus, splits: Iterable[str]
) -> Stamp:
    """The stamp of a preparation: its arguments, and a digest of all that the corpus says."""
    facts = digest(item for items in corpus.splits.values() for item in items)
    return Stamp(out, "asr-prepare", {**arguments, "digest": facts, "splits": sorted(splits)}, [])


def kept(whole: Corpus, splits: Mapping[str, Sequence[Item]]) -> tuple[str, ...]:
    """The carved splits of a train set that stays as it is."""
    return CARVED if "train" in whole.splits.keys() - splits.keys() else ()


def write_all(
    stamp: Stamp,
    splits: Mapping[str, Sequence[Item]],
    carved: Iterable[str],
    utterances: Mapping[str, Sequence[Utterance]],
    failures: Sequence[Failure],
    shar: bool,
) -> list[str]:
    """Write manifests, lists of speakers, what was left out, and the stamp; return notes for the user."""
    out, notes = stamp.output, []
    stamp.begin()
    for name, items in splits.items():
        if shars.remove_other(out, name, identities(items)) and not shar:
            notes.append(
                f"{name}.shar: its manifest was removed, because the recordings changed; --shar copies them again"
            )
        manifest.write(out / f"{name}.jsonl.gz", utterances[name])
    for name in ("train", *carved) if carved else ():
        write_speakers(out / f"{name}.speakers", splits[name])
    write_failures(out / FAILED, failures)
    stamp.write(**({"failed": len(failures)} if failures else {}))
    return notes


def copy(
    utterances: Sequence[Utterance],
    out: str | os.PathLike,
    split: str,
    identity: str,
    part: Part | None,
    join: int | None,
    progress: bool,
    flac: bool,
) -> tuple[Path, bool]:
    """Copy a split's recordings into shards, or a part of them, or join parts.

    returns   the manifest of the shards, or the part; and whether anything was to be done
    """
    what = utterances, out, split, identity
    if part:
        done = shars.write_part(*what, part, progress, flac)
        return shars.part_of(*what[1:], part).output, done
    done = shars.join(*what, join) if join else shars.write(*what, progress, flac)
    return shars.paths(out, split)[0], done


def is_done(
    stamp: Stamp,
    manifests: Iterable[Path],
    failures: Sequence[Failure] | None,
    splits: Mapping[str, Sequence[Item]],
    whole: bool,
) -> bool:
    """Tell whether an earlier run did this, its FLACs are there, and what it left out is still unusable."""
    current = stamp.is_current()  # asked first, for a plan ends there
    if not current or failures is None or not all(map(Path.is_file, manifests)):
        return False
    lost = {failure.id for failure in failures}
    items = [item for items in splits.values() for item in items]
    used = decoded.places([item.path for item in items if item.id not in lost], stamp.output)
    if not all(map(Path.is_file, used.values())):
        return False
    left_out = [item for item in items if item.id in lost]
    _, headers = headers_of(left_out, stamp.output, progress=False, whole=whole)
    return all(failure(*pair) for pair in zip(left_out, headers, strict=True))


def made_files(splits: Iterable[str], carved: Iterable[str]) -> list[str]:
    """Name the files that a preparation writes."""
    manifests = [f"{name}{kind}" for name in splits for kind in (".jsonl.gz", ".shar.jsonl.gz")]
    return [*manifests, *(f"{name}.speakers" for name in ("train", *carved) if carved), FAILED]


def digest(items: Iterable[Item]) -> str:
    """Compute a fingerprint of items and of the sizes and times of their sound files, or of their absence."""
    state = hashlib.sha256()
    for item in items:
        facts: list[object] = [item.id, str(item.path), item.text, item.speaker]
        facts += [] if item.channel is None else [f"channel {item.channel}"]
        try:
            file = os.stat(item.path)
            facts += [file.st_size, file.st_mtime_ns]
        except (OSError, ValueError) as error:
            facts += [type(error).__name__]
        state.update(json.dumps(facts).encode() + b"\n")
    return state.hexdigest()[:32]


def identities(items: Iterable[Item]) -> tuple[str, str]:
    """Compute the fingerprints of the Shars of items: of one that copies mp3, Opus and Vorbis, and of one in FLAC."""
    copied = digest(items)
    return copied, f"{copied}-flac"


def listed(stamp: Stamp) -> list[Failure] | None:
    """Read what an earlier run left out; None if its list is missing or was changed."""
    try:
        count = int(read_stamp(stamp.output)["made"].get("failed", 0))
        failures = read_failures(stamp.output / FAILED) if count else []
    except (UserError, OSError, ValueError, TypeError):
        return None
    return failures if len(failures) == count else None


def remove_others(stamp: Stamp, splits: Iterable[str]) -> None:
    """Remove all other splits of the same corpus that an earlier run left in the stamp's folder.

    Otherwise a dev set that is no longer split off would stay beside a train set that contains it.
    """
    try:
        old = json.loads(stamp.path.read_text())["arguments"]
        same = all(old[name] == stamp.facts["arguments"][name] for name in ("corpus", "source"))
        names = set(old["splits"]) - set(splits) if same else set()
    except (OSError, ValueError, KeyError, TypeError):
        return
    for name in names:
        manifests = stamp.output / f"{name}.jsonl.gz", shars.paths(stamp.output, name)[0]
        for path in (*manifests, stamp.output / f"{name}.speakers"):
            path.unlink(missing_ok=True)
    if names and not {*CARVED} & set(splits):
        (stamp.output / "train.speakers").unlink(missing_ok=True)


def write_speakers(path: Path, items: Iterable[Item]) -> None:
    """List the speakers of a split, one per line."""
    speakers = sorted({item.speaker for item in items if item.speaker is not None})
    write_text(path, "".join(f"{speaker}\n" for speaker in speakers))
