"""Measure live transcription: errors beside those of files, delays of words, and streams in real time.

    python -m scripts.bench.live quality exp/mini-streaming/model data/mini/test-mini.jsonl.gz --chunk 0.3 0.6
    python -m scripts.bench.live quality exp/*/model test.jsonl.gz --beside exp/whole --join 20
    python -m scripts.bench.live quality exp/mini-streaming/model test.jsonl.gz --together 32
    python -m scripts.bench.live capacity --threads 2 --streams 8 16 32

`quality` streams each utterance in portions of 20 ms, with two seconds of faint noise after it, at
every chunk; --join joins utterances first. It prints

- the word error rate of finals, and how far it is above that of the same models as files (--beside: of
  other models), with the paired 95 % interval. Several models, of several seeds, are pooled;
- medians and 95th percentiles of seconds: how long after a word was spoken it first stands in a partial
  result, and how long after its end the last word is final, both with the time of computing;
- which share of the words that were shown changed before they were final.

With --together, many recordings are streamed side by side, each fed as a whole: the results are the
same, and there sooner, but without seconds.

`capacity` streams noise to random weights of the workload's sizes, whose searches find as many labels as
speech has. It prints the seconds that a chunk of all streams takes, the share of the time that the search
for final results takes, and the seconds of audio in a second. With --wenet, the same streams are then
read by sherpa-onnx (live_sherpa.py), which searches greedily on CTC and has no final search.
"""

import argparse
import functools
import itertools
import json
import math
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import soundfile
import torch

from asr.audio import load as audio
from asr.cli.command import command
from asr.data import manifest
from asr.data.manifest import Utterance
from asr.errors import UserError
from asr.features.frontend import FrontendSettings
from asr.models.hybrid import HybridSettings
from asr.models.recognizer import Recognizer, load
from asr.scoring.error_rate import ErrorRate, total
from asr.scoring.report import aligned, percent
from asr.scoring.significance import Difference, compare
from asr.search.beam import BeamSearch
from asr.text import tokenizer as tokenizers
from asr.transcript import Event, Final, Partial
from asr.transcription.endpoints import FINALS_IN, EndpointOptions
from asr.transcription.options import SearchOptions
from asr.transcription.pipeline import transcribe
from asr.transcription.recordings import find
from asr.transcription.streams import Stream, Streams
from scripts.bench import generated, live_sherpa, workload

# seconds: pushed at once, after a recording, between joined ones
PORTION, SILENCE, PAUSE = 0.02, 2.0, 0.4
NOISE = 3e-4  # standard deviation
LABELS = 3.5  # a second
SHARES = ("wer", "above", "changed", "share")


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


@dataclass
class Seen:
    """What one way of decoding gave, pooled over models: errors by model and recording, and seconds as in `quality`."""

    rates: list[list[ErrorRate]] = field(default_factory=list)
    words: list[float] = field(default_factory=list)
    finals: list[float] = field(default_factory=list)
    changed: list[bool] = field(default_factory=list)
    first: list[float] = field(default_factory=list)

    def add(self, other: "Seen") -> "Seen":
        """Pool with another's."""
        mine, its = (vars(x).values() for x in (self, other))
        return Seen(*(a + b for a, b in zip(mine, its, strict=True)))

    def above(self, other: "Seen") -> Difference:
        """Compare mean error rates, on the same recordings.

        The errors of a recording are added over the models before recordings are drawn: models aren't
        independent samples of them. Each side counts as often as the other has models.
        """
        mine, its = (
            [total(rates * len(y.rates)) for rates in zip(*x.rates, strict=True)]
            for x, y in ((self, other), (other, self))
        )
        return compare(mine, its)

    def figures(self, others: dict[str, "Seen"]) -> dict:
        """Return them, and how far the error rate is above those of others."""
        above = {name: self.above(x) for name, x in others.items() if x is not self}
        delays = {"word": self.words, "final": self.finals, "first_partial": self.first}
        return (
            {"wer": total(itertools.chain(*self.rates)).rate}
            | {f"above_{name}": [d.value, d.low, d.high] for name, d in above.items()}
            | {f"{name}_seconds": spread(values) for name, values in delays.items() if values}
            | ({"changed": sum(self.changed) / len(self.changed)} if self.changed else {})
        )


def joined(utterances: list[Utterance], longest: float, rate: int, folder: Path) -> dict[str, str]:
    """Write recordings, joined up to `longest` seconds with faint noise between; return path → text."""
    texts, rng, samples, words = {}, np.random.default_rng(0), [], []
    for n, u in enumerate(utterances):
        samples.append(audio.load(u.path, rate, u.start, u.duration, u.channel))
        words.append(u.text)
        after = utterances[n + 1].duration + PAUSE if n + 1 < len(utterances) else np.inf
        if sum(map(len, samples)) / rate + after > longest:
            path = str(folder / f"{n}.wav")
            soundfile.write(path, np.concatenate(samples), rate, "PCM_16")
            texts[path], samples, words = " ".join(words), [], []
        else:
            samples.append(noise(PAUSE, rate, rng))
    return texts


