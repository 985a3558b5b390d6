"""Measure live transcription: errors beside those of files, delays of words, and streams in real time.

    python -m scripts.bench.live quality exp/mini/model data/mini/test-mini.jsonl.gz --chunk 0.32 0.64
    python -m scripts.bench.live capacity --threads 2 --streams 8 16 32

`quality` streams each utterance in portions of 20 ms, with two seconds of faint noise after it, at
every chunk. Beside the word error rate of finals it tells, as medians and 95th percentiles of
seconds: how long after a word was spoken it first stands in a partial result, how long after its end
the last word is final, both with the time of computing; and which share of the words that were shown
changed before they were final. `capacity` streams noise to random weights of the workload's sizes: the
seconds that a chunk of all streams takes, and the seconds of audio in a second.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from asr.audio import load as audio
from asr.cli.command import command
from asr.data import manifest
from asr.features.frontend import FrontendSettings
from asr.models.hybrid import HybridSettings
from asr.models.recognizer import Recognizer, load
from asr.scoring.report import aligned, percent
from asr.text import tokenizer as tokenizers
from asr.transcript import Event, Final, Partial
from asr.transcription.options import SearchOptions
from asr.transcription.pipeline import transcribe
from asr.transcription.recordings import find
from asr.transcription.streams import Stream, Streams
from scripts.bench import generated, workload

PORTION, SILENCE, NOISE = 0.02, 2.0, 3e-4  # seconds, seconds, standard deviation


def spread(values: Sequence[float]) -> list[float]:
    """Median and 95th percentile."""
    return [round(float(x), 3) for x in np.quantile(values, (0.5, 0.95))] if len(values) else []


def paced(stream: Stream, waveform: np.ndarray, rate: int) -> Iterator[tuple[float, Event]]:
    """Push portions; yield each event with the time at which someone would see it, in seconds from the beginning."""
    size, busy = round(PORTION * rate), 0.0
    for end in range(size, len(waveform) + size, size):
        began = time.perf_counter()
        events = stream.push(waveform[end - size : end])
        # computing may still be going on with earlier portions
        busy = max(busy, end / rate) + time.perf_counter() - began
        yield from ((busy, event) for event in events)
    yield from ((busy, event) for event in stream.finish())


def delays(seen: Sequence[tuple[float, Event]]) -> tuple[list[float], list[float], list[bool]]:
    """Seconds from a word's end to its first sight, and from the last word's to the final; which words changed."""
    words, finals, changed = [], [], []
    for at, final in seen:
        if not isinstance(final, Final) or not final.segment.words:
            continue
        texts = final.segment.text.split()
        shown = [
            (when, e.text.split())
            for when, e in seen
            if isinstance(e, Partial) and e.number == final.number
        ]
        for n, word in enumerate(final.segment.words):
            right = [when for when, text in shown if text[: n + 1] == texts[: n + 1]]
            words.append((right or [at])[0] - word.end)
        finals.append(at - final.segment.words[-1].end)
        new = [  # words as they were first shown
            (n, text[n])
            for (_, before), (_, text) in zip([(0, []), *shown], shown, strict=False)
            for n in range(len(text))
            if text[n : n + 1] != before[n : n + 1]
        ]
        changed += [texts[n : n + 1] != [word] for n, word in new]
    return words, finals, changed


def quality(args: argparse.Namespace) -> dict:
    """Measure one model at several chunks, beside files."""
    recognizer, rng = load(args.model), np.random.default_rng(0)
    utterances = list(manifest.read(args.manifest))[: args.most]
    references = {u.id: u.text for u in utterances}
    options, rate, figures = SearchOptions(mode=args.mode), recognizer.sample_rate, {}
    keep = {r.id: r for r in find([], [args.manifest])}
    found = transcribe(recognizer, [keep[u.id] for u in utterances], options)
    texts = {transcript.id: transcript.text for transcript in found}
    figures["whole"] = {"wer": sum(aligned(references, texts, "word")).rate}
    for chunk in args.chunk or [None]:
        streams = Streams(recognizer, replace(options, chunk=chunk))
        texts, parts = {}, ([], [], [], [])
        for u in utterances:
            speech = audio.load(u.path, rate, u.start, u.duration, u.channel)
            after = (NOISE * rng.standard_normal(round(SILENCE * rate))).astype(np.float32)
            seen = list(paced(streams.open(), np.concatenate([speech, after]), rate))
            finals = [event for _, event in seen if isinstance(event, Final)]
            texts[u.id] = " ".join(event.segment.text for event in finals)
            for into, values in zip(parts, delays(seen), strict=False):
                into.extend(values)
            parts[3].extend([seen[0][0]] * bool(seen))
        words, ends, changed, first = parts
        figures[f"{chunk or streams.chunk * recognizer.frame_seconds:g}"] = {
            "wer": sum(aligned(references, texts, "word")).rate,
            "word_seconds": spread(words),
            "final_seconds": spread(ends),
            "first_partial_seconds": spread(first),
            "changed": sum(changed) / max(1, len(changed)),
        }
    return figures


def random_recognizer(chunk: int, left: int) -> Recognizer:
    """A recognizer of the workload's sizes with random weights, whose CTC often hears nothing."""
    shared = {"d_model": workload.D_MODEL, "heads": workload.HEADS, "ff": workload.FF}
    shared |= {"dropout": 0.0, "kind": "transformer"}
    settings = HybridSettings(
        kind="hybrid",
        encoder={**shared, "layers": workload.ENCODER_LAYERS, "channels": workload.CHANNELS}
        | {"chunk": {"frames": chunk, "left": left}},
        decoder={**shared, "layers": workload.DECODER_LAYERS},
    )
    texts = list(generated.texts([12.0] * 4000))
    tokenizer = tokenizers.train("bpe", texts, workload.VOCABULARY)
    features = FrontendSettings(fbank={"sample_rate": workload.SAMPLE_RATE, "mels": workload.MELS})
    made = Recognizer(features, settings, tokenizer).eval()
    with torch.no_grad():
        made.model.ctc_out.bias[0] += 6
    return made


