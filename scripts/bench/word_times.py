"""Measure the word times of a model of recipes/mini: the synthesizer of its corpus tells the true ones.

    python -m scripts.bench.word_times exp/mini/model --split test-mini

Each sentence of a split is spoken anew with a little noise, aligned, and compared word by word: starts
with espeak-ng's events of words, ends with the next word's start, or the pause that its events of
phonemes show. Sentences whose events don't match their words (numbers, say) are left out and counted.
With --joined SECONDS the sentences stand one after another in recordings of that length.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch

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


def truth(utterance, rng) -> tuple[np.ndarray, list[Word]] | None:
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


def aligned(recognizer: Recognizer, waveforms, texts: list[str]) -> list[list[Word]]:
    """Align known texts with waveforms."""
    found = []
    for n in range(0, len(waveforms), 16):
        encoded = encode(recognizer, waveforms[n : n + 16])
        known = [Hypothesis(recognizer.tokenizer.encode(text), 0.0) for text in texts[n : n + 16]]
        log_probs = recognizer.model.ctc_log_probs(encoded.H)
        found += word_times(log_probs, encoded, known, recognizer)
    return found


def describe(name: str, errors: np.ndarray) -> str:
    """Format errors in seconds as a row."""
    ms = 1000 * errors
    return (
        f"{name:7} bias {np.median(ms):6.1f}  median {np.median(abs(ms)):5.1f}  "
        f"mean {abs(ms).mean():5.1f}  p95 {np.quantile(abs(ms), 0.95):6.1f} ms"
    )


@command
def main(argv):
    """Measure, and print a row for starts and one for ends."""
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("model", metavar="DIR")
    args.add_argument("--split", default="dev-mini")
    args.add_argument("--sentences", type=int, default=120)
    args.add_argument("--joined", type=float, default=0.0, metavar="SECONDS")
    args = args.parse_args(argv)
    recognizer, rng = load(args.model), np.random.default_rng(0)
    torch.set_num_threads(1)
    spoken_ones = [truth(utterance, rng) for utterance in plan()[args.split][: args.sentences]]
    kept = [one for one in spoken_ones if one]
    if args.joined:
        kept = join(kept, args.joined)
    texts = [" ".join(word.text for word in words) for _, words in kept]
    found = aligned(recognizer, [waveform for waveform, _ in kept], texts)
    pairs = [
        (word, true)
        for words, (_, truths) in zip(found, kept, strict=True)
        for word, true in zip(words, truths, strict=bool(words))
    ]
    print(f"{len(pairs)} words of {len(kept)} recordings; {spoken_ones.count(None)} left out")
    print(describe("starts", np.array([word.start - true.start for word, true in pairs])))
    print(describe("ends", np.array([word.end - true.end for word, true in pairs])))


def join(pairs, seconds: float):
    """Put sentences one after another, up to a length in seconds."""
    joined, waveforms, words, at = [], [], [], 0.0
    for n, (waveform, truths) in enumerate(pairs):
        waveforms.append(waveform)
        words += [Word(word.start + at, word.end + at, word.text) for word in truths]
        at += len(waveform) / RATE
        if at >= seconds or n + 1 == len(pairs):
            joined.append((np.concatenate(waveforms), words))
            waveforms, words, at = [], [], 0.0
    return joined


if __name__ == "__main__":
    main()
