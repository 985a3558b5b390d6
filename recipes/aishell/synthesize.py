"""Synthesize a small Mandarin corpus: speech by espeak-ng, in AISHELL-1's own layout.

    python recipes/aishell/synthesize.py OUT [--hours 1.2] [--seed 1]

OUT/data_aishell/wav/{train,dev,test}/SNNNN/BAC009SNNNNWNNNN.wav (16 kHz, 16 bits) and
OUT/data_aishell/transcript/aishell_transcript_v0.8.txt, its words separated by spaces. OUT/VERSION comes last: it
marks the corpus as complete. `--hours` is about training; dev and test depend on the seed alone. No voice of dev or
test occurs in training, nor does any sentence.

Each recording depends on (seed, utterance id) alone, so that work which was interrupted continues and
any utterance can be made again: `recording(utterance, seed)`.
"""

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).resolve().parents[1])
)  # recipes/, whose synthesis/ it shares with mini

from mandarin import sentences, transcript, units
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

VERSION = "aishell-mini-1"
SECONDS_EACH = 2.73  # mean length of an utterance, measured
COVERAGE = 5  # times that each character of dev and test occurs in training, at least
PACES = 150, 230  # syllables per minute and pauses: espeak-ng's "words"
TONELESS = {"aunty", "Alex"}  # the first turns the tones upside down, the second flattens them
SPEAKERS = {"train": 64, "dev": 8, "test": 12}
FIRST = {"train": 1, "dev": 724, "test": 764}  # speaker of a split; of the last two as in AISHELL-1
UTTERANCES = {"dev": 120, "test": 240}


def speakers(split, seed):
    """Return the speakers of a split; there is one accent, so variants come again with another pitch and pace."""
    return voices.cast(split, SPEAKERS[split], FIRST[split], ["sit/cmn"], PACES, seed, TONELESS)


def plan(hours=1.2, seed=1, utterances=UTTERANCES, coverage=COVERAGE):
    """Decide who says what.

    hours:       of training speech, about
    utterances:  {"dev": count, "test": count}
    coverage:    how often each character (or Latin word) of dev and test must occur in training
    returns      {split: [Utterance, ...]}
    raises       ValueError if training is too small for the coverage; names the rarest character
    """
    counts = {
        "test": utterances["test"],
        "dev": utterances["dev"],
        "train": round(hours * 3600 / SECONDS_EACH),
    }
    corpus = assign(
        counts, {split: speakers(split, seed) for split in counts}, sentences, name, seed
    )
    demand(
        characters(corpus["train"]),
        characters(corpus["test"] + corpus["dev"]),
        coverage,
        hours,
        "character",
    )
    return corpus


def name(speaker, turn):
    """Return the id of a speaker's utterance."""
    return f"BAC009S{speaker.id:04}W{turn + 1:04}"


def characters(utterances):
    """Count the Han characters and Latin words of utterances → Counter."""
    return Counter(x for u in utterances for x in units(transcript(u.sentence)))


def synthesize(out, hours=1.2, seed=1, utterances=UTTERANCES, coverage=COVERAGE):
    """Write the corpus to `out`, or what of it is still missing. Arguments as in `plan`.

    raises  ValueError if `out` holds another corpus, RuntimeError if espeak-ng is missing
    """
    complete(
        Path(out),
        VERSION,
        {"seed": seed, "hours": hours, **utterances},
        lambda: plan(hours, seed, utterances, coverage),
        lambda corpus: write(Path(out) / "data_aishell", corpus, seed),
    )


def write(root, corpus, seed):
    """Write the recordings that aren't there, then the transcripts; statistics of each split to stderr."""
    paths = {
        u: root / "wav" / split / f"S{u.speaker.id:04}" / f"{u.id}.wav"
        for split, utterances in corpus.items()
        for u in utterances
    }
    for u, path in tqdm(paths.items(), unit="utt", desc=VERSION, disable=None):
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            write_sound(path, recording(u, seed), format="WAV")
    for split, utterances in corpus.items():
        report(
            split, utterances, durations(utterances, paths.get), characters(utterances), "character"
        )
    transcripts = root / "transcript" / "aishell_transcript_v0.8.txt"
    transcripts.parent.mkdir(exist_ok=True)
    write_text(transcripts, "".join(sorted(f"{u.id} {transcript(u.sentence)}\n" for u in paths)))


def recording(utterance, seed):
    """Synthesize an utterance → (N,) int16 at 16 kHz, the same samples for the same utterance id and seed."""
    return voices.recording(utterance.id, utterance.speaker, utterance.sentence, seed)


if __name__ == "__main__":
    sys.exit(command(synthesize, __doc__.split("\n")[0], hours=1.2))
