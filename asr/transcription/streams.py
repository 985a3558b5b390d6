"""Live transcription: samples in any portions in, words out while they are spoken.

A stream is a row of segments, which end in silence or, after many seconds without any, between two
words (endpoints.py). The encoder reads a segment chunk by chunk, and a CTC prefix beam search goes on
with it: its best text is a partial result. When the segment has ended, the search that files have
runs over its encoder frames, or over those of the whole segment, which is encoded again: that result
is final. Meanwhile the next segment is read, which begins at a sample of the stream, with fresh
states. So a result depends on the samples from there on alone: neither on how they were divided, nor
on other streams, nor on the hours before.

B streams that are read together, S samples, T frames of features, F mels, T' encoder frames, D model
width, V vocabulary.
"""

import math
import os
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import cast

import numpy as np
import torch
from torch import Tensor

from asr.audio.live import Resampler
from asr.device import autocast, in_threads
from asr.errors import UserError
from asr.models.recognizer import Recognizer
from asr.nn.encoder import WHOLE, Encoder, EncoderState
from asr.ops import BLANK
from asr.search.alignment import align
from asr.search.ctc_beam import BestPrefix, Prefixes
from asr.search.scorer import Hypothesis
from asr.transcript import Event, Final, Partial, Segment, Word
from asr.transcription import streamable
from asr.transcription.encoding import encode_features
from asr.transcription.endpoints import (
    SILENT,
    Endpoint,
    EndpointOptions,
    Frames,
    after_silence,
    between,
)
from asr.transcription.options import SearchOptions
from asr.transcription.pipeline import transcript_of
from asr.transcription.recordings import Recording
from asr.transcription.searcher import Running, Searcher
from asr.transcription.times import Encoded, words_of

NOTHING = BestPrefix([], [], 0)
# final results of a stream that may be searched for before reading should wait
ENDED = 4
LATEST = 1e8  # seconds, three years


@dataclass
class _Segment:
    """What has been read of the segment of a stream that isn't final yet.

    encoder, prefixes   states of one stream
    frames              T' so far
    X, H                of each chunk: (T, F), of the last one with what the next will share, and (T', D)
    shared              features of the last chunk that the next one begins with
    silent              of each chunk, (T',) bool
    best                what is recognized so far
    shown, stable       the last partial text, and its stable part
    """

    encoder: EncoderState
    prefixes: Prefixes
    frames: int = 0
    X: list[Tensor] = field(default_factory=list)
    H: list[Tensor] = field(default_factory=list)
    shared: int = 0
    silent: list[np.ndarray] = field(default_factory=list)
    best: BestPrefix = NOTHING
    shown: str = ""
    stable: str = ""

    def add(self, X: Tensor, H: Tensor, silent: np.ndarray, factor: int) -> None:
        """Add what a chunk gave; factor: features from one encoder frame to the next."""
        self.X.append(X[self.shared :])
        self.H.append(H)
        self.silent.append(silent)
        self.frames += len(H)
        self.shared = len(X) - factor * len(H)


@dataclass(eq=False)
class _Ended:
    """A segment that has ended. Its final result is searched for while the next one is read.

    begin, end, next   seconds in the stream, the last one where the next segment begins
    shown              whether a partial text was
    encoded            H (T', D), X (T, F), if anything was recognized
    final              the result, None if nothing was spoken or shown
    """

    begin: float
    end: float
    next: float
    shown: bool
    encoded: tuple[Tensor, Tensor] | None
    final: Segment | None = None
    is_final: bool = False