def capacity(args: argparse.Namespace) -> dict:
    """Time chunks of several streams side by side."""
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    recognizer, figures = random_recognizer(args.frames, args.left), {}
    rng, rate = np.random.default_rng(0), recognizer.sample_rate
    options = SearchOptions(mode=args.mode)
    for count in args.streams:
        streams = Streams(recognizer, options)
        size = streams.chunk * round(recognizer.frame_seconds * rate)
        running, times = [streams.open() for _ in range(count)], []
        for _ in range(args.rounds):
            for stream in running:
                level = 10 ** rng.uniform(-4, -1)  # quiet and loud chunks
                stream.feed((level * rng.standard_normal(size)).astype(np.float32))
            began = time.perf_counter()
            streams.advance()
            times.append(time.perf_counter() - began)
        audio_seconds = count * args.rounds * size / rate
        figures[count] = {"chunk_seconds": spread(times), "speed": audio_seconds / sum(times)}
    return figures


@command
def main(argv):
    """Measure, and print."""
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("what", choices=("quality", "capacity"))
    args.add_argument("model", metavar="DIR", nargs="?", help="of quality")
    args.add_argument("manifest", metavar="JSONL", nargs="?", help="of quality")
    args.add_argument("--chunk", type=float, nargs="+", metavar="SECONDS", help="of quality")
    args.add_argument("--most", type=int, help="utterances of quality (default all)")
    args.add_argument("--streams", type=int, nargs="+", default=[1, 8, 16, 32], help="of capacity")
    args.add_argument("--rounds", type=int, default=40, help="chunks of each stream (default 40)")
    args.add_argument("--frames", type=int, default=16, help="of a chunk (default 16: 0.64 s)")
    args.add_argument("--left", type=int, default=4, help="chunks before it that are seen")
    args.add_argument("--threads", type=int, default=os.cpu_count())
    args.add_argument("--mode", default="joint")
    args.add_argument("--json", metavar="FILE", help="write the figures there")
    args = args.parse_args(argv)
    figures = quality(args) if args.what == "quality" else capacity(args)
    for name, row in figures.items():
        shown = {k: f"{percent(x)} %" if k in ("wer", "changed") else x for k, x in row.items()}
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in shown.items()))
    if args.json:
        Path(args.json).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
