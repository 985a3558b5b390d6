"""One engine for all: whatever recordings and streams wait share the next batch.

A thread owns the model; other threads hand it work and get futures and events. It goes on in turns:
streams read what has arrived, waiting pieces of recordings enter the search, and the search goes on
by one label. Utterances leave it when they are done, each with the result that it would have alone.
A few threads read the sound files ahead.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import soundfile
import torch

from asr.device import tuned
from asr.errors import UserError
from asr.logging import logger
from asr.memory import is_oom
from asr.models.recognizer import Recognizer
from asr.serving.fairness import FairQueue
from asr.transcript import Event, Segment, Transcript
from asr.transcription.endpoints import EndpointOptions
from asr.transcription.long import FAR, Joint, Pieces, cut_long
from asr.transcription.options import BATCH_SECONDS, SearchOptions
from asr.transcription.pipeline import (
    TOO_LONG,
    encode,
    load_waveform,
    transcripts,
    waveform_of,
)
from asr.transcription.recordings import Recording, one_recording
from asr.transcription.searcher import Running, Searcher
from asr.transcription.streams import Stream, Streams

TURN = 1.0  # seconds of a stream that are read at once, so that others aren't kept waiting
ENTERING = {"cpu": 24.0, "cuda": 500.0}  # seconds that are encoded at once, likewise
READERS = {"cpu": 2, "cuda": 8}  # threads
AHEAD = 4  # pieces of a recording that are read before they are searched
SEARCHERS = 32  # with different options that are kept
ANEW = {"mode", "chunk", "lm"}  # options that a searcher can't be tuned to
Listener = Callable[[Event | Exception | None], None]


class Closed(Exception):
    """The engine takes nothing new, because it is closing, or gave up what it had."""


class Full(Exception):
    """As much waits as may wait."""


@dataclass(frozen=True)
class Bounds:
    """What an engine may have at once.

    requests        recordings that wait or are searched
    seconds         of them
    streams         that are open
    batch_seconds   of recordings that are searched together; None: 120 on a CPU, 2,000 on a GPU
    """

    requests: int = 64
    seconds: float = 24 * 3600.0
    streams: int = 16
    batch_seconds: float | None = None


@dataclass(eq=False)
class _Part:
    """A recording, or a piece of one."""

    job: _Job
    recording: Recording
    waveform: Future[np.ndarray | UserError]

    @property
    def seconds(self) -> float:
        return self.recording.duration


class _Job:
    """A recording of a client, and what is known of it so far."""

    def __init__(self, client: Hashable, recording: Recording, options: SearchOptions):
        self.client, self.recording, self.options = client, recording, options
        self.future: Future[Transcript] = Future()
        self.progress: Callable[[list[Segment]], None] | None = None
        self.temporary: Path | None = None
        self.waveform: np.ndarray | None = None
        self.pieces: Pieces | None = None
        self.unread = deque[Recording]()
        self.ahead = deque[_Part]()
        self.results = dict[Recording, Transcript]()
        self._joint, self._joined, self._shown = Joint(), 0, 0
        self._lock, self._settled = threading.Lock(), False

    def settle(self, result: Transcript | Exception) -> None:
        """Give the future its result or its exception, unless it is done or was canceled."""
        with self._lock:
            settled, self._settled = self._settled, True
        if settled or not self.future.set_running_or_notify_cancel():
            return
        if isinstance(result, Exception):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)

    def is_ready(self) -> bool:
        """Whether its next part has been read."""
        return bool(self.ahead) and self.ahead[0].waveform.done()

    def add(self, recording: Recording, result: Transcript) -> Transcript | None:
        """Take the result of a part; return that of the whole once all are there."""
        self.results[recording] = result
        if not self.pieces:
            return result
        if self.progress:
            self._show(self.progress)
        if len(self.results) < len(self.pieces.parts):
            return None
        whole = self.pieces.result(self.results)
        assert isinstance(whole, Transcript)
        return whole

    def _show(self, progress: Callable[[list[Segment]], None]) -> None:
        """Tell the segments that don't change any more, in order."""
        assert self.pieces
        pieces, parts, joint = self.pieces.pieces, self.pieces.parts, self._joint
        while self._joined < len(parts) and parts[self._joined] in self.results:
            joint.add(pieces[self._joined], self.results[parts[self._joined]])
            self._joined += 1
        left = pieces[self._joined :]
        settled = len(joint.segments) - bool(joint.segments and left and left[0].overlap)
        if new := [s for s in joint.segments[self._shown : settled] if s.text]:
            progress(new)
        self._shown = max(self._shown, settled)


