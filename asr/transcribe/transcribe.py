"""Recordings in, transcripts out: length-sorted batches, read ahead while the model works, results in input order."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from asr import audio
from asr.errors import UserError
from asr.models.recognizer import Recognizer
from asr.search.attention import AttentionScorer
from asr.search.beam import beam_search
from asr.search.ctc_prefix import CTCPrefixScorer
from asr.search.greedy import attention_greedy, ctc_greedy
from asr.search.hypothesis import Hypothesis
from asr.transcribe.sources import Source

MODES = ("joint", "attention", "attention-greedy", "ctc-greedy")
WINDOW_SECONDS = 3600.0  # of audio, within which utterances are sorted by length


@dataclass(frozen=True)
class SearchOptions:
    """How to search.

    mode        "joint" beam search with attention and CTC prefix scores, "attention" beam search without CTC,
                "attention-greedy", "ctc-greedy"
    beam        hypotheses of an utterance
    ctc_weight  of the joint search; attention has 1 - ctc_weight
    nbest       hypotheses returned, at most
    """

    mode: Literal["joint", "attention", "attention-greedy", "ctc-greedy"] = "joint"
    beam: int = 10
    ctc_weight: float = 0.3
    nbest: int = 1

    def __post_init__(self):
        if self.mode not in MODES:
            raise UserError(f"mode: got {self.mode!r}, expected one of {', '.join(MODES)}")
        if self.beam < 1 or not 1 <= self.nbest <= self.beam:
            raise UserError(f"beam and nbest: got {self.beam} and {self.nbest}, expected 1 <= nbest <= beam")
        if not 0.0 <= self.ctc_weight <= 1.0:
            raise UserError(f"ctc-weight: got {self.ctc_weight}, expected 0 to 1")


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
    progress       called with the audio seconds of each finished batch
    """
    clock = clock or Clock()
    for window in _windows(sources):
        results: dict[Source, Transcript] = {}
        started = time.perf_counter()
        for batch, waveforms in _read_ahead(_batches(window, batch_seconds), recognizer.sample_rate):
            nbests = recognize(recognizer, waveforms, options, precision)
            for source, nbest in zip(batch, nbests, strict=True):
                texts = [recognizer.tokenizer.decode(h.tokens) for h in nbest]
                results[source] = Transcript(source, texts[0], nbest, texts)
            progress(sum(s.duration for s in batch))
        clock.wall += time.perf_counter() - started
        clock.audio += sum(s.duration for s in window)
        yield from (results[source] for source in window)


@torch.no_grad()
def recognize(
    recognizer: Recognizer, waveforms: Sequence[np.ndarray], options: SearchOptions, precision: str = "fp32"
) -> list[list[Hypothesis]]:
    """Search the n-best lists of a batch of waveforms, (samples,) float32 at the model's rate each."""
    device = next(recognizer.parameters()).device
    shortest = recognizer.shortest_samples  # a shorter one is filled up with silence
    lens = torch.tensor([max(len(w), shortest) for w in waveforms])
    padded = torch.zeros(len(waveforms), int(lens.max()))
    for row, waveform in zip(padded, waveforms, strict=True):
        row[: len(waveform)] = torch.from_numpy(waveform)
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
        H, H_lens = recognizer.encode(padded.to(device), lens.to(device))  # (B, T', D)
        return search(recognizer, H, H_lens, options)


def search(
    recognizer: Recognizer, H: torch.Tensor, H_lens: torch.Tensor, options: SearchOptions
) -> list[list[Hypothesis]]:
    """Search encoder outputs H (B, T', D), H_lens (B,) as the options say."""
    model = recognizer.model
    if options.mode == "ctc-greedy":
        return [[h] for h in ctc_greedy(model.ctc_log_probs(H), H_lens)]
    if options.mode == "attention-greedy":
        state = model.decoder.start(H, H_lens)
        return [[h] for h in attention_greedy(model.decoder.step, state, len(H), model.sos_eos, H_lens)]
    ctc_weight = options.ctc_weight if options.mode == "joint" else 0.0
    scorers = {"attention": (AttentionScorer(model.decoder, H, H_lens), 1 - ctc_weight)}
    if ctc_weight:
        scorers["ctc"] = (CTCPrefixScorer(model.ctc_log_probs(H), H_lens, model.sos_eos), ctc_weight)
    nbests = beam_search(scorers, H_lens, model.sos_eos, options.beam, options.nbest)
    return [nbest or [Hypothesis([], -float("inf"), ended=False)] for nbest in nbests]


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
    """A transcript as a JSON object: id, text, start, duration, n-best list with scores by scorer and tokens."""
    nbest = [
        {
            "text": text,
            "score": h.score if math.isfinite(h.score) else None,
            "scores": h.scores,
            "tokens": h.tokens,
            "complete": h.ended,
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