def noise(seconds: float, rate: int, rng: np.random.Generator) -> np.ndarray:
    """Make faint noise."""
    return (NOISE * rng.standard_normal(round(seconds * rate))).astype(np.float32)


def as_files(recognizer: Recognizer, texts: dict[str, str], options: SearchOptions) -> Seen:
    """Decode recordings, path → text, as files are."""
    found = {t.id: t.text for t in transcribe(recognizer, find(texts), options)}
    return Seen([list(aligned(texts, found, "word"))])


def streamed(streams: Streams, texts: dict[str, str], rate: int, together: int) -> Seen:
    """Decode recordings, path → text, while they come; or several together, without seconds."""
    found, result, rng = {}, Seen(), np.random.default_rng(0)
    speech = (np.concatenate([audio.load(path, rate), noise(SILENCE, rate, rng)]) for path in texts)
    alone = (list(paced(streams.open(), waveform, rate)) for waveform in speech)
    each = at_once(streams, speech, together) if together > 1 else alone
    for path, seen in zip(texts, each, strict=True):
        finals = [event for _, event in seen if isinstance(event, Final)]
        found[path] = " ".join(event.segment.text for event in finals)
        words, last, changed = delays(seen)
        first = [when for when, _ in seen[:1]]
        timed = Seen(words=words, finals=last, changed=changed, first=first)
        result = result.add(timed if together == 1 else Seen(changed=changed))
    return replace(result, rates=[list(aligned(texts, found, "word"))])


def at_once(
    streams: Streams, waveforms: Iterator[np.ndarray], together: int
) -> Iterator[list[tuple[float, Event]]]:
    """Feed several streams whole recordings; yield each one's events, seen at no time."""
    while some := list(itertools.islice(waveforms, together)):
        opened = [streams.open() for _ in some]
        for stream, waveform in zip(opened, some, strict=True):
            stream.feed(waveform)
            stream.end()
        streams.advance()
        yield from ([(math.nan, event) for event in stream.take()] for stream in opened)


def quality(args: argparse.Namespace) -> dict:
    """Measure models at several chunks, beside files."""
    if len(args.paths) < 2:
        raise UserError("quality: expected at least one model and a manifest, as PATH")
    *models, table = args.paths
    options = SearchOptions(
        mode=args.mode, ctc_weight=args.ctc_weight, length_bonus=args.length_bonus
    )
    endpoints = EndpointOptions(finals=args.finals)
    ways = [(path, "whole") for path in models] + [(path, "beside") for path in args.beside]
    texts, seen = {}, defaultdict[str, list[Seen]](list)
    with tempfile.TemporaryDirectory() as folder:
        for path, way in ways:
            recognizer = load(path)
            rate, utterances = recognizer.sample_rate, list(manifest.read(table))[: args.most]
            texts = texts or joined(utterances, args.join, rate, Path(folder))
            seen[way].append(as_files(recognizer, texts, options))
            for chunk in (args.chunk or [None]) if way == "whole" else ():
                streams = Streams(recognizer, replace(options, chunk=chunk), endpoints)
                name = f"{streams.chunk * recognizer.frame_seconds:g}"
                seen[name].append(streamed(streams, texts, rate, args.together))
    pooled = {name: functools.reduce(Seen.add, parts) for name, parts in seen.items()}
    files = {name: pooled[name] for name in ("whole", "beside") if name in pooled}
    return {name: x.figures(files) for name, x in pooled.items()}


def random_recognizer(chunk: int, left: int, kind: str = "transformer") -> Recognizer:
    """A recognizer of the workload's sizes with random weights, whose CTC often hears nothing.

    chunk   frames of the encoder
    left    chunks before it that are seen
    kind    of the encoder, conformer or transformer
    """
    shared = {"d_model": workload.D_MODEL, "heads": workload.HEADS, "ff": workload.FF}
    shared |= {"dropout": 0.0, "kind": "transformer"}
    own = {"kind": kind, "layers": workload.ENCODER_LAYERS, "channels": workload.CHANNELS}
    own |= {"kernel": live_sherpa.KERNEL} if kind == "conformer" else {}
    settings = HybridSettings(
        kind="hybrid",
        encoder={**shared, **own, "chunk": {"frames": [chunk, "whole"], "left": left}},
        decoder={**shared, "layers": workload.DECODER_LAYERS},
    )
    texts = list(generated.texts([12.0] * 4000))
    tokenizer = tokenizers.train("bpe", texts, workload.VOCABULARY)
    features = FrontendSettings(fbank={"sample_rate": workload.SAMPLE_RATE, "mels": workload.MELS})
    made = Recognizer(features, settings, tokenizer).eval()
    with torch.no_grad():
        made.model.ctc_out.bias[0] += 6
    return made