class _Group:
    """Utterances that are searched with the same options."""

    def __init__(self, searcher: Searcher):
        self.searcher = searcher
        self.running = Running[_Part](searcher)
        self.encoded = dict[_Part, tuple[torch.Tensor, torch.Tensor]]()  # H (T', D), X (T, F)

    @property
    def seconds(self) -> float:
        return sum(part.seconds for part in self.encoded)

    def add(self, parts: Sequence[_Part]) -> None:
        """Encode some, and let them enter the search."""
        searcher, waveforms = self.searcher, [part.waveform.result() for part in parts]
        waves = [wave for wave in waveforms if isinstance(wave, np.ndarray)]
        self.encoded |= dict.fromkeys(parts, (torch.empty(0), torch.empty(0)))
        encoded = encode(searcher.recognizer, waves, searcher.precision, searcher.chunk)
        self.encoded |= zip(parts, encoded.rows(), strict=True)
        self.running.add(parts, encoded.H, encoded.H_lens)

    def step(self) -> list[tuple[_Part, Transcript]]:
        """Search on by one label; return the transcripts of those that are done."""
        if not (found := self.running.step()):
            return []
        rows = [self.encoded[part] for part, _ in found]
        timed = rows if self.searcher.recognizer.has_times else None
        nbests = [(part.recording, nbest) for part, nbest in found]
        made = [transcript for _, transcript in transcripts(self.searcher, nbests, timed)]
        for part, _ in found:
            del self.encoded[part]
        return [(part, result) for (part, _), result in zip(found, made, strict=True)]

    def drop(self, job: _Job) -> None:
        """Leave the parts of a job."""
        if unwanted := {part for part in self.encoded if part.job is job}:
            self.running.drop(unwanted)
            self.encoded = {p: rows for p, rows in self.encoded.items() if p not in unwanted}


class Live:
    """A stream of a client; any thread may use it. `Engine.open` makes it.

    listen    is called in the engine's thread, and must return at once: with each event, with an
              exception if the stream fails, and with None at its end
    """

    def __init__(self, engine: Engine, stream: Stream, streams: Streams, listen: Listener):
        self.listen, self.stream, self.streams = listen, stream, streams
        self._engine, self._rate = engine, streams.recognizer.sample_rate
        self._arrived = deque[tuple[np.ndarray, int]]()
        self._ended = False

    @property
    def backlog(self) -> float:
        """Seconds that have been fed, and not yet been read."""
        return sum(len(samples) / rate for samples, rate in list(self._arrived))

    def feed(self, samples: np.ndarray, sample_rate: int | None = None) -> None:
        """Take the next samples, (n,) int16, or float from -1 to 1, at a rate in Hz; the model's unless given."""
        rate = sample_rate or self._rate
        size = max(1, round(TURN * rate))
        for begin in range(0, len(samples), size):
            self._arrived.append((samples[begin : begin + size], rate))
        self._engine.wake()

    def end(self) -> None:
        """Let nothing follow; the last events will come, and then None."""
        self._ended = True
        self._engine.wake()

    def close(self) -> None:
        """Forget it: the client has left. No more events come."""
        with contextlib.suppress(Closed):
            self._engine.post(lambda: self._engine.forget(self))

    def take(self) -> bool:
        """Give the stream what has arrived, a turn's worth; tell whether there was anything."""
        if self._arrived:
            self.stream.feed(*self._arrived[0])
            self._arrived.popleft()
        elif self._ended and not self.stream.ended:
            self.stream.end()
        else:
            return False
        return True


