"""Generated data of the sizes of known corpora: durations, texts, and the layouts in which corpora come. Seeded.

Sound files are silence; one of each duration lies in `sounds`, and the corpus' own names are links
to it.
"""

import gzip
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import soundfile

RATE = 16000
LETTERS = "ETAOINSHRDLUCMFWYPVBGKQJXZ'"
HAN = [chr(0x4E00 + n) for n in range(4230)]  # as many characters as AISHELL-1's texts have
WORDS_A_SECOND, HAN_A_SECOND = 2.85, 3.2
ROWS = 10_000  # texts that are drawn at a time


def durations(count: int, seed: int = 1) -> np.ndarray:
    """Seconds like those of LibriSpeech-960: mean 12.3, two thirds about 14.7, the others evenly below, some to 35."""
    rng = np.random.default_rng(seed)
    most = rng.normal(14.7, 1.2, count).clip(10, 17)
    seconds = np.where(rng.random(count) < 0.65, most, rng.uniform(1.3, 14.2, count))
    seconds[rng.choice(count, max(1, count // 5000), replace=False)] = rng.uniform(
        17, 35, max(1, count // 5000)
    )
    return np.round(seconds / 0.005) * 0.005


def durations_of_aishell(count: int, seed: int = 1) -> np.ndarray:
    """Seconds like those of AISHELL-1: mean 4.5, from 1.2 to 14.5."""
    return np.random.default_rng(seed).gamma(9, 0.5, count).clip(1.2, 14.5)


@lru_cache
def lexicon(words: int) -> list[str]:
    """Words of one to eight letters."""
    rng, shares = np.random.default_rng(2), 1 / np.arange(3, 30) ** 0.7
    letters = rng.choice(list(LETTERS), (words, 8), p=shares / shares.sum())
    return [
        "".join(row[:length])
        for row, length in zip(letters.tolist(), rng.integers(1, 9, words), strict=True)
    ]


def texts(seconds: Sequence[float], seed: int = 2, words: int = 40_000) -> Iterator[str]:
    """A text of English letters for each duration; of its words some are far more frequent than others."""
    rng, known = np.random.default_rng(seed), lexicon(words)
    for first in range(0, len(seconds), ROWS):
        some = seconds[first : first + ROWS]
        chosen = (words * rng.random((len(some), 100)) ** 4).astype(int).tolist()
        for row, duration in zip(chosen, some, strict=True):
            yield " ".join(known[word] for word in row[: max(1, round(WORDS_A_SECOND * duration))])


def han_texts(seconds: Sequence[float], seed: int = 2) -> Iterator[str]:
    """A text of Han characters for each duration; some far more frequent than others."""
    rng = np.random.default_rng(seed)
    for duration in seconds:
        chosen = (len(HAN) * rng.random(max(1, round(HAN_A_SECOND * duration))) ** 3).astype(int)
        yield "".join(HAN[n] for n in chosen.tolist())


def text(path: Path, lines: int, words: int) -> None:
    """Write a gzipped text of `lines` lines with `words` words on average, half to one and a half times as many."""
    seconds = np.random.default_rng(1).uniform(0.5, 1.5, lines) * words / WORDS_A_SECOND
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=5) as file:
        file.writelines(f"{line}\n" for line in texts(seconds.tolist(), words=200_000))


class Sounds:
    """Files of silence, one a tenth of a second; `link` gives one of them a corpus' name."""

    def __init__(self, folder: Path, suffix: str):
        self.folder, self.suffix, self.made = folder / "sounds", suffix, {}
        self.folder.mkdir(parents=True, exist_ok=True)

    def link(self, name: Path, seconds: float) -> None:
        """Make the file `name` as long as `seconds`, rounded up."""
        tenths = int(np.ceil(seconds * 10))
        if tenths not in self.made:
            self.made[tenths] = self.folder / f"{tenths}{self.suffix}"
            soundfile.write(self.made[tenths], np.zeros(tenths * RATE // 10, np.int16), RATE)
        name.symlink_to(self.made[tenths])


def librispeech(folder: Path, subsets: dict[str, int]) -> None:
    """Write LibriSpeech's layout: subset → utterances, 120 a speaker, 50 a chapter at most."""
    sounds, speaker = Sounds(folder, ".flac"), 14
    for seed, (subset, count) in enumerate(subsets.items(), 1):
        lines: dict[Path, list[str]] = {}
        seconds = durations(count, seed).tolist()
        for n, (duration, text) in enumerate(zip(seconds, texts(seconds, seed), strict=True)):
            names = speaker + n // 120, 100_000 + n // 50
            chapter = folder / "LibriSpeech" / subset / str(names[0]) / str(names[1])
            if chapter not in lines:
                chapter.mkdir(parents=True)
                lines[chapter] = []
            name = f"{names[0]}-{names[1]}-{n % 50:04d}"
            sounds.link(chapter / f"{name}.flac", duration)
            lines[chapter].append(f"{name} {text}\n")
        for chapter, written in lines.items():
            (chapter / f"{chapter.parent.name}-{chapter.name}.trans.txt").write_text(
                "".join(written)
            )
        speaker += -(-count // 120)


def aishell(folder: Path, splits: dict[str, int]) -> None:
    """Write AISHELL-1's layout: split → utterances, 350 a speaker."""
    sounds, speaker = Sounds(folder, ".wav"), 2
    (folder / "data_aishell/transcript").mkdir(parents=True)
    with open(
        folder / "data_aishell/transcript/aishell_transcript_v0.8.txt", "w", encoding="utf-8"
    ) as transcript:
        for seed, (split, count) in enumerate(splits.items(), 1):
            seconds = durations_of_aishell(count, seed).tolist()
            for n, (duration, text) in enumerate(
                zip(seconds, han_texts(seconds, seed), strict=True)
            ):
                own = f"S{speaker + n // 350:04d}"
                place = folder / "data_aishell/wav" / split / own
                place.mkdir(parents=True, exist_ok=True)
                name = f"BAC009{own}W{n % 350 + 121:04d}"
                sounds.link(place / f"{name}.wav", duration)
                transcript.write(f"{name} {text}\n")
            speaker += -(-count // 350)
