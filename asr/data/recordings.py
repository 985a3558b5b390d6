"""The sound files of a corpus' items: opened, decoded, and made utterances, or left out."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from asr.audio import load as audio
from asr.audio.load import AudioInfo
from asr.data import decoded, manifest
from asr.data.corpora import Item
from asr.data.manifest import Utterance
from asr.errors import UserError, refuse, shorten
from asr.failures import Failure

HEARD = 5.0  # seconds that are checked in a recording with several channels


def look(
    splits: Mapping[str, Sequence[Item]], out: str | os.PathLike, progress: bool, whole: bool
) -> tuple[dict[str, list[Utterance]], list[Failure]]:
    """Open every sound file, and decode it if `whole`; return the utterances of each split, and those left out.

    out      where FLACs are written of what only ffmpeg reads
    raises   UserError if these are a whole split, or more than half of all
    """
    items = [item for items in splits.values() for item in items]
    paths, headers = headers_of(items, out, progress, whole)
    failures = [fault for pair in zip(items, headers, strict=True) if (fault := failure(*pair))]
    opened = zip(items, paths, headers, strict=True)
    found = {item.id: (path, one) for item, path, one in opened if isinstance(one, AudioInfo)}
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
        name: [utterance(item, *found[item.id]) for item in items] for name, items in kept.items()
    }, failures


def headers_of(
    items: Sequence[Item], out: str | os.PathLike, progress: bool, whole: bool
) -> tuple[list[Path], list[AudioInfo | UserError | None]]:
    """Read the headers of items, or of FLACs made of them; return the paths, and each one's header or fault."""
    from asr.audio.headers import read_headers

    made = decoded.decode([item.path for item in items], out, progress)
    faults = {path: one for path, one in made.items() if isinstance(one, UserError)}
    flacs = {path: one for path, one in made.items() if isinstance(one, Path)}
    paths = [flacs.get(item.path, item.path) for item in items]
    headers = iter(read_headers([path for path in paths if path not in faults], progress, whole))
    return paths, [faults[path] if path in faults else next(headers) for path in paths]


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


def utterance(item: Item, path: Path, header: AudioInfo) -> Utterance:
    """Make an utterance from an item, the path of its sound file, and its header."""
    return Utterance(
        id=item.id,
        path=str(path),
        rate=header.rate,
        samples=header.samples,
        channels=header.channels,
        start=0.0,
        duration=header.duration,
        text=item.text,
        speaker=item.speaker,
        channel=item.channel if header.channels > 1 else None,
    )


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


def about_decoded(splits: Mapping[str, Sequence[Utterance]], out: str | os.PathLike) -> list[str]:
    """Note how many recordings were decoded by ffmpeg."""
    folder = Path(os.path.abspath(out), decoded.FOLDER)
    count = sum(Path(u.path).parent == folder for split in splits.values() for u in split)
    what = f"{count} recordings were decoded by ffmpeg; training reads the FLAC files in {folder}"
    return [what] if count else []


def cancels(u: Utterance) -> bool:
    """Tell whether the mean of the channels is silent in the middle of the recording."""
    seconds = min(u.duration, HEARD)
    try:
        return audio.cancels(u.path, (u.duration - seconds) / 2, seconds)
    except UserError:  # training will report it
        return False
