"""CMU AN4: etc/an4_{train,test}.{fileids,transcription} and wav/<fileid>.sph. It has no dev set; one is split off."""

import re
from pathlib import Path

from asr.data.corpora.corpus import (
    Corpus,
    Item,
    read_lines,
    refuse,
    refuse_untranscribed,
    tidy,
    wrong_layout,
)
from asr.errors import UserError

LAYOUT = "AN4's layout: SOURCE or SOURCE/an4 with etc/an4_{train,test}.{fileids,transcription} and wav/**/*.sph"
SUFFIXES = (".sph", ".flac", ".wav")
LINE = re.compile(r"(?:<s>)?(?P<text>.*?)(?:</s>)?\s*\((?P<id>[^()\s]+)\)\s*$")
DEV = 100  # utterances of the 948 for training


def read(source: Path) -> Corpus:
    """Read the official train and test sets.

    raises   UserError for another layout, or if lists, transcripts and sound files don't match
    """
    for folder in (source, source / "an4"):
        if all((folder / "etc" / f"an4_{split}.fileids").is_file() for split in ("train", "test")):
            audio = {path for path in folder.glob("wav/**/*") if path.suffix in SUFFIXES}
            splits = {split: read_split(folder, split, audio) for split in ("train", "test")}
            refuse_untranscribed(audio, [item for items in splits.values() for item in items])
            return Corpus(splits, dev=DEV)
    raise wrong_layout(source, LAYOUT)


def read_split(folder: Path, split: str, audio: set[Path]) -> list[Item]:
    """Match the lines of a split's .transcription and .fileids by their id."""
    files = {
        line.strip().split("/")[-1]: line.strip()
        for _, line in read_lines(folder / f"etc/an4_{split}.fileids")
    }
    items = []
    for where, line in read_lines(folder / f"etc/an4_{split}.transcription"):
        match = LINE.match(line)
        if not match or match["id"] not in files:
            raise UserError(
                f"{where}: expected `text (id)` with an id of an4_{split}.fileids, got {line!r}"
            )
        paths = [folder / "wav" / (files[match["id"]] + suffix) for suffix in SUFFIXES]
        path = next((path for path in paths if path in audio), paths[0])
        items.append(Item(match["id"], path, tidy(match["text"]), path.parent.name, where))
    transcribed = {item.id for item in items}
    refuse(
        [name for name in files if name not in transcribed],
        f"ids of an4_{split}.fileids without a transcript",
        "add them",
    )
    return items
