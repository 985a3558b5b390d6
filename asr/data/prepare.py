"""Corpora → manifests: read the corpus' own files, check every sound file, and write one CutSet per split.

Everything is checked before anything is written. Cheap checks come first (texts, sizes and times of
files); a stamp of them tells whether the manifests are up to date without opening a sound file.

A mistake in the corpus' own files (a line, an id, an empty text) stops the preparation. A sound
file that can't be used is left out and listed in OUT/failed.tsv. If too many can't, the folder
is probably wrong.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from asr.audio import load as audio
from asr.audio.load import AudioInfo
from asr.data import manifest
from asr.data import shar as shars
from asr.data.corpora import CORPORA, Corpus, Item, reader
from asr.data.manifest import Utterance
from asr.data.split import CARVED, with_carved
from asr.data.statistics import Statistics
from asr.errors import UserError, did_you_mean, refuse, shorten
from asr.failures import Failure
from asr.failures import read as read_failures
from asr.failures import write as write_failures
from asr.files import make_folder, write_text
from asr.outputs import check_folder
from asr.parts import Part
from asr.stamp import Stamp
from asr.stamp import read as read_stamp
from asr.text.normalize import convention

FAILED = "failed.tsv"  # in OUT
HEARD = 5.0  # seconds that are checked in a recording with several channels


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
               split, or more than half of all, can't be used; then nothing is written
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
        utterances, failures = look(parts, progress, whole=not headers_only)
        make_folder(out)
        remove_others(stamp, {*parts, *whole.splits, *kept(whole, parts)})
        notes += about_channels(utterances)
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


def as_asked(
    corpus: Corpus, splits: Sequence[str] | None, normalize: str | None, channel: int | None
) -> Corpus:
    """Select splits of a corpus, rewrite its texts, check them, and choose the channel."""
    found = select(corpus, splits)
    found = rewritten(found, normalize) if normalize else found
    check_texts(found)
    chosen = {name: on_channel(items, channel) for name, items in found.splits.items()}
    return replace(found, splits=chosen)


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
    """Tell whether an earlier run did this, and what it left out is still unusable."""
    from asr.audio.headers import read_headers

    current = stamp.is_current()  # asked first, for a plan ends there
    if not current or failures is None or not all(map(Path.is_file, manifests)):
        return False
    lost = {failure.id for failure in failures}
    items = [item for items in splits.values() for item in items if item.id in lost]
    headers = read_headers([item.path for item in items], whole=whole)
    return all(failure(*pair) for pair in zip(items, headers, strict=True))


def made_files(splits: Iterable[str], carved: Iterable[str]) -> list[str]:
    """Name the files that a preparation writes."""
    manifests = [f"{name}{kind}" for name in splits for kind in (".jsonl.gz", ".shar.jsonl.gz")]
    return [*manifests, *(f"{name}.speakers" for name in ("train", *carved) if carved), FAILED]


def select(corpus: Corpus, wanted: Sequence[str] | None) -> Corpus:
    """Select splits, and note those that differ from the complete corpus.

    raises   UserError for a missing split, with a list of the existing ones
    """
    for name in wanted or ():
        if name not in corpus.splits:
            near, there = did_you_mean(name, corpus.splits), ", ".join(corpus.splits)
            what = f"got {name!r}, no such split of this corpus{near}; it has {there}"
            raise UserError(what, argument="splits")
    splits = {
        name: items for name, items in corpus.splits.items() if wanted is None or name in wanted
    }
    return replace(
        corpus, splits=splits, notes=[*corpus.notes, *incomplete(splits, corpus.complete)]
    )


def incomplete(splits: Mapping[str, Sequence[Item]], complete: Mapping[str, int]) -> list[str]:
    """Note the splits whose number of utterances differs from the complete corpus."""
    pairs = [(name, len(splits[name]), count) for name, count in complete.items() if name in splits]
    return [
        f"{name}: {got:,} utterances, the complete corpus has {n:,}"
        for name, got, n in pairs
        if got != n
    ]


def check_texts(corpus: Corpus) -> None:
    """Refuse mistakes that show without opening a sound file: empty splits and texts, repeated ids."""
    items = [item for items in corpus.splits.values() for item in items]
    for name, members in corpus.splits.items():
        if not members:
            raise UserError(f"{name}: has no utterances; add some or remove the split")
    seen = Counter(item.id for item in items)
    repeated = [f"{item.id} ({item.where})" for item in items if seen[item.id] > 1]
    refuse(
        repeated,
        "utterances that share an id with another",
        "give each its own id across all splits",
    )
    if corpus.transcribed:  # else ids are file names, and a bad one is left out with its file
        refuse(
            [f"{i.id} ({i.where})" for i in items if not i.text],
            "empty texts",
            "transcribe or remove them",
        )
        refuse(
            amiss(items, lambda i: i.id, manifest.fault),
            "ids that a line of text can't hold",
            "rename them",
        )
    refuse(
        amiss(items, lambda i: i.speaker or "", manifest.hidden),
        "speakers that no line can hold",
        "rename them",
    )
    refuse(
        amiss(items, lambda i: i.text, manifest.fault_of_text),
        "texts with characters that aren't text",
        "remove those",
    )


def amiss(
    items: Iterable[Item], value: Callable[[Item], str], fault: Callable[[str], str | None]
) -> Iterator[str]:
    """Describe the items with a bad value, and the fault."""
    for item in items:
        if found := fault(value(item)):
            yield f"{manifest.shown(value(item))!r} ({manifest.shown(item.where)}) {found}"


def on_channel(items: Iterable[Item], channel: int | None) -> list[Item]:
    """Set the channel of items that have none of their own."""
    return [
        item if channel is None or item.channel is not None else replace(item, channel=channel)
        for item in items
    ]


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


def rewritten(corpus: Corpus, name: str) -> Corpus:
    """Rewrite the texts by a convention, and note how many changed, with an example."""
    rewrite = convention(name)
    splits = {
        split: [replace(item, text=rewrite(item.text)) for item in items]
        for split, items in corpus.splits.items()
    }
    pairs = [
        (old.text, new.text)
        for split in splits
        for old, new in zip(corpus.splits[split], splits[split], strict=True)
    ]
    changed = [pair for pair in pairs if pair[0] != pair[1]]
    example = ", such as {!r} → {!r}".format(*changed[0]) if changed else ""
    note = f"normalized ({name}): {len(changed)} of {len(pairs)} texts changed{example}"
    return replace(corpus, splits=splits, notes=[*corpus.notes, note])


def look(
    splits: Mapping[str, Sequence[Item]], progress: bool, whole: bool
) -> tuple[dict[str, list[Utterance]], list[Failure]]:
    """Open every sound file, and decode it if `whole`; return the utterances of each split, and those left out.

    raises   UserError if these are a whole split, or more than half of all
    """
    from asr.audio.headers import read_headers

    items = [item for items in splits.values() for item in items]
    headers = read_headers([item.path for item in items], progress, whole)
    failures = [fault for pair in zip(items, headers, strict=True) if (fault := failure(*pair))]
    pairs = zip(items, headers, strict=True)
    found = {item.id: header for item, header in pairs if isinstance(header, AudioInfo)}
    lost = {failure.id for failure in failures}
    kept = {name: [item for item in items if item.id not in lost] for name, items in splits.items()}
    if 2 * len(failures) > len(items) or not all(kept.values()):
        where = {item.id: item.where for item in items}
        listed = [
            f"{manifest.shown(f.id)} ({where[f.id]}): {manifest.shown(f.path, 400)}: {f.reason}"
            for f in failures
        ]
        which = f"of {len(items)}, too many to continue without them"
        fix = (
            "check that SOURCE is complete and its paths are right; repair the files or remove them"
        )
        refuse(listed, f"faulty sound files {which}", fix)
    return {
        name: [utterance(item, found[item.id]) for item in items] for name, items in kept.items()
    }, failures


def failure(item: Item, header: AudioInfo | UserError | None) -> Failure | None:
    """Describe what is wrong with an item's sound file; None if it can be used."""
    if fault := manifest.fault(item.id):
        reason = f"its name {fault}; rename the file"
    elif isinstance(header, UserError):
        reason = str(header).removeprefix(f"{item.path}: ")
    elif header is None:
        reason = "is within an archive; expected a file of its own"
    elif item.channel is not None and item.channel >= header.channels:
        has = "1 channel" if header.channels == 1 else f"{header.channels} channels"
        reason = f"has {has}, counted from 0; channel {item.channel} was requested"
    else:
        return None
    return Failure(item.id, str(item.path), reason)


