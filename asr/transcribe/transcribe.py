"""Recordings in, transcripts out: length-sorted batches, read ahead while the model works, results in input order."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from asr import audio
from asr.models.recognizer import Recognizer
from asr.search.hypothesis import Hypothesis
from asr.transcribe.options import SearchOptions
from asr.transcribe.searcher import Searcher
from asr.transcribe.sources import Source

WINDOW_SECONDS = 3600.0  # of audio, within which utterances are sorted by length


@dataclass(frozen=True)
class Transcript:
    """The result of one utterance: its text, and the n-best list, best first, with texts."""

    source: Source
    text: str
    hypotheses: list[Hypothesis]
    texts: list[str]


@dataclass
class Clock:
    """Audio seconds done, and wall seconds they took."""

    audio: float = 0.0
    wall: float = 0.0

    @property
    def rtf(self) -> float:
        """Real-time factor: wall seconds per second of audio."""
        return self.wall / max(self.audio, 1e-9)


def transcribe(
    recognizer: Recognizer,
    sources: Sequence[Source],
    options: SearchOptions = SearchOptions(),  # noqa: B008 - frozen
    batch_seconds: float = 120.0,
    precision: str = "fp32",
    clock: Clock | None = None,
    progress: Callable[[float], None] = lambda seconds: None,
) -> Iterator[Transcript]:
    """Transcribe utterances, in the order given.

    batch_seconds  of padded audio a batch; in fp32 it changes the speed, not the texts
    precision      "fp32" or "bf16"
    clock          when given, is advanced
    progress       called with the audio seconds of each finished utterance
    """
    clock = clock or Clock()
    searcher = Searcher(recognizer, options, precision)
    for window in _windows(sources):
        results: dict[Source, Transcript] = {}
        started = time.perf_counter()
        for source, nbest in searcher.stream(encoded(recognizer, window, batch_seconds, precision)):
            texts = [recognizer.tokenizer.decode(h.tokens) for h in nbest]
            results[source] = Transcript(source, texts[0], nbest, texts)
            progress(source.duration)
        clock.wall += time.perf_counter() - started
        clock.audio += sum(s.duration for s in window)
        yield from (results[source] for source in window)


def encoded(
    recognizer: Recognizer, window: Sequence[Source], batch_seconds: float, precision: str
) -> Iterator[tuple[list[Source], torch.Tensor, torch.Tensor]]:
    """Batches of utterances, the longest first, and their encoder outputs H (B, T', D), H_lens (B,)."""
    for batch, waveforms in _read_ahead(_batches(window, batch_seconds), recognizer.sample_rate):
        yield batch, *encode(recognizer, waveforms, precision)


@torch.no_grad()
def encode(
    recognizer: Recognizer, waveforms: Sequence[np.ndarray], precision: str = "fp32"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Encode a batch of waveforms, (samples,) float32 at the model's rate each → H (B, T', D), H_lens (B,)"""
    device = next(recognizer.parameters()).device
    shortest = recognizer.shortest_samples  # a shorter one is filled up with silence
    lens = torch.tensor([max(len(w), shortest) for w in waveforms])
    padded = torch.zeros(len(waveforms), int(lens.max()))
    for row, waveform in zip(padded, waveforms, strict=True):
        row[: len(waveform)] = torch.from_numpy(waveform)
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
        return recognizer.encode(padded.to(device), lens.to(device))  # (B, T', D)


def _windows(sources: Sequence[Source]) -> Iterator[list[Source]]:
    window, seconds = [], 0.0
    for source in sources:
        window.append(source)
        seconds += source.duration
        if seconds >= WINDOW_SECONDS:
            yield window
            window, seconds = [], 0.0
    if window:
        yield window


def _batches(window: Sequence[Source], batch_seconds: float) -> list[list[Source]]:
    """Utterances of like length together, the longest first."""
    batches: list[list[Source]] = []
    for source in sorted(window, key=lambda s: -s.duration):
        if batches and batches[-1][0].duration * (len(batches[-1]) + 1) <= batch_seconds:
            batches[-1].append(source)
        else:
            batches.append([source])
    return batches


def _read_ahead(batches: Sequence[list[Source]], rate: int) -> Iterator[tuple[list[Source], list[np.ndarray]]]:
    """Read the next batch's sound files in a thread while the model works on this one."""

    def read(batch: list[Source]) -> list[np.ndarray]:
        return [audio.load(s.path, rate, s.start, s.duration) for s in batch]

    with ThreadPoolExecutor(1) as pool:
        ahead = [pool.submit(read, batch) for batch in batches[:2]]
        for n, batch in enumerate(batches):
            waveforms = ahead.pop(0).result()
            if n + 2 < len(batches):
                ahead.append(pool.submit(read, batches[n + 2]))
            yield batch, waveforms


def as_json(transcript: Transcript) -> dict:
    """A transcript as a JSON object: id, text, start, duration, n-best list with scores, tokens, confidences."""
    nbest = [
        {
            "text": text,
            "score": h.score if math.isfinite(h.score) else None,
            "scores": {name: score if math.isfinite(score) else None for name, score in h.scores.items()},
            "tokens": h.tokens,
            "reason": h.reason,
            "confidence": h.confidence if math.isfinite(h.confidence) else None,
            "confidences": h.confidences,
        }
        for text, h in zip(transcript.texts, transcript.hypotheses, strict=True)
    ]
    source = transcript.source
    return {
        "id": source.id,
        "text": transcript.text,
        "start": source.start,
        "duration": source.duration,
        "nbest": nbest,
    }