class Stream:
    """One stream of samples. `Streams.open` makes it, or, for one alone, `asr.stream`.

    number    of the next final result that is taken, from 0
    ended     whether no samples follow
    """

    def __init__(self, streams: "Streams", position: float, number: int):
        rate = streams.recognizer.sample_rate
        self.number, self.ended = number, False
        self._streams, self._resample = streams, Resampler(rate)
        self._begin = round(position * rate)  # of the segment, in samples
        self._samples, self._arrived = np.zeros(0, np.float32), list[np.ndarray]()
        self._first = 0  # of `_samples`, with which the segment begins
        self._count = 0  # samples from there on
        self._segment = streams.new_segment()
        self._waiting = deque[Partial | _Ended]()
        self._sought = list[_Ended]()  # whose final results may still be searched for

    @property
    def position(self) -> float:
        """Seconds up to which all is final, and taken.

        A stream that is opened there, with this number, goes on alike.
        """
        ended = next((one for one in self._waiting if isinstance(one, _Ended)), None)
        return ended.begin if ended else self._now

    @property
    def is_over(self) -> bool:
        """Whether no samples follow, all have been read, and all events have been taken."""
        return self.ended and not self._waiting and self not in self._streams.running

    @property
    def is_behind(self) -> bool:
        """Whether so many final results are searched for that reading should wait, to save memory."""
        return sum(not ended.is_final for ended in self._sought) >= ENDED

    @property
    def _now(self) -> float:
        """Seconds at which the segment that is read begins."""
        return self._begin / self._streams.recognizer.sample_rate

    def push(self, samples: np.ndarray | Tensor, sample_rate: int | None = None) -> list[Event]:
        """Take the next samples, and return the events that they lead to.

        samples      (n,) from -1 to 1, or int16; any n, 0 too
        sample_rate  Hz; the model's unless given. It may change from one portion to the next
        raises       UserError if the stream has ended, or the samples can't be used; none is taken then
        """
        self.feed(samples, sample_rate)
        self._streams.advance()
        return self.take()

    def finish(self) -> list[Event]:
        """End the stream, and return its last events."""
        self.end()
        self._streams.advance()
        return self.take()

    def feed(self, samples: np.ndarray | Tensor, sample_rate: int | None = None) -> None:
        """Take the next samples, which `Streams.advance` will read; see `push`."""
        if self.ended:
            raise UserError("stream: got samples after its end; open another one")
        rate = self._streams.recognizer.sample_rate if sample_rate is None else sample_rate
        self._append(self._resample(_floats(samples), rate))

    def end(self) -> None:
        """Let nothing follow."""
        if not self.ended:
            self._append(self._resample.flush())
            self.ended = True

    def take(self) -> list[Event]:
        """Take the events since the last time, up to a segment whose final result is still searched for."""
        taken = list[Event]()
        while self._waiting:
            first = self._waiting[0]
            if isinstance(first, Partial):
                taken.append(replace(first, number=self.number))
            elif not first.is_final:
                break
            elif first.final:
                taken.append(Final(self.number, first.final, first.next))
                self.number += 1
            self._waiting.popleft()
        return taken

    def _append(self, samples: np.ndarray) -> None:
        if len(samples):  # an idle pipe gives empty ones for hours
            self._arrived.append(samples)
            self._count += len(samples)

    def _window(self, first: int, size: int) -> np.ndarray:
        """Samples of the segment, as far as there are any."""
        if self._arrived:
            self._samples = np.concatenate([self._samples, *self._arrived])
            self._arrived.clear()
        first += self._first
        return self._samples[first : first + size]

    def _drop_read(self) -> None:
        """Let go of the samples of segments that have ended."""
        if self._first:
            self._samples, self._first = self._samples[self._first :].copy(), 0

    def _tell(self, text: str, stable: str, end: float) -> None:
        """Give a partial result, if it is new; end: of what was read, in seconds from the segment's beginning."""
        segment = self._segment
        if (text, stable) != (segment.shown, segment.stable):
            self._waiting.append(Partial(self.number, self._now, self._now + end, text, stable))
            segment.shown, segment.stable = text, stable

    def _conclude(self, frames: int, after: int) -> _Ended:
        """End the segment after some encoder frames, and begin the next one after some samples."""
        streams, segment, begin = self._streams, self._segment, self._now
        self._first, self._begin = self._first + after, self._begin + after
        self._count = max(0, self._count - after)
        self._segment = streams.new_segment()
        spoken = segment.best.tokens or segment.shown
        # CTC may emit a word that is cut off when it is over; no time lies beyond the cut
        end = min(begin + frames * streams.recognizer.frame_seconds, self._now)
        encoded = streams.encoded(segment, frames) if spoken else None
        ended = _Ended(begin, end, self._now, bool(segment.shown), encoded, is_final=not spoken)
        self._waiting.append(ended)
        self._sought = [one for one in (*self._sought, ended) if not one.is_final]
        return ended