def limit_labels(recognizer: Recognizer) -> None:
    """Have all searches find as many labels as speech has; with random weights the end comes by chance."""
    with torch.no_grad():
        recognizer.model.decoder.out.bias[-1] = workload.NEVER
    add = BeamSearch.add
    BeamSearch.add = lambda self, H, H_lens, _: add(  # type: ignore[method-assign]
        self, H, H_lens, (H_lens * recognizer.frame_seconds * LABELS).ceil().long()
    )


def capacity(args: argparse.Namespace) -> dict:
    """Time chunks of several streams side by side."""
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    recognizer, figures = random_recognizer(args.frames, args.left, args.encoder), {}
    limit_labels(recognizer)
    rng, rate = np.random.default_rng(0), recognizer.sample_rate
    options = SearchOptions(mode=args.mode)
    for count in args.streams:
        streams = Streams(recognizer, options, EndpointOptions(finals=args.finals), args.precision)
        size = streams.chunk * round(recognizer.frame_seconds * rate)
        running, times, finals = [streams.open() for _ in range(count)], [], 0.0
        for _ in range(args.rounds):
            for stream in running:
                level = 10 ** rng.uniform(-4, -1)  # quiet and loud chunks
                stream.feed((level * rng.standard_normal(size)).astype(np.float32))
            began = time.perf_counter()
            streams.read()
            times.append(time.perf_counter() - began)
            began = time.perf_counter()
            streams.advance()
            finals += time.perf_counter() - began
        speed = count * args.rounds * size / rate / (sum(times) + finals)
        share = finals / (sum(times) + finals)
        figures[f"{count}"] = {
            "chunk_seconds": spread(times),
            "share_of_finals": share,
            "speed": speed,
        }
    return figures | (beside_sherpa(args) if args.wenet else {})


def beside_sherpa(args: argparse.Namespace) -> dict:
    """Time the same numbers of streams with sherpa-onnx."""
    environment, figures = Path(args.sherpa), {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        live_sherpa.export(
            environment, Path(args.wenet), folder, args.frames, args.left, args.encoder
        )
        for count in args.streams:
            how = count, args.rounds, args.frames, args.threads
            times = live_sherpa.measure(environment, folder, *how)
            seconds = count * args.rounds * args.frames * live_sherpa.FRAME / live_sherpa.RATE
            figures[f"sherpa-onnx {count}"] = {
                "chunk_seconds": spread(times),
                "speed": seconds / sum(times),
            }
    return figures


def shares(x: float | list[float]) -> str:
    """Write a share, or a difference of two with its interval, in percent."""
    if isinstance(x, float):
        return f"{percent(x)} %"
    value, low, high = (f"{100 * part:+.2f}" for part in x)
    return f"{value} [{low}, {high}]"


@command
def main(argv):
    """Measure, and print."""
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("what", choices=("quality", "capacity"))
    args.add_argument("paths", metavar="PATH", nargs="*", help="of quality: models and a manifest")
    args.add_argument(
        "--beside", nargs="+", default=[], metavar="DIR", help="other models, as files"
    )
    args.add_argument(
        "--join",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="join utterances up to this length",
    )
    args.add_argument("--ctc-weight", type=float, default=0.3, help="of quality")
    args.add_argument("--length-bonus", type=float, default=0.0, help="of quality")
    args.add_argument("--chunk", type=float, nargs="+", metavar="SECONDS", help="of quality")
    args.add_argument(
        "--together",
        type=int,
        default=1,
        metavar="N",
        help="streams of quality at once (default 1)",
    )
    args.add_argument("--most", type=int, help="utterances of quality (default all)")
    args.add_argument("--streams", type=int, nargs="+", default=[1, 8, 16, 32], help="of capacity")
    args.add_argument("--rounds", type=int, default=40, help="chunks of each stream (default 40)")
    args.add_argument("--frames", type=int, default=16, help="of a chunk (default 16: 0.64 s)")
    args.add_argument("--left", type=int, default=4, help="chunks before it that are seen")
    args.add_argument("--threads", type=int, default=os.cpu_count())
    args.add_argument("--mode", default="joint")
    args.add_argument("--finals", default="chunks", choices=FINALS_IN, help="as asr-decode's")
    args.add_argument("--precision", default="fp32", choices=("fp32", "bf16"), help="of capacity")
    args.add_argument("--encoder", default="transformer", choices=("transformer", "conformer"))
    args.add_argument(
        "--wenet", metavar="DIR", help="measure sherpa-onnx, too, with this checkout of WeNet"
    )
    args.add_argument("--sherpa", metavar="DIR", default=".bench/sherpa", help="its environment")
    args.add_argument("--json", metavar="FILE", help="write the figures there")
    args = args.parse_args(argv)
    figures = quality(args) if args.what == "quality" else capacity(args)
    for name, row in figures.items():
        shown = {k: shares(x) if k.startswith(SHARES) else x for k, x in row.items()}
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in shown.items()))
    if args.json:
        Path(args.json).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
