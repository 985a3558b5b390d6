"""Stream the recordings of a manifest again and again for hours, and see that memory, cost and times stay as they were.

    python -m scripts.soak_live exp/mini-streaming/model data/mini/dev-mini.jsonl.gz --hours 10

Recordings stand one after another with faint noise of a second and a half between them. One round
takes as long as they do; its words return in each round. Every ten minutes of the stream it prints
the process's memory, the seconds that a second of audio took, and how far the words' starts are from
those of the same words in the first round.
"""

import argparse
import resource
import time

import numpy as np

from asr.audio import load as audio
from asr.cli.command import command, emit
from asr.data import manifest
from asr.models.recognizer import load
from asr.transcript import Final, Word
from asr.transcription.options import SearchOptions
from asr.transcription.streams import Streams

PAUSE, NOISE, REPORT = 1.5, 3e-4, 600.0  # seconds; standard deviation; seconds


def one_round(path: str, rate: int, seconds: float) -> np.ndarray:
    """Join recordings to some seconds, (samples,)."""
    rng, parts, length = np.random.default_rng(0), [], 0.0
    for u in manifest.read(path):
        speech = audio.load(u.path, rate, u.start, u.duration, u.channel)
        pause = NOISE * rng.standard_normal(round(PAUSE * rate))
        parts += [speech, pause.astype(np.float32)]
        length += u.duration + PAUSE
        if length >= seconds:
            break
    return np.concatenate(parts)


def memory() -> float:
    """MB that the process has now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6


def drift(first: list[Word], now: list[Word], period: float) -> tuple[float, float]:
    """Mean and greatest distance of starts of the same words in another round, in seconds; NaN without any."""
    starts = [(word.text, word.start % period) for word in first]
    far = [
        min((abs(at - word.start % period) for text, at in starts if text == word.text), default=9)
        for word in now
    ]
    near = [x for x in far if x < 1.0]
    return (float(np.mean(near)), max(near)) if near else (float("nan"), float("nan"))


@command
def main(argv):
    """Stream, and print."""
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("model", metavar="DIR")
    args.add_argument("manifest", metavar="JSONL")
    args.add_argument("--hours", type=float, default=10.0)
    args.add_argument("--minutes", type=float, default=5.0, help="of a round (default 5)")
    args.add_argument("--mode", default="ctc-greedy", help="of the finals (default ctc-greedy)")
    args = args.parse_args(argv)
    recognizer = load(args.model)
    rate = recognizer.sample_rate
    again = one_round(args.manifest, rate, 60 * args.minutes)
    period, portion = len(again) / rate, rate // 2
    stream = Streams(recognizer, SearchOptions(mode=args.mode)).open()
    words, first, at, began, reported = [], [], 0, time.process_time(), 0.0
    emit("minutes\tMB\tseconds/second\twords\tmean drift\tgreatest drift")
    while at < args.hours * 3600 * rate:
        place = at % len(again)
        block = again[place : place + portion]
        events = stream.push(block)
        words += [w for e in events if isinstance(e, Final) for w in e.segment.words]
        at += len(block)
        if at / rate >= reported + REPORT:
            first = first or [word for word in words if word.start < period]
            cost = (time.process_time() - began) / (at / rate - reported)
            away = "\t".join(f"{x:.3f}" for x in drift(first, words, period))
            emit(f"{at / rate / 60:.0f}\t{memory():.0f}\t{cost:.4f}\t{len(words)}\t{away}")
            words, began, reported = [], time.process_time(), at / rate


if __name__ == "__main__":
    main()