class Engine:
    """Transcribe recordings and streams of many clients with one model.

    recognizer  of `asr.load`; nothing else may use it while the engine runs
    options     how to search, unless a request says otherwise
    endpoints   when segments of streams end, unless a stream says otherwise
    precision   "fp32" or "bf16"
    bounds      what it may have at once
    watch       if given, is called in the engine's thread after each step of the search, with the
                number of utterances that it had and the seconds that it took
    """

    def __init__(
        self,
        recognizer: Recognizer,
        options: SearchOptions = SearchOptions(),  # noqa: B008 - frozen
        endpoints: EndpointOptions = EndpointOptions(),  # noqa: B008
        precision: str = "fp32",
        bounds: Bounds = Bounds(),  # noqa: B008
        watch: Callable[[int, float], None] | None = None,
    ):
        self.recognizer, self.options, self.endpoints = recognizer, options, endpoints
        self.precision, self.bounds, self.watch = precision, bounds, watch
        searcher = Searcher(recognizer, options, precision)
        self.device = searcher.device.type
        self._searchers = OrderedDict({options: searcher})
        self._searchers_lock = threading.Lock()
        self._batch_seconds = bounds.batch_seconds or BATCH_SECONDS[self.device]
        self._longest = recognizer.longest if recognizer.has_times else float("inf")
        self._condition = threading.Condition()
        self._posted = deque[Callable[[], None]]()
        self._awake = self._closing = False
        self._jobs = dict[_Job, None]()
        self._queue = FairQueue[_Job]()
        self._groups = dict[SearchOptions, _Group]()
        self._streams = dict[tuple[SearchOptions, EndpointOptions], Streams]()
        self._lives = list[Live]()
        self._pool = ThreadPoolExecutor(READERS[self.device], "asr-reader")
        self._cutters = ThreadPoolExecutor(1, "asr-cutter")  # hours of audio hold up no short one
        self._folder = tempfile.TemporaryDirectory(prefix="asr-engine-")
        self._thread = threading.Thread(target=self._run, name="asr-engine", daemon=True)
        self._thread.start()

    def submit(
        self,
        audio: str | os.PathLike[str] | np.ndarray | torch.Tensor | Recording,
        options: SearchOptions | None = None,
        *,
        sample_rate: int | None = None,
        client: Hashable = None,
        progress: Callable[[list[Segment]], None] | None = None,
    ) -> Future[Transcript]:
        """Transcribe a recording; the result is that of `asr.transcribe`.

        audio        a sound file, or samples (n,) as numbers from -1 to 1
        sample_rate  Hz, of samples; the model's unless given
        client       whose it is; clients take turns
        progress     is called in the engine's thread with segments of a long recording as soon as
                     all before them are known
        returns      a future; canceling it leaves the rest undone. Its exception is a UserError if
                     the recording can't be transcribed, Closed if the engine was closed before
        raises       UserError if the file has no readable header, or the samples can't be used; Full
                     if too much waits; Closed if the engine is closing
        """
        if isinstance(audio, str | os.PathLike):
            audio = one_recording(audio, "submit them one by one")
        waveform = None
        if not isinstance(audio, Recording):
            rate = sample_rate or self.recognizer.sample_rate
            waveform = waveform_of(audio, rate, self.recognizer)
            audio = Recording("", "", 0.0, len(waveform) / self.recognizer.sample_rate)
        job = _Job(client, audio, options or self.options)
        job.waveform, job.progress = waveform, progress
        self._accept(job)
        job.future.add_done_callback(lambda _: self._when_done(job))
        is_long = audio.duration > FAR * self._longest
        (self._cutters if is_long else self._pool).submit(self._prepare, job)
        return job.future

    async def transcribe(self, *audio: object, **more: object) -> Transcript:
        """Await the result of `submit`, with the same arguments; canceling this cancels that."""
        future = await asyncio.to_thread(self.submit, *audio, **more)  # type: ignore[arg-type]
        return await asyncio.wrap_future(future)

    def open(
        self,
        listen: Listener,
        options: SearchOptions | None = None,
        endpoints: EndpointOptions | None = None,
        position: float = 0.0,
        number: int = 0,
    ) -> Future[Live]:
        """Begin a stream, or resume one at the position and the number of its last `asr.Final`.

        returns  a future, whose exception is a UserError if the model can't read streams, or Full
        raises   Closed if the engine is closing
        """
        future: Future[Live] = Future()
        key = (options or self.options, endpoints or self.endpoints)

        def work() -> None:
            try:
                if len(self._lives) >= self.bounds.streams:
                    raise Full(f"{len(self._lives)} streams are open, as many as may be")
                streams = self._streams_of(*key)
                live = Live(self, streams.open(position, number), streams, listen)
            except Exception as error:
                future.set_exception(error)
            else:
                self._lives.append(live)
                future.set_result(live)

        self.post(work)
        return future

    def warm_up(self) -> None:
        """Search a second of noise, so that the first client needn't wait for what is made once."""
        noise = np.random.default_rng(0).normal(0, 0.01, self.recognizer.sample_rate)
        self.submit(noise.astype(np.float32)).result()

    @property
    def load(self) -> tuple[int, float, int, int]:
        """Recordings that wait or are searched, their seconds, utterances in the search, open streams."""
        jobs, groups = list(self._jobs), list(self._groups.values())
        seconds = sum(job.recording.duration for job in jobs)
        return len(jobs), seconds, sum(len(g.running) for g in groups), len(self._lives)

    def close(self, seconds: float = 30.0) -> None:
        """Take nothing new, and finish what runs; give up what isn't done after some seconds."""
        self._closing = True
        self.wake()
        self._thread.join(seconds)
        for job in list(self._jobs):
            job.settle(Closed("the server is shutting down"))
        self._stopped = True
        self.wake()
        self._thread.join(5)
        for pool in (self._pool, self._cutters):
            pool.shutdown(wait=False, cancel_futures=True)
        self._folder.cleanup()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wake(self) -> None:
        """Have the engine's thread look for work."""
        with self._condition:
            self._awake = True
            self._condition.notify()

    def post(self, work: Callable[[], None]) -> None:
        """Have the engine's thread do something.

        raises   Closed if the engine is closing
        """
        if self._closing:
            raise Closed("the server is shutting down")
        self._posted.append(work)
        self.wake()

    _stopped = False

    # of any thread

    def _accept(self, job: _Job) -> None:
        """Count a recording in, if there is room."""
        with self._condition:
            if self._closing:
                raise Closed("the server is shutting down")
            waiting = sum(other.recording.duration for other in self._jobs)
            if len(self._jobs) >= self.bounds.requests:
                raise Full(f"{len(self._jobs)} recordings wait, as many as may")
            if self._jobs and waiting + job.recording.duration > self.bounds.seconds:
                raise Full(f"{waiting / 3600:.1f} hours of audio wait; ask again later")
            self._jobs[job] = None

    def _when_done(self, job: _Job) -> None:
        """Count it out, and forget what is left of it; any thread may have canceled it."""
        with self._condition:
            self._jobs.pop(job, None)
        if job.temporary:
            job.temporary.unlink(missing_ok=True)
        self._posted.append(lambda: self._drop(job))
        self.wake()

    # of a reader's thread

    def _prepare(self, job: _Job) -> None:
        """Cut a recording, if it is long, and make its searcher."""
        try:
            self._searcher(job.options)
            recording = job.recording
            if job.waveform is not None and recording.duration > FAR * self._longest:
                recording = self._as_file(job)
            rate, vad = self.recognizer.sample_rate, job.options.vad
            job.pieces = cut_long(recording, self._longest, rate, vad)
            job.unread.extend(job.pieces.parts if job.pieces else [recording])
            self._posted.append(lambda: self._begin(job))
            self.wake()
        except Exception as error:
            job.settle(error)

    def _as_file(self, job: _Job) -> Recording:
        """Write long samples to a file, which is read piece by piece."""
        with tempfile.NamedTemporaryFile(dir=self._folder.name, suffix=".wav", delete=False) as out:
            soundfile.write(out, job.waveform, self.recognizer.sample_rate, "FLOAT", format="WAV")
        job.temporary, job.waveform = Path(out.name), None
        job.recording = Recording("", out.name, 0.0, job.recording.duration)
        return job.recording

    def _searcher(self, options: SearchOptions) -> Searcher:
        """Find or make the searcher of some options; the least recently used ones are forgotten."""
        with self._searchers_lock:
            if options not in self._searchers:
                changed = {
                    f.name: getattr(options, f.name)
                    for f in fields(options)
                    if getattr(options, f.name) != getattr(self.options, f.name)
                }
                self._searchers[options] = (
                    Searcher(self.recognizer, options, self.precision)
                    if ANEW & changed.keys()
                    else self._searchers[self.options].tuned(**changed)
                )
            self._searchers.move_to_end(options)
            self._searchers.move_to_end(self.options)
            while len(self._searchers) > SEARCHERS:
                self._searchers.popitem(last=False)
            return self._searchers[options]

    # of the engine's thread

    def _run(self) -> None:
        with tuned(torch.device(self.device)), torch.no_grad():
            while not self._stopped:
                try:
                    self._turn()
                except Exception:  # a fault of this program: whoever waits shall know
                    logger.exception("the engine failed; what it had is given up")
                    self._give_up()

    def _turn(self) -> None:
        while self._posted:
            self._posted.popleft()()
        busy = self._read_streams() + self._admit() + self._step()
        if self._closing and not self._jobs and not self._lives:
            self._stopped = True
        elif self._closing:
            for live in self._lives:
                live.end()
        with self._condition:
            if not busy and not self._stopped:
                self._condition.wait_for(lambda: self._awake)
            self._awake = False

    def _give_up(self) -> None:
        self._groups.clear()
        for job in list(self._jobs):
            job.settle(RuntimeError("the engine failed"))
        self._fail_streams(self._lives, RuntimeError("the engine failed"))

    def _begin(self, job: _Job) -> None:
        if job.future.done():
            return
        if job.pieces and not job.pieces.parts:  # nothing is said in it
            job.settle(job.pieces.joined([]))
            return
        self._queue.add(job.client, job)
        self._read_ahead(job)

    def _read_ahead(self, job: _Job) -> None:
        while job.unread and len(job.ahead) < AHEAD:
            recording = job.unread.popleft()
            if job.waveform is None:
                waveform = self._pool.submit(load_waveform, recording, self.recognizer)
            else:
                waveform = Future()
                waveform.set_result(job.waveform)
            job.ahead.append(_Part(job, recording, waveform))
            waveform.add_done_callback(lambda _: self.wake())

    def _drop(self, job: _Job) -> None:
        """Forget a job that is done, failed or canceled."""
        self._queue.remove(job.client, job)
        for part in job.ahead:
            part.waveform.cancel()
        job.ahead.clear()
        job.unread.clear()
        for group in self._groups.values():
            group.drop(job)

    def _admit(self) -> bool:
        """Let parts enter the search, in their turn, while there is room."""
        room = self._batch_seconds - sum(group.seconds for group in self._groups.values())
        full = room < self._batch_seconds
        entering = dict[SearchOptions, list[_Part]]()
        taken = 0.0
        while job := self._queue.next(_Job.is_ready):
            part = job.ahead[0]
            if (full or taken) and part.seconds > min(room, ENTERING[self.device]) - taken:
                break
            self._queue.charge(job.client, job, part.seconds)
            job.ahead.popleft()
            self._read_ahead(job)
            waveform = part.waveform.result()
            if isinstance(waveform, UserError):
                job.settle(waveform)
                self._drop(job)
                continue
            taken += part.seconds
            entering.setdefault(job.options, []).append(part)
        for options, parts in entering.items():
            group = self._groups.get(options) or _Group(self._searcher(options))
            self._groups[options] = group
            self._guarded(group, lambda: group.add(parts), parts)  # noqa: B023 - called at once
        return bool(entering)

    def _step(self) -> bool:
        """Go on by one label in each group."""
        for options, group in list(self._groups.items()):
            if not group.encoded:
                del self._groups[options]
                continue
            size, began = len(group.running), time.perf_counter()
            self._guarded(group, lambda: self._take(group.step()), ())  # noqa: B023
            if self.watch:
                self.watch(size, time.perf_counter() - began)
        return bool(self._groups)

    def _guarded(self, group: _Group, work: Callable[[], None], new: Sequence[_Part]) -> None:
        """Do something with a group; if it fails, search its parts one by one, so that one fault is one request's."""
        try:
            work()
        except Exception as error:
            parts = [*dict.fromkeys([*group.encoded, *new])]
            if not is_oom(error):
                logger.exception("a batch failed; its recordings are searched one by one")
            group.encoded, group.running = {}, Running(group.searcher)
            for part in parts:
                self._search_alone(part, group.searcher)

    def _search_alone(self, part: _Part, searcher: Searcher) -> None:
        if part.job.future.done():
            return
        group = _Group(searcher)
        try:
            group.add([part])
            while group.encoded:
                self._take(group.step())
        except Exception as error:
            if is_oom(error):
                error = UserError(TOO_LONG.format(part.seconds))
            part.job.settle(error)

    def _take(self, found: Sequence[tuple[_Part, Transcript]]) -> None:
        """Give results to their jobs."""
        for part, result in found:
            if not part.job.future.done() and (whole := part.job.add(part.recording, result)):
                part.job.settle(whole)

    def _streams_of(self, options: SearchOptions, endpoints: EndpointOptions) -> Streams:
        self._streams = {key: one for key, one in self._streams.items() if one.running}
        key = options, endpoints
        if key not in self._streams:
            how = (self.recognizer, *key, self.precision, self._searcher(options))
            self._streams[key] = Streams(*how)
        return self._streams[key]

    def _read_streams(self) -> bool:
        """Read what has arrived of all streams."""
        fed = [live for live in list(self._lives) if self._fed(live)]
        for streams in {id(live.streams): live.streams for live in fed}.values():
            own = [live for live in self._lives if live.streams is streams]
            try:
                streams.advance()
            except Exception as error:
                logger.exception("streams failed")
                self._fail_streams(own, error)
        for live in fed:
            for event in live.stream.take():
                live.listen(event)
            if live.stream.ended:
                self.forget(live)
                live.listen(None)
        return bool(fed)

    def _fed(self, live: Live) -> bool:
        try:
            return live.take()
        except UserError as error:  # samples that can't be used
            self._fail_streams([live], error)
            return False

    def _fail_streams(self, lives: Sequence[Live], error: Exception) -> None:
        for live in list(lives):
            self.forget(live)
            live.listen(error)

    def forget(self, live: Live) -> None:
        """Leave a stream; in the engine's thread."""
        self._lives = [other for other in self._lives if other is not live]
        live.streams.forget(live.stream)
