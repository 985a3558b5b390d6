"""Kaldi's data folders: wav.scp, text and perhaps utt2spk, each with lines of an utterance's id and a value."""

import os
from collections.abc import Iterator
from pathlib import Path

from asr.data.corpora.corpus import Corpus, Item, read_lines, refuse, tidy, wrong_layout
from asr.errors import UserError

LAYOUT = "a folder with wav.scp and text (and utt2spk, where speakers are known), or one with such folders, one a split"


def read(source: Path) -> Corpus:
    """Read one data folder, or each that a folder holds; a split has its folder's name.

    Relative paths are looked for in the data folder, in the one above it, and where the command runs, as Kaldi has it.
    raises   UserError for another layout, segments, commands in place of files, or ids that one of the files lacks
    """
    folders = [source] if (source / "wav.scp").is_file() else sorted(path.parent for path in source.glob("*/wav.scp"))
    if not folders:
        raise wrong_layout(source, LAYOUT)
    return Corpus({folder.name: read_split(folder) for folder in folders})


def read_split(folder: Path) -> list[Item]:
    """Read one data folder."""
    if (folder / "segments").exists():
        raise UserError(f"{folder}/segments: got parts of recordings, expected whole ones; cut them into files first")
    sounds, texts = values(folder / "wav.scp"), values(folder / "text")
    commands = [name for name, (_, sound) in sounds.items() if sound.endswith("|")]
    refuse(commands, f"{folder}/wav.scp: commands in place of sound files", "run them and name the files they make")
    untold = [name for name in sounds if name not in texts]
    refuse(untold, f"{folder}/text: lacks utterances of wav.scp", "add their transcripts or take them away there")
    silent = [f"{name} ({texts[name][0]})" for name in texts if name not in sounds]
    refuse(silent, f"{folder}/wav.scp: lacks utterances of text", "add their sound files or take the lines away")
    speakers = speakers_of(folder / "utt2spk")
    return [
        Item(name, located(folder, Path(sounds[name][1])), tidy(text), speakers.get(name) or None, where)
        for name, (where, text) in texts.items()
    ]


def values(path: Path) -> dict[str, tuple[str, str]]:
    """Read id → (file:line, value), of which a text may have none.

    raises   UserError if there is no such file, or an id comes twice
    """
    found: dict[str, tuple[str, str]] = {}
    for name, where, value in split(path):
        if name in found:
            raise UserError(f"{where}: {name} comes a second time, first in {found[name][0]}; give each its own id")
        found[name] = where, value
    return found


def split(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield id, file:line and value of each line."""
    for where, line in read_lines(path):
        name, *value = line.split(maxsplit=1)
        yield name, where, value[0].strip() if value else ""


def speakers_of(path: Path) -> dict[str, str]:
    """Read id → speaker; none where the file is absent, or names each utterance after itself, as Kaldi does."""
    speakers = {name: speaker for name, (_, speaker) in values(path).items()} if path.exists() else {}
    return {} if all(name == speaker for name, speaker in speakers.items()) else speakers


def located(folder: Path, path: Path) -> Path:
    """Find a sound file; one that is nowhere is left to be missed in the data folder."""
    places = (folder, folder.parent, Path.cwd())
    return next((place / path for place in places if os.path.exists(place / path)), folder / path)