def listed(stamp: Stamp) -> list[Failure] | None:
    """Read what an earlier run left out; None if its list is missing or was changed."""
    try:
        count = int(read_stamp(stamp.output)["made"].get("failed", 0))
        failures = read_failures(stamp.output / FAILED) if count else []
    except (UserError, OSError, ValueError, TypeError):
        return None
    return failures if len(failures) == count else None


def about_channels(splits: Mapping[str, Sequence[Utterance]]) -> list[str]:
    """Note the recordings whose channels are averaged, and those where that gives silence."""
    mixed = [
        u
        for utterances in splits.values()
        for u in utterances
        if u.channels > 1 and u.channel is None
    ]
    if not mixed:
        return []
    silent = [u.path for u in mixed if cancels(u)]
    notes = [
        f"{len(mixed)} recordings have several channels, and their mean is used; --channel 0 takes only the first"
    ]
    if silent:
        notes.append(
            f"{len(silent)} of them have channels that cancel each other out ({shorten(silent)}): use --channel 0 or 1"
        )
    return notes


def cancels(u: Utterance) -> bool:
    """Tell whether the mean of the channels is silent in the middle of the recording."""
    seconds = min(u.duration, HEARD)
    try:
        return audio.cancels(u.path, (u.duration - seconds) / 2, seconds)
    except UserError:  # training will report it
        return False


def utterance(item: Item, header: AudioInfo) -> Utterance:
    """Make an utterance from an item and its sound file's header."""
    return Utterance(
        id=item.id,
        path=str(item.path),
        rate=header.rate,
        samples=header.samples,
        channels=header.channels,
        start=0.0,
        duration=header.duration,
        text=item.text,
        speaker=item.speaker,
        channel=item.channel if header.channels > 1 else None,
    )


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
