"""LibriSpeech, and anything with its layout: <subset>/<speaker>/<chapter>/{<id>.flac, *.trans.txt}."""

from pathlib import Path

from asr.data.corpora.corpus import (
    Corpus,
    Item,
    read_lines,
    refuse_untranscribed,
    tidy,
    wrong_layout,
)

LAYOUT = (
    "LibriSpeech's layout: SOURCE or SOURCE/LibriSpeech with subsets such as train-clean-100/ and dev-clean/, "
    "each with <speaker>/<chapter>/<speaker>-<chapter>.trans.txt and .flac files"
)
SUFFIXES = (".flac", ".wav")
# utterances
COMPLETE = {
    **{"train-clean-100": 28_539, "train-clean-360": 104_014, "train-other-500": 148_688},
    **{"dev-clean": 2703, "dev-other": 2864, "test-clean": 2620, "test-other": 2939},
}


def read(source: Path) -> Corpus:
    """Find the subsets under `source` or `source/LibriSpeech` (or `source` itself); each becomes a split with its name.

    raises   UserError if there is none, or a sound file has no transcript
    """
    splits = {folder.name: read_subset(folder) for folder in subsets(source)}
    if not splits:
        raise wrong_layout(source, LAYOUT)
    return Corpus(splits, complete=COMPLETE)


def subsets(source: Path) -> list[Path]:
    """List the folders that hold */*/*.trans.txt."""
    places = [folder for folder in (source, source / "LibriSpeech") if folder.is_dir()]
    folders = [
        *places,
        *(child for place in places for child in sorted(place.iterdir()) if child.is_dir()),
    ]
    return [folder for folder in folders if next(folder.glob("*/*/*.trans.txt"), None)]


def read_subset(folder: Path) -> list[Item]:
    """Read one subset's transcripts and check that each of its sound files has one."""
    files = sorted(path for path in folder.glob("*/*/*") if not path.name.startswith("."))
    audio = {path for path in files if path.suffix in SUFFIXES}
    items = [
        item
        for path in files
        if path.name.endswith(".trans.txt")
        for item in read_chapter(path, audio)
    ]
    refuse_untranscribed(audio, items)
    return items


def read_chapter(transcripts: Path, audio: set[Path]) -> list[Item]:
    """Read one `.trans.txt`, lines of `id text`."""
    items = []
    for where, line in read_lines(transcripts):
        name, _, text = line.partition(" ")
        paths = [transcripts.with_name(name + suffix) for suffix in SUFFIXES]
        path = next((path for path in paths if path in audio), paths[0])
        items.append(Item(name, path, tidy(text), transcripts.parent.parent.name, where))
    return items
