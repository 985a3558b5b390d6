"""Corpora of a minute in the layouts of the real ones: true words, whose sound is noise as long as they would last.

They need no other library and no network, and are written within seconds. Nothing can be heard in them.
"""

import importlib
import random
import sys
from pathlib import Path

import numpy as np
import soundfile

ROOT = Path(__file__).parents[1]
RATE = 16000
ALPHABET = "THE QUICK BROWN FOX JUMPS OVER A LAZY DOG"


def _recipe(folder, name):
    """Import a module of a recipe, whose folder isn't a package."""
    added = [str(ROOT / "recipes" / folder), str(ROOT / "recipes")]
    sys.path[:0] = added
    try:
        return importlib.import_module(name)
    finally:
        del sys.path[: len(added)]


def english(count, seed=1):
    """Draw the texts of a number of utterances, upper case, as those of recipes/mini."""
    grammar = _recipe("mini", "grammar")
    return [grammar.transcript(one) for one in grammar.sentences(random.Random(seed), count, set())]


def chinese(count, seed=1):
    """Draw the texts of a number of utterances, as those of recipes/aishell/mini.sh."""
    grammar = _recipe("aishell", "mandarin")
    return [grammar.transcript(one) for one in grammar.sentences(random.Random(seed), count, set())]


def speak(path, text, rate=RATE, **options):
    """Write noise of the length of a text: 70 ms a letter, 200 ms any other character."""
    seconds = 0.3 + sum(0.07 if character.isascii() else 0.2 for character in text)
    noise = np.random.default_rng(sum(map(ord, text))).standard_normal(round(seconds * rate))
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, 0.1 * noise.clip(-4, 4), rate, **options)
    return path


def table(path, texts, speakers=6):
    """Write a table of `id path text speaker` and its sound files, of several kinds and rates."""
    lines, kinds = (
        ["id\tpath\ttext\tspeaker"],
        [("wav", 8000), ("flac", 16000), ("ogg", 22050), ("wav", 44100)],
    )
    for n, text in enumerate(texts):
        (ending, rate), name = kinds[n % len(kinds)], f"{path.stem}{n:03d}"
        speak(path.parent / "clips" / f"{name}.{ending}", text, rate)
        lines.append(f"{name}\tclips/{name}.{ending}\t{text}\t{path.stem}-{n % speakers}")
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def common_voice(folder, sizes, texts=english):
    """Write a release's folder of a language: clips/ and a table a split, with more columns than are read."""
    for seed, (split, count) in enumerate(sizes.items(), 10):
        lines = ["client_id\tpath\tsentence_id\tsentence\tage"]
        for n, text in enumerate(texts(count, seed)):
            clip = f"common_{split}{n}.{'mp3' if n < 8 else 'wav'}"  # of which a release has none, but they are quick
            speak(folder / "clips" / clip, text)
            lines.append(f"{split}-{n % 40}\t{clip}\t{n}\t{text.capitalize()}.\ttwenties")
        (folder / f"{split}.tsv").write_text(
            "".join(f"{line}\n" for line in lines), encoding="utf-8"
        )


def kaldi(folder, count, seed=3):
    """Write wav.scp, text and utt2spk."""
    files = {"wav.scp": [], "text": [], "utt2spk": []}
    for n, text in enumerate(english(count, seed)):
        sound = speak(folder / f"{n}.wav", text)
        for name, said in (
            ("wav.scp", sound.resolve()),
            ("text", text),
            ("utt2spk", f"speaker{n % 4}"),
        ):
            files[name].append(f"{folder.name}{n:03d} {said}\n")
    for name, lines in files.items():
        (folder / name).write_text("".join(lines), encoding="utf-8")


def an4(folder, sizes):
    """Write etc/ and wav/, of 12 speakers a split."""
    (folder / "etc").mkdir(parents=True)
    for split, count in sizes.items():
        ids, lines = [], []
        for n, text in enumerate(english(count, len(split))):
            speaker = f"{split}{n % 12:02d}"  # each with all letters
            name, words = f"an{n}-{speaker}-b", ALPHABET if n < 12 else " ".join(text.split()[:3])
            speak(folder / f"wav/{split}/{speaker}/{name}.sph", words, format="NIST")
            ids.append(f"{split}/{speaker}/{name}\n")
            lines.append(f"<s> {words} </s> ({name})\n")
        (folder / f"etc/an4_{split}.fileids").write_text("".join(ids))
        (folder / f"etc/an4_{split}.transcription").write_text("".join(lines))


def yesno(folder):
    """Write sixty recordings of eight words, whose names are these words."""
    for number in range(60):
        digits = f"{(37 * number) % 256:08b}"
        speak(
            folder / f"{'_'.join(digits)}.wav",
            " ".join("NO" if digit == "0" else "YES" for digit in digits),
            rate=8000,
        )


def librispeech(folder, sizes):
    """Write <subset>/<speaker>/<chapter>/, two chapters a subset."""
    for first, (subset, count) in enumerate(sizes.items(), 1):
        for speaker in (10 * first, 10 * first + 1):
            chapter, lines = folder / subset / str(speaker) / "7", []
            for n, text in enumerate(english((count + 1) // 2, speaker)):
                speak(chapter / f"{speaker}-7-{n:04d}.flac", text)
                lines.append(f"{speaker}-7-{n:04d} {text}\n")
            (chapter / f"{speaker}-7.trans.txt").write_text("".join(lines))


def aishell(folder, sizes):
    """Write wav/<split>/<speaker>/ and the one transcript."""
    lines = []
    for speaker, (split, count) in enumerate(sizes.items(), 2):
        for n, text in enumerate(chinese(count, speaker), 1):
            name = f"BAC009S{speaker:04d}W{n:04d}"
            speak(folder / "wav" / split / f"S{speaker:04d}" / f"{name}.wav", text)
            lines.append(f"{name} {text}\n")
    (folder / "transcript").mkdir()
    (folder / "transcript/aishell_transcript_v0.8.txt").write_text("".join(lines), encoding="utf-8")


def finished(folder, version, **facts):
    """Mark a synthesized corpus as complete, so that its recipe takes what is there."""
    (folder / "VERSION").write_text(
        f"{version}\n" + "".join(f"{name} {value}\n" for name, value in facts.items())
    )
