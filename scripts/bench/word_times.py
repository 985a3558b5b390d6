"""Measure the word times of a model of recipes/mini: the synthesizer of its corpus tells the true ones.

    python -m scripts.bench.word_times exp/mini/model --split test-mini

Each sentence of a split is spoken anew with a little noise, aligned, and compared word by word: starts
with espeak-ng's events of words, ends with the next word's start, or the pause that its events of
phonemes show. Sentences whose events don't match their words (numbers, say) are left out and counted.
With --joined SECONDS the sentences, --times over, stand one after another in recordings of that length, and
asr-align places them; a second pair of rows is for the recordings' last minutes.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import soundfile
import torch

import asr
from asr.cli.command import command
from asr.models.recognizer import Recognizer, load
from asr.search.scorer import Hypothesis
from asr.transcript import Word
from asr.transcription.encoding import encode
from asr.transcription.times import word_times

sys.path[:0] = [str(Path(__file__).parents[2] / "recipes" / part) for part in ("", "mini")]

from grammar import spoken, transcript  # noqa: E402
from synthesis.espeak import PHONEME, RATE, WORD, speak  # noqa: E402
from synthesize import plan  # noqa: E402

PAD = 0.2  # seconds of near silence around a sentence
FLOOR = -50  # dB, of the noise

Sentence = tuple[np.ndarray, list[Word]]  # its waveform, its true words
Pairs = Iterator[tuple[Word, Word, float]]  # found, true, and the recording's seconds


def truth(utterance, rng) -> Sentence | None:
    """Say an utterance; its waveform and true words, or None if the events don't match the words."""
    who, words = utterance.speaker, transcript(utterance.sentence).split()
    speech, events = speak(spoken(utterance.sentence), who.voice, who.pace, who.pitch, who.melody)
    begun = [time for kind, time, _ in events if kind == WORD]
    if len(begun) != len(words):
        return None
    silent = [time for kind, time, name in events if kind == PHONEME and name.startswith("_")]
    limits = [*begun[1:], len(speech) / RATE]
    ends = [
        min([time for time in silent if start < time <= limit], default=limit)
        for start, limit in zip(begun, limits, strict=True)
    ]
    noise = rng.standard_normal(len(speech) + 2 * round(PAD * RATE))
    padded = np.pad(speech, round(PAD * RATE)) + 10 ** (FLOOR / 20) * speech.std() * noise
    waveform = (0.3 / np.abs(padded).max() * padded).astype(np.float32)
    return waveform, [
        Word(start + PAD, end + PAD, word)
        for start, end, word in zip(begun, ends, words, strict=True)
    ]


def alone(recognizer: Recognizer, sentences: Sequence[Sentence]) -> Pairs:
    """Align each sentence by itself."""
    for few in (sentences[n : n + 16] for n in range(0, len(sentences), 16)):
        encoded = encode(recognizer, [waveform for waveform, _ in few])
        tokens = [recognizer.tokenizer.encode(text_of(words)) for _, words in few]
        log_probs = recognizer.model.ctc_log_probs(encoded.H)
        known = [Hypothesis(row, 0.0, confidences=[1.0] * len(row)) for row in tokens]
        found = word_times(log_probs, encoded, known, recognizer)
        for words, (waveform, true) in zip(found, few, strict=True):
            for word, its in zip(words, true, strict=bool(words)):
                yield word, its, len(waveform) / RATE


def joined(recognizer: Recognizer, sentences: Sequence[Sentence], seconds: float) -> Pairs:
    """Align recordings of sentences up to a length, whose lines are the sentences."""
    lengths = np.array([len(waveform) / RATE for waveform, _ in sentences])
    begins = np.cumsum(lengths) - lengths
    for _, group in groupby(range(len(sentences)), lambda n: begins[n] // seconds):
        members = list(group)
        with tempfile.NamedTemporaryFile(suffix=".wav") as file:
            waveforms = [sentences[n][0] for n in members]
            soundfile.write(file.name, np.concatenate(waveforms), RATE, "FLOAT")
            lines = [text_of(sentences[n][1]) for n in members]
            segments = asr.align(recognizer, file.name, lines).segments
        for n, segment in zip(members, segments, strict=True):
            at = begins[n] - begins[members[0]]
            true = [replace(w, start=w.start + at, end=w.end + at) for w in sentences[n][1]]
            for word, its in zip(segment.words, true, strict=bool(segment.words)):
                yield word, its, lengths[members].sum()


def text_of(words: Sequence[Word]) -> str:
    """The words in a line."""
    return " ".join(word.text for word in words)


def describe(name: str, errors: np.ndarray) -> str:
    """Format errors in seconds as a row."""
    ms = 1000 * errors
    return (
        f"{name:7} bias {np.median(ms):6.1f}  median {np.median(abs(ms)):5.1f}  "
        f"mean {abs(ms).mean():5.1f}  p95 {np.quantile(abs(ms), 0.95):6.1f} ms"
    )


def show(pairs: Sequence[tuple[Word, Word, float]]) -> None:
    """Print a row for starts and one for ends."""
    print(describe("starts", np.array([word.start - true.start for word, true, _ in pairs])))
    print(describe("ends", np.array([word.end - true.end for word, true, _ in pairs])))


@command
def main(argv):
    """Measure, and print."""
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("model", metavar="DIR")
    args.add_argument("--split", default="dev-mini")
    args.add_argument("--sentences", type=int, default=120)
    args.add_argument("--joined", type=float, default=0.0, metavar="SECONDS")
    args.add_argument("--times", type=int, default=1)
    args = args.parse_args(argv)
    recognizer, rng = load(args.model), np.random.default_rng(0)
    torch.set_num_threads(1)
    spoken_ones = [truth(utterance, rng) for utterance in plan()[args.split][: args.sentences]]
    kept = [one for one in spoken_ones if one]
    kept *= args.times
    pairs = list(joined(recognizer, kept, args.joined) if args.joined else alone(recognizer, kept))
    print(f"{len(pairs)} words of {len(kept)} sentences; {spoken_ones.count(None)} left out")
    show(pairs)
    if args.joined:
        last = [pair for pair in pairs if pair[1].start > pair[2] - 60]
        print(f"{len(last)} words of the last minutes of recordings")
        show(last)


if __name__ == "__main__":
    main()