class Streams:
    """Streams side by side: what has arrived is computed together, and each stream is as if alone.

    recognizer  whose encoder has chunks
    options     how the finals are searched, and with n-gram and hotwords the partial results; its
                chunk is the latency: the longest of the training, if that isn't "whole", unless given
    endpoints   when segments end, and what is searched then
    precision   "fp32" or "bf16"
    searcher    made of the recognizer, options and precision; None makes one
    raises      UserError if the recognizer can't read streams
    """

    def __init__(
        self,
        recognizer: Recognizer,
        options: SearchOptions = SearchOptions(),  # noqa: B008 - frozen
        endpoints: EndpointOptions = EndpointOptions(),  # noqa: B008
        precision: str = "fp32",
        searcher: Searcher | None = None,
    ):
        streamable.check(recognizer)
        self.recognizer, self.endpoints, self.precision = recognizer, endpoints, precision
        self.searcher = searcher or Searcher(recognizer, options, precision)
        self.chunk = streamable.chunk_of(recognizer, self.searcher.chunk)
        streamable.check_finals(recognizer, endpoints.finals)
        self.longest = min(endpoints.longest, recognizer.longest)  # seconds of a segment
        self.prefixes = self.searcher.prefix_beam()
        self._finals = Running[_Ended](self.searcher, prompt=True)
        self.running: list[Stream] = []
        self._encoder = cast(Encoder, recognizer.model.encoder)  # which has chunks
        self._device = self.searcher.device
        fbank, subsampling = recognizer.frontend.extractor, self._encoder.subsampling
        self._hop = subsampling.factor * fbank.shift_samples  # samples of an encoder frame
        features = subsampling.frames(self.chunk)
        self._most = (features - 1) * fbank.shift_samples + fbank.frame_samples  # of a chunk

    def open(self, position: float = 0.0, number: int = 0) -> Stream:
        """Begin a stream, or resume one at the position and the number that it had.

        raises   UserError if they are none
        """
        if not (isinstance(position, Real) and 0 <= position <= LATEST):
            expected = f"expected seconds from 0 to {LATEST:g}"
            raise UserError(f"got {position!r}, {expected}", argument="position")
        if not (isinstance(number, Integral) and number >= 0):
            raise UserError(f"got {number!r}, expected a whole number from 0", argument="number")
        stream = Stream(self, position, number)
        self.running.append(stream)
        return stream

    def forget(self, stream: Stream) -> None:
        """Leave a stream that nobody listens to any more; no further events come."""
        self.running = [other for other in self.running if other is not stream]
        self._finals.drop({one for one in stream._waiting if isinstance(one, _Ended)})

    def new_segment(self) -> _Segment:
        """Make the states of a segment of which nothing has been read."""
        return _Segment(self._encoder.start(1, self.chunk), self.prefixes.start(1, self._device))

    @property
    def is_busy(self) -> bool:
        """Whether streams are open, or final results are still searched for."""
        return bool(self.running) or len(self._finals) > 0

    @torch.no_grad()
    def advance(self) -> None:
        """Read all chunks that are complete, and search until all is final that has ended.

        The events wait in their streams. However much has arrived, few segments wait for the search.
        """
        while complete := self._complete():
            if near := {stream: n for stream, n in complete.items() if not stream.is_behind}:
                self._read(near)
            else:
                self._search_all()
        self.read()
        self._search_all()

    @torch.no_grad()
    def read(self) -> None:
        """Read all chunks that are complete; `search` finds the final results of segments that end."""
        while complete := self._complete():
            self._read(complete)
        for stream in self.running:
            stream._drop_read()
        ended = [s for s in self.running if s.ended]
        self.running = [s for s in self.running if not s.ended]
        self._conclude([(s, s._segment.frames, s._count) for s in ended])

    @torch.no_grad()
    def search(self) -> bool:
        """Search on by one label for final results; return whether there is more to do."""
        if found := self._finals.step():
            encoded = Encoded.of([cast(tuple, ended.encoded) for ended, _ in found])
            words = self.searcher.word_times(encoded, [nbest[0] for _, nbest in found])
            for (ended, nbest), own in zip(found, words, strict=True):
                ended.final, ended.is_final = self._final(ended, nbest, own), True
        return len(self._finals) > 0

    def _search_all(self) -> None:
        while self.search():
            pass

    def _complete(self) -> dict[Stream, int]:
        """Streams that have another complete chunk, and its samples."""
        return {stream: n for stream in self.running if (n := self._ready(stream))}

    def _ready(self, stream: Stream) -> int:
        """Samples of the chunk that can be read next; fewer at the end of the stream, or 0."""
        done = stream._segment.frames
        samples = stream._count - done * self._hop
        if samples >= self._most:
            return self._most
        if not stream.ended:
            return 0
        shortest = self.recognizer.shortest_samples
        least = shortest if done else self.recognizer.frontend.extractor.frame_samples
        # a stream that is shorter than an encoder frame is padded with silence, as a file is
        return max(samples, shortest) if samples >= least else 0

    def _read(self, chunks: Mapping[Stream, int]) -> None:
        """Read a chunk of each stream, of some samples, and tell what is recognized."""
        streams, sizes = list(chunks), list(chunks.values())
        segments = [stream._segment for stream in streams]
        waveforms = torch.zeros(len(streams), max(sizes))
        for row, stream, size in zip(waveforms, streams, sizes, strict=True):
            samples = stream._window(stream._segment.frames * self._hop, size)
            row[: len(samples)] = torch.from_numpy(samples)
        X, H, lens, encoders = self._encode(waveforms, sizes, [s.encoder for s in segments])
        prefixes, best, silent = self._recognize(H, lens, [s.prefixes for s in segments])
        factor, frames = self._encoder.subsampling.factor, self._encoder.subsampling.frames
        for n, (segment, T) in enumerate(zip(segments, lens, strict=True)):
            segment.encoder, segment.prefixes, segment.best = encoders[n], prefixes[n], best[n]
            segment.add(X[n, : frames(T)], H[n, :T], silent[n, :T], factor)
        ends = {stream: self._endpoint(stream._segment) for stream in streams}
        for stream, end in ends.items():
            if not end:
                self._tell(stream)
        self._conclude([(s, end.end, end.next * self._hop) for s, end in ends.items() if end])

    def _encode(
        self, waveforms: Tensor, sizes: Sequence[int], states: Sequence[EncoderState]
    ) -> tuple[Tensor, Tensor, list[int], list[EncoderState]]:
        """Encode a chunk of each: waveforms (B, S) → X (B, T, F), H (B, T', D) and its lengths, the states after it.

        On a CPU, each thread takes a group of streams, so that none waits for another after each operation.
        """
        B, device = len(sizes), self._device
        parts = min(B, torch.get_num_threads()) if device.type == "cpu" else 1
        edges = [B * n // parts for n in range(parts + 1)]
        lens, found = torch.tensor(sizes, device=device), dict[int, tuple[Tensor, Tensor, list]]()

        def compute(n: int) -> None:
            some = slice(edges[n], edges[n + 1])
            with autocast(device, self.precision):  # which is a thread's own
                X, X_lens = self.recognizer.frontend(waveforms[some].to(device), lens[some])
                state = EncoderState.stack(states[some])
                H, state = self._encoder.step_chunk(X, X_lens, state)
            found[n] = X, H, state.unstack()

        in_threads(compute, range(parts))
        X, H, after = zip(*(found[n] for n in range(parts)), strict=True)
        frames = [self.recognizer.encoder_frames(size) for size in sizes]
        return torch.cat(X), torch.cat(H), frames, [state for part in after for state in part]

    def _recognize(
        self, H: Tensor, lens: Sequence[int], states: Sequence[Prefixes]
    ) -> tuple[list[Prefixes], list[BestPrefix], np.ndarray]:
        """Let the prefixes of each read H (B, T', D): those, the best, and which frames are silent, (B, T') bool."""
        log_probs = self.searcher.ctc_log_probs(H)  # (B, T', V)
        state = self.prefixes.stack(states)
        state = self.prefixes.step(log_probs, torch.tensor(lens, device=H.device), state)
        silent = log_probs[..., BLANK] > math.log(SILENT)
        return self.prefixes.unstack(state), self.prefixes.best(state), silent.cpu().numpy()

    def _endpoint(self, segment: _Segment) -> Endpoint | None:
        """Decide whether a segment has ended, and where."""
        seconds, silent = self.recognizer.frame_seconds, np.concatenate(segment.silent)
        best, T = segment.best, segment.frames
        spoken = best.frames[-1] + 1 if best.frames else 0
        found = after_silence(silent, spoken, seconds, self.endpoints)
        return found if found or T * seconds < self.longest else self._cut(segment)

    def _cut(self, segment: _Segment) -> Endpoint:
        """Decide where to cut a segment that is too long: between two words, or else two tokens."""
        tokens, T, seconds = segment.best.tokens, segment.frames, self.recognizer.frame_seconds
        encoded, found = Encoded.of([self.encoded(segment, T)]), None
        emitted = self._emitted(encoded, tokens)
        heard = Hypothesis(tokens, 0.0, confidences=[1.0] * len(tokens))
        [words] = self.searcher.word_times(encoded, [heard])
        if words:
            parts = words_of(tokens, self.recognizer.tokenizer)
            frames = [(emitted[part.first][0], emitted[part.end - 1][1]) for part in parts]
            found = between([(w.start, w.end) for w in words], frames, T, seconds)
        spans = [(start * seconds, end * seconds) for start, end in emitted]
        return found or between(spans, emitted, T, seconds) or Endpoint(T, T)

    def _emitted(self, encoded: Encoded, tokens: Sequence[int]) -> list[Frames]:
        """Find where CTC emits the tokens of a segment."""
        Y = torch.tensor([tokens], dtype=torch.long, device=self._device)
        Y_lens = torch.tensor([len(tokens)], device=self._device)
        found = align(self.searcher.ctc_log_probs(encoded.H), encoded.H_lens, Y, Y_lens)
        return list(zip(found.starts[0].tolist(), found.ends[0].tolist(), strict=True))

    def encoded(self, segment: _Segment, frames: int) -> tuple[Tensor, Tensor]:
        """The first encoder frames of a segment, (T', D), and what they were made of, (T, F)."""
        features, X = self._encoder.subsampling.frames(frames), torch.cat(segment.X)
        H = self._whole(X) if self.endpoints.finals == "whole" else torch.cat(segment.H)
        return H[:frames], X[:features]

    def _whole(self, X: Tensor) -> Tensor:
        """Encode all features of a segment at once, without chunks: (T, F) → (T', D)."""
        X_lens = torch.tensor([len(X)], device=X.device)
        return encode_features(self._encoder, X[None], X_lens, self.precision, WHOLE).H[0]

    def _tell(self, stream: Stream) -> None:
        decode, best = self.recognizer.tokenizer.decode, stream._segment.best
        text, stable = decode(best.tokens), decode(best.tokens[: best.stable])
        seconds = stream._segment.frames * self.recognizer.frame_seconds
        stream._tell(text, os.path.commonprefix([text, stable]), seconds)

    def _conclude(self, ends: Sequence[tuple[Stream, int, int]]) -> None:
        """Let segments end, and the search for their final results begin, all together.

        ends   stream, encoder frames of its segment, samples after which the next one begins
        """
        ended = [stream._conclude(frames, after) for stream, frames, after in ends]
        if spoken := [one for one in ended if one.encoded]:
            encoded = Encoded.of([one.encoded for one in spoken if one.encoded])
            self._finals.add(spoken, encoded.H, encoded.H_lens)

    def _final(self, ended: _Ended, nbest: list[Hypothesis], words: list[Word]) -> Segment | None:
        """Make the result; None where nothing was spoken or shown."""
        part = Recording("", "", ended.begin, ended.end - ended.begin)
        found = transcript_of(part, nbest, self.recognizer, words)
        if not (found.text or ended.shown):
            return None
        best = found.nbest[0]
        whole = Segment(ended.begin, ended.end, found.text, best.confidence, (), found.nbest)
        return found.segments[0] if found.segments else whole


def _floats(samples: np.ndarray | Tensor) -> np.ndarray:
    """Return (n,) float32."""
    if isinstance(samples, Tensor):
        samples = samples.detach().cpu()
        samples = samples.float() if samples.is_floating_point() else samples  # NumPy has no bf16
    array = np.asarray(samples)
    if array.dtype == np.int16:
        array = array.astype(np.float32) / 32768
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.floating):
        got = f"{array.dtype} of shape {array.shape}"
        raise UserError(f"samples: got {got}, expected (n,) from -1 to 1, or int16")
    with np.errstate(over="ignore"):
        array = array.astype(np.float32, copy=False)
    if not np.isfinite(array).all():
        raise UserError("samples: got NaN or infinite ones, expected numbers from -1 to 1")
    return array
