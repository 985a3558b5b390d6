"""Corpora → manifests: read what the corpus says, look at every sound file, and write one CutSet a split.

Everything is checked before anything is written. What is checked first is cheap (texts, sizes and times of files);
a stamp of it tells whether the manifests are up to date without opening a sound file.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from asr.data import manifest
from asr.data import shar as shars
from asr.data.corpora import READERS, Corpus, Item
from asr.data.corpora.corpus import refuse
from asr.data.manifest import Utterance
from asr.data.split import CARVED, with_carved
from asr.data.statistics import Statistics
from asr.errors import UserError, did_you_mean
from asr.files import make_folder, write_text
from asr.stamp import Stamp
from asr.text.normalise import convention


@dataclass(frozen=True)
class Preparation:
    """What a preparation has made, or found made.

    manifests:   split → path, of Shar too, as `<split>.shar`
    statistics:  split → counts; empty when `current`
    notes:       what the person should know
    current:     True if the manifests were up to date and nothing was done
    """

    manifests: dict[str, Path]
    statistics: dict[str, Statistics]
    notes: list[str]
    current: bool


def prepare(
    corpus: str,
    source: str | os.PathLike,
    out: str | os.PathLike,
    dev: float | None = None,
    test: float | None = None,
    normalise: str | None = None,
    splits: Sequence[str] | None = None,
    shar: bool = False,
    progress: bool = False,
) -> Preparation:
    """Write `out/<split>.jsonl.gz` for each split of a corpus.

    corpus:    a name of `asr.data.corpora.READERS`
    source:    its folder, in the corpus' own layout; for `tsv` a file or folder
    out:       folder for the manifests, made if absent
    dev:       utterances (or a fraction below 1) to carve from train, where the corpus has no dev set; None = what
               the corpus' reader suggests. The speakers are then listed in `out/{train,dev}.speakers`
    test:      likewise, of a test set
    normalise: a convention of `asr.text.normalise` to rewrite the texts by; None = keep them as they are
    splits:    of the corpus' own, None = all; manifests of others that stand in `out` stay
    shar:      copy the recordings into shards, too: `out/<split>.shar/`, with a manifest `out/<split>.shar.jsonl.gz`
    progress:  show a bar on stderr
    raises     UserError if anything is wrong with the corpus; nothing is written then
    """
    if corpus not in READERS:
        raise UserError(f"{corpus}: no such corpus{did_you_mean(corpus, READERS)}; known are {', '.join(READERS)}")
    whole = READERS[corpus](Path(os.path.abspath(source)))
    found = select(whole, splits)
    found = rewritten(found, normalise) if normalise else found
    check_texts(found)
    facts = digest(item for items in found.splits.values() for item in items)
    splits, notes, carved = with_carved(found, dev, test)
    manifests = {name: Path(out) / f"{name}.jsonl.gz" for name in splits}
    arguments = {"corpus": corpus, "source": os.path.abspath(source), "dev": dev, "test": test, "digest": facts}
    stamp = Stamp(out, "asr-prepare", arguments | {"splits": sorted(splits)}, [])
    statistics = {}
    if not stamp.is_current() or not all(path.is_file() for path in manifests.values()):
        utterances = look(splits, progress)
        make_folder(out)
        kept = CARVED if "train" in whole.splits.keys() - splits.keys() else ()  # they are of a train that stays
        remove_others(stamp, {*splits, *whole.splits, *kept})
        stamp.remove()
        for name, path in manifests.items():
            if shars.remove_other(out, name, digest(splits[name])) and not shar:
                notes.append(f"{name}.shar: its manifest is removed, for its recordings are others; --shar copies anew")
            manifest.write(path, utterances[name])
        for name in ("train", *carved) if carved else ():
            write_speakers(Path(out) / f"{name}.speakers", splits[name])
        stamp.write()
        statistics = {name: Statistics.of(u) for name, u in utterances.items()}
    done = bool(statistics)
    for name in splits if shar else ():
        done |= shars.write(list(manifest.read(manifests[name])), out, name, digest(splits[name]), progress)
        manifests[f"{name}.shar"] = shars.paths(out, name)[0]
    return Preparation(manifests, statistics, notes, current=not done)


def select(corpus: Corpus, wanted: Sequence[str] | None) -> Corpus:
    """Keep some splits; of those that a complete corpus has otherwise, say so.

    raises   UserError that lists what is there, if one isn't
    """
    for name in wanted or ():
        if name not in corpus.splits:
            near, there = did_you_mean(name, corpus.splits), ", ".join(corpus.splits)
            raise UserError(f"--splits {name}: no such split of this corpus{near}; there are {there}")
    splits = {name: items for name, items in corpus.splits.items() if wanted is None or name in wanted}
    return replace(corpus, splits=splits, notes=[*corpus.notes, *incomplete(splits, corpus.complete)])


def incomplete(splits: Mapping[str, Sequence[Item]], complete: Mapping[str, int]) -> list[str]:
    """Say which splits have other numbers of utterances than those of the complete corpus."""
    pairs = [(name, len(splits[name]), count) for name, count in complete.items() if name in splits]
    return [f"{name}: {got:,} utterances, the complete corpus has {n:,}" for name, got, n in pairs if got != n]


def check_texts(corpus: Corpus) -> None:
    """Refuse what can be seen without opening a sound file: empty splits and texts, repeated ids."""
    items = [item for items in corpus.splits.values() for item in items]
    for name, members in corpus.splits.items():
        if not members:
            raise UserError(f"{name}: has no utterances; add some or take the split away")
    seen = Counter(item.id for item in items)
    repeated = [f"{item.id} ({item.where})" for item in items if seen[item.id] > 1]
    refuse(repeated, "utterances that share their id with another", "give each its own id, over all splits")
    if corpus.transcribed:
        refuse([f"{i.id} ({i.where})" for i in items if not i.text], "empty texts", "transcribe them or leave them out")


def digest(items: Iterable[Item]) -> str:
    """Fingerprint items and the size and time of their sound files.

    raises   UserError that names the sound files which don't exist
    """
    state, absent = hashlib.sha256(), []
    for item in items:
        try:
            file = os.stat(item.path)
            state.update(json.dumps([item.id, str(item.path), item.text, item.speaker]).encode())
            state.update(f"{file.st_size} {file.st_mtime_ns}\n".encode())
        except OSError:
            absent.append(f"{item.id} ({item.where}: {item.path})")
    refuse(absent, "transcripts without a sound file", "add the files or take the lines away")
    return state.hexdigest()[:32]


def rewritten(corpus: Corpus, name: str) -> Corpus:
    """Rewrite the texts by a convention, and note how many that changed, with one of them."""
    rewrite = convention(name)
    splits = {
        split: [replace(item, text=rewrite(item.text)) for item in items] for split, items in corpus.splits.items()
    }
    pairs = [
        (old.text, new.text) for split in splits for old, new in zip(corpus.splits[split], splits[split], strict=True)
    ]
    changed = [pair for pair in pairs if pair[0] != pair[1]]
    example = ", as {!r} → {!r}".format(*changed[0]) if changed else ""
    note = f"--normalise {name}: {len(changed)} of {len(pairs)} texts changed{example}"
    return replace(corpus, splits=splits, notes=[*corpus.notes, note])


def look(splits: Mapping[str, Sequence[Item]], progress: bool) -> dict[str, list[Utterance]]:
    """Open every sound file and take its rate and length.

    raises   UserError that counts the faulty ones and names the first
    """
    from asr.data.headers import read_headers

    items = [item for items in splits.values() for item in items]
    headers = read_headers([item.path for item in items], progress)
    pairs = list(zip(items, headers, strict=True))
    faults = [f"{item.id}: {header}" for item, header in pairs if isinstance(header, UserError)]
    refuse(faults, "faulty sound files", "repair them or leave them out")
    found = {item.id: utterance(item, header) for item, header in pairs}
    return {name: [found[item.id] for item in items] for name, items in splits.items()}


def utterance(item: Item, header) -> Utterance:
    """Make an utterance of an item and its sound file's AudioInfo."""
    whole = {"start": 0.0, "duration": header.duration}
    size = {"rate": header.rate, "samples": header.samples, "channels": header.channels}
    return Utterance(id=item.id, path=str(item.path), **size, **whole, text=item.text, speaker=item.speaker)


def remove_others(stamp: Stamp, splits: Iterable[str]) -> None:
    """Remove the splits other than these that the stamp's folder holds of the same corpus from an earlier run.

    A dev set that is no longer carved would else stay beside a train set that contains it.
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
    """List the speakers of a split, one a line."""
    speakers = sorted({item.speaker for item in items} - {None})
    write_text(path, "".join(f"{speaker}\n" for speaker in speakers))
