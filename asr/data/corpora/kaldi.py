"""Kaldi's data folders: wav.scp, text and perhaps utt2spk, each with lines of an utterance id and a value."""

import os
from collections.abc import Iterator
from pathlib import Path

from asr.data.corpora.corpus import Corpus, Item, read_lines, refuse, tidy, wrong_layout
from asr.errors import UserError

LAYOUT = "a folder with wav.scp and text (and utt2spk, if speakers are known), or one with such a folder per split"


def read(source: Path) -> Corpus:
    """Read one data folder, or all those in a folder; a split gets the name of its folder.

    Relative paths are searched in the data folder, in the one above it, and in the current folder,
    as Kaldi does.
    raises   UserError for another layout, segments, commands instead of files, or ids that one of
             the files lacks
    """
    folders = (
        [source]
        if (source / "wav.scp").is_file()
        else sorted(path.parent for path in source.glob("*/wav.scp"))
    )
    if not folders:
        raise wrong_layout(source, LAYOUT)
    return Corpus({folder.name: read_split(folder) for folder in folders})


def read_split(folder: Path) -> list[Item]:
    """Read one data folder."""
    if (folder / "segments").exists():
        raise UserError(
            f"{folder}/segments: got parts of recordings, expected complete ones; cut them into files first"
        )
    sounds, texts = values(folder / "wav.scp"), values(folder / "text")
    placeless = [f"{name} ({where})" for name, (where, sound) in sounds.items() if not sound]
    refuse(placeless, f"{folder}/wav.scp: ids without a sound file", "name the file after the id")
    commands = [name for name, (_, sound) in sounds.items() if sound.endswith("|")]
    refuse(
        commands,
        f"{folder}/wav.scp: commands instead of sound files",
        "run them and name the files that they make",
    )
    untold = [name for name in sounds if name not in texts]
    refuse(
        untold,
        f"{folder}/text: lacks utterances of wav.scp",
        "add their transcripts or remove them from wav.scp",
    )
    silent = [f"{name} ({texts[name][0]})" for name in texts if name not in sounds]
    refuse(
        silent,
        f"{folder}/wav.scp: lacks utterances of text",
        "add their sound files or remove the lines",
    )
    speakers = speakers_of(folder / "utt2spk")
    return [
        Item(
            name,
            located(folder, Path(sounds[name][1])),
            tidy(text),
            speakers.get(name) or None,
            where,
        )
        for name, (where, text) in texts.items()
    ]


def values(path: Path) -> dict[str, tuple[str, str]]:
    """Read id → (file:line, value); the value of a text can be empty.

    raises   UserError if the file is missing, or an id occurs twice
    """
    found: dict[str, tuple[str, str]] = {}
    for name, where, value in split(path):
        if name in found:
            raise UserError(
                f"{where}: {name} occurs a second time, first in {found[name][0]}; give each its own id"
            )
        found[name] = where, value
    return found


def split(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield id, file:line and value of each line."""
    for where, line in read_lines(path):
        name, *value = line.split(maxsplit=1)
        yield name, where, value[0].strip() if value else ""


def speakers_of(path: Path) -> dict[str, str]:
    """Read id → speaker; empty if the file is missing, or maps each utterance to itself, as Kaldi allows."""
    found = values(path) if path.exists() else {}
    several = [
        f"{name} ({where})" for name, (where, speaker) in found.items() if len(speaker.split()) != 1
    ]
    refuse(
        several, f"{path}: expected an id and one speaker per line", "write speakers without spaces"
    )
    speakers = {name: speaker for name, (_, speaker) in found.items()}
    return {} if all(name == speaker for name, speaker in speakers.items()) else speakers


def located(folder: Path, path: Path) -> Path:
    """Find a sound file; a missing one is assumed to belong into the data folder."""
    places = (folder, folder.parent, Path.cwd())
    return next((place / path for place in places if os.path.exists(place / path)), folder / path)
