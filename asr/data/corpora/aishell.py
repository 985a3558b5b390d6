"""AISHELL-1: data_aishell/{wav/{train,dev,test}/<speaker>/<id>.wav, transcript/aishell_transcript_v0.8.txt}.

The complete corpus has 141,925 sound files and 141,600 transcripts. The official numbers (COMPLETE)
leave out 320 files of train and 5 of dev that were never transcribed; a note counts and names them.
In the complete corpus, no transcript lacks its sound file. If one does, a speaker's archive wasn't
unpacked, which is an error.
"""

from pathlib import Path

from asr.data.corpora.corpus import Corpus, Item, read_lines, refuse, wrong_layout
from asr.errors import shorten
from asr.text.normalize import join_han

LAYOUT = (
    "AISHELL-1's layout: SOURCE or SOURCE/data_aishell with wav/{train,dev,test}/<speaker>/*.wav "
    "(unpack wav/*.tar.gz first) and transcript/aishell_transcript_v0.8.txt"
)
SPLITS = ("train", "dev", "test")
COMPLETE = {"train": 120_098, "dev": 14_326, "test": 7_176}  # utterances


def read(source: Path) -> Corpus:
    """Read the splits that have sound files.

    raises   UserError for another layout, or a transcript without a sound file
    """
    for folder in (source, source / "data_aishell"):
        transcripts = folder / "transcript" / "aishell_transcript_v0.8.txt"
        audio = {split: sorted(folder.glob(f"wav/{split}/*/*.wav")) for split in COMPLETE}
        if transcripts.is_file() and any(audio.values()):
            return match(audio, read_transcripts(transcripts))
    raise wrong_layout(source, LAYOUT)


def read_transcripts(path: Path) -> dict[str, tuple[str, str]]:
    """Read id → (text, file:line)."""
    texts, repeated = {}, []
    for where, line in read_lines(path):
        name, text = [*line.split(maxsplit=1), ""][:2]
        if name in texts:
            repeated.append(f"{name} ({where})")
        texts[name] = (join_han(text), where)
    refuse(repeated, "repeated ids in the transcripts", "write one line per utterance")
    return texts


def match(audio: dict[str, list[Path]], texts: dict[str, tuple[str, str]]) -> Corpus:
    """Match sound files and transcripts by their id."""
    heard = {path.stem for paths in audio.values() for path in paths}
    silent = [f"{name} ({where})" for name, (_, where) in texts.items() if name not in heard]
    refuse(
        silent, "transcripts without a sound file", "unpack every speaker's archive of wav/*.tar.gz"
    )
    splits = {split: transcribed(paths, texts) for split, paths in audio.items() if paths}
    return Corpus(
        splits,
        list(filter(None, (untranscribed(s, audio[s], texts) for s in splits))),
        complete=COMPLETE,
    )


def transcribed(paths: list[Path], texts: dict[str, tuple[str, str]]) -> list[Item]:
    """List the sound files that have a transcript."""
    return [
        Item(p.stem, p, texts[p.stem][0], p.parent.name, texts[p.stem][1])
        for p in paths
        if p.stem in texts
    ]


def untranscribed(split: str, paths: list[Path], texts: dict[str, tuple[str, str]]) -> str:
    """Note the sound files of a split that have no transcript; empty if there are none."""
    names = [path.stem for path in paths if path.stem not in texts]
    return (
        f"{split}: left out, because they have no transcript ({len(names)}): {shorten(names)}"
        if names
        else ""
    )
