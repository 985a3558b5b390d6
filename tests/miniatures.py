"""Corpora of a minute in the layouts of the real ones: true words, whose sound is noise as long as they would last.

They need no other library and no network, and are written within seconds. Nothing can be heard in them.
"""

import importlib
import random
import sys
from functools import partial
from pathlib import Path

import numpy as np
import soundfile

RECIPES = Path(__file__).parents[1] / "recipes"
RATE = 16000
ALPHABET = "THE QUICK BROWN FOX JUMPS OVER A LAZY DOG"
KINDS = [("wav", 8000), ("flac", 16000), ("ogg", 22050), ("wav", 44100)]


def texts(recipe, name, count, seed=1):
    """Draw the texts of a number of utterances from the grammar of a recipe."""
    added = [str(RECIPES / recipe), str(RECIPES)]
    sys.path[:0] = added
    grammar = importlib.import_module(name)
    del sys.path[: len(added)]
    return [grammar.transcript(one) for one in grammar.sentences(random.Random(seed), count, set())]


english = partial(texts, "mini", "grammar")  # upper case, as those of recipes/mini
chinese = partial(texts, "aishell", "mandarin")  # as those of recipes/aishell/mini.sh


def write(path, lines):
    """Write a file of lines, and its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def speak(path, text, rate=RATE, **options):
    """Write noise of the length of a text: 70 ms a letter, 200 ms any other character."""
    seconds = 0.3 + sum(0.07 if character.isascii() else 0.2 for character in text)
    noise = np.random.default_rng(sum(map(ord, text))).standard_normal(round(seconds * rate))
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, 0.1 * noise.clip(-4, 4), rate, **options)


def table(path, texts, speakers=6):
    """Write a table of `id path text speaker` and its sound files, of several kinds and rates."""
    lines = ["id\tpath\ttext\tspeaker"]
    for n, text in enumerate(texts):
        ending, rate = KINDS[n % len(KINDS)]
        name = f"{path.stem}{n:03d}"
        speak(path.parent / f"clips/{name}.{ending}", text, rate)
        lines.append(f"{name}\tclips/{name}.{ending}\t{text}\t{path.stem}-{n % speakers}")
    return write(path, lines)


def common_voice(folder, sizes, texts=english):
    """Write a release's folder of a language: clips/ and a table a split, with more columns than are read."""
    for seed, (split, count) in enumerate(sizes.items(), 10):
        lines = ["client_id\tpath\tsentence_id\tsentence\tage"]
        for n, text in enumerate(texts(count, seed)):
            clip = f"common_{split}{n}.{'mp3' if n < 8 else 'wav'}"  # of which a release has none, but they are quick
            speak(folder / "clips" / clip, text)
            lines.append(f"{split}-{n % 40}\t{clip}\t{n}\t{text.capitalize()}.\ttwenties")
        write(folder / f"{split}.tsv", lines)


def kaldi(folder, count, seed=3):
    """Write wav.scp, text and utt2spk."""
    spoken = {f"{folder.name}{n:03d}": text for n, text in enumerate(english(count, seed))}
    for name, text in spoken.items():
        speak(folder / f"{name}.wav", text)
    write(folder / "wav.scp", [f"{name} {folder.resolve()}/{name}.wav" for name in spoken])
    write(folder / "text", [f"{name} {text}" for name, text in spoken.items()])
    write(folder / "utt2spk", [f"{name} speaker{n % 4}" for n, name in enumerate(spoken)])


def an4(folder, sizes):
    """Write etc/ and wav/, of 12 speakers a split, each with all letters."""
    for split, count in sizes.items():
        ids, lines = [], []
        for n, text in enumerate(english(count, len(split))):
            words = ALPHABET if n < 12 else " ".join(text.split()[:3])
            speaker = f"{split}{n % 12:02d}"
            name = f"an{n}-{speaker}-b"
            speak(folder / f"wav/{split}/{speaker}/{name}.sph", words, format="NIST")
            ids.append(f"{split}/{speaker}/{name}")
            lines.append(f"<s> {words} </s> ({name})")
        write(folder / f"etc/an4_{split}.fileids", ids)
        write(folder / f"etc/an4_{split}.transcription", lines)


def yesno(folder):
    """Write sixty recordings of eight words, whose names are these words."""
    for number in range(60):
        name = "_".join(f"{(37 * number) % 256:08b}")
        words = name.replace("_", " ").replace("0", "NO").replace("1", "YES")
        speak(folder / f"{name}.wav", words, rate=8000)


def librispeech(folder, sizes):
    """Write <subset>/<speaker>/<chapter>/, two chapters a subset."""
    for first, (subset, count) in enumerate(sizes.items(), 1):
        for speaker in (10 * first, 10 * first + 1):
            chapter, lines = folder / subset / str(speaker) / "7", []
            for n, text in enumerate(english((count + 1) // 2, speaker)):
                speak(chapter / f"{speaker}-7-{n:04d}.flac", text)
                lines.append(f"{speaker}-7-{n:04d} {text}")
            write(chapter / f"{speaker}-7.trans.txt", lines)


def aishell(folder, sizes):
    """Write wav/<split>/<speaker>/ and the one transcript."""
    lines = []
    for speaker, (split, count) in enumerate(sizes.items(), 2):
        for n, text in enumerate(chinese(count, speaker), 1):
            name = f"BAC009S{speaker:04d}W{n:04d}"
            speak(folder / f"wav/{split}/S{speaker:04d}/{name}.wav", text)
            lines.append(f"{name} {text}")
    write(folder / "transcript/aishell_transcript_v0.8.txt", lines)


def finished(folder, version, **facts):
    """Mark a synthesized corpus as complete, so that its recipe takes what is there."""
    write(folder / "VERSION", [version, *(f"{name} {value}" for name, value in facts.items())])
