"""Synthesize the mini corpus: English speech by espeak-ng, in LibriSpeech's own layout.

    python recipes/mini/synthesize.py OUT [--hours 3.5] [--seed 1]

OUT/LibriSpeech/{train,dev,test}-mini/SPEAKER/CHAPTER/SPEAKER-CHAPTER-NNNN.flac (16 kHz, 16 bits),
SPEAKER-CHAPTER.trans.txt beside them, and OUT/LibriSpeech/SPEAKERS.TXT. OUT/VERSION comes last: it marks
the corpus as complete. `--hours` is about training; dev and test depend on the seed alone. No voice
of dev or test occurs in training, nor does any sentence.

Each recording depends on (seed, utterance id) alone, so that work which was interrupted continues and
any utterance can be made again: `recording(utterance, seed)`.
"""

import sys
from collections import Counter
from itertools import groupby
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).resolve().parents[1])
)  # recipes/, whose synthesis/ it shares with aishell

from grammar import sentences, spoken, transcript
from synthesis import voices
from synthesis.corpus import (
    assign,
    command,
    complete,
    demand,
    durations,
    report,
    write_sound,
    write_text,
)
from tqdm import tqdm

VERSION = "mini-1"
SECONDS_EACH = 2.71  # mean length of an utterance, measured
CHAPTER = 25  # utterances, at most
COVERAGE = 10  # times that each word of test occurs in training, at least
PACES = 125, 185  # words per minute

# Files of espeak-ng's lang
ACCENTS = [
    "gmw/en",
    "gmw/en-US",
    "gmw/en-GB-scotland",
    "gmw/en-GB-x-rp",
    "gmw/en-029",
    "gmw/en-US-nyc",
]
ACCENTS += ["gmw/en-GB-x-gbclan", "gmw/en-GB-x-gbcwmd"]
SPEAKERS = {"train-mini": 64, "dev-mini": 8, "test-mini": 12}
UTTERANCES = {"dev-mini": 200, "test-mini": 444}


def speakers(split, seed):
    """Return the speakers of a split; each (accent, variant) once."""
    first = 100 * (1 + list(SPEAKERS).index(split))
    return voices.cast(split, SPEAKERS[split], first, ACCENTS, PACES, seed)


def plan(hours=3.5, seed=1, utterances=UTTERANCES, coverage=COVERAGE):
    """Decide who says what.

    hours:       of training speech, about
    utterances:  {"dev-mini": count, "test-mini": count}
    coverage:    how often each word of test must occur in training
    returns      {split: [Utterance, ...]}
    raises       ValueError if training is too small for the coverage; names the rarest word
    """
    train = round(hours * 3600 / SECONDS_EACH)
    counts = {
        "test-mini": utterances["test-mini"],
        "dev-mini": utterances["dev-mini"],
        "train-mini": train,
    }
    corpus = assign(
        counts, {split: speakers(split, seed) for split in counts}, sentences, name, seed
    )
    demand(words(corpus["train-mini"]), words(corpus["test-mini"]), coverage, hours, "word")
    return corpus


def name(speaker, turn):
    """Return the id of a speaker's utterance."""
    return "{0}-{0}{1:02}-{2:04}".format(speaker.id, *divmod(turn, CHAPTER))


def chapter(utterance):
    """Return the name of an utterance's chapter."""
    return utterance.id.rsplit("-", 1)[0]


def words(utterances):
    """Count the words of utterances → Counter."""
    return Counter(word for u in utterances for word in transcript(u.sentence).split())


def synthesize(out, hours=3.5, seed=1, utterances=UTTERANCES, coverage=COVERAGE):
    """Write the corpus to `out`, or what of it is still missing. Arguments as in `plan`.

    raises  ValueError if `out` holds another corpus, RuntimeError if espeak-ng is missing
    """
    complete(
        Path(out),
        VERSION,
        {"seed": seed, "hours": hours, **utterances},
        lambda: plan(hours, seed, utterances, coverage),
        lambda corpus: write(Path(out) / "LibriSpeech", corpus, seed),
    )


def write(root, corpus, seed):
    """Write all chapters, then SPEAKERS.TXT."""
    with tqdm(
        total=sum(map(len, corpus.values())), unit="utt", desc=VERSION, disable=None
    ) as progress:
        for split, utterances in corpus.items():
            for _, part in groupby(sorted(utterances, key=lambda u: u.id), chapter):
                part = list(part)
                write_chapter(root / split, part, seed)
                progress.update(len(part))
    write_speakers(root, corpus)


def write_chapter(folder, utterances, seed):
    """Write the recordings of one chapter and then its transcripts, unless these are there."""
    folder = folder.joinpath(*chapter(utterances[0]).split("-"))
    transcripts = folder / f"{chapter(utterances[0])}.trans.txt"
    if transcripts.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    for u in utterances:
        write_sound(folder / f"{u.id}.flac", recording(u, seed), format="FLAC")
    write_text(transcripts, "".join(f"{u.id} {transcript(u.sentence)}\n" for u in utterances))


def write_speakers(root, corpus):
    """Write SPEAKERS.TXT in LibriSpeech's format, and statistics of each split to stderr."""
    lines = [";ID  |SEX| SUBSET           |MINUTES| NAME\n"]
    for split, utterances in corpus.items():
        paths = {
            u: root.joinpath(split, *chapter(u).split("-"), f"{u.id}.flac") for u in utterances
        }
        seconds = durations(utterances, paths.get)
        for s, t in seconds.items():
            lines.append(
                f"{s.id:<5}| {s.sex} | {split:<17}| {t / 60:5.2f} | {s.voice.removeprefix('gmw/')}\n"
            )
        report(split, utterances, seconds, words(utterances), "word")
    write_text(root / "SPEAKERS.TXT", "".join(lines))


def recording(utterance, seed):
    """Synthesize an utterance → (N,) int16 at 16 kHz, the same samples for the same utterance id and seed."""
    return voices.recording(utterance.id, utterance.speaker, spoken(utterance.sentence), seed)


if __name__ == "__main__":
    sys.exit(command(synthesize, __doc__.split("\n")[0], hours=3.5))
