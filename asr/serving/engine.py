"""One engine for all: whatever recordings and streams wait share the next batch.

A thread owns the model; other threads hand it work and get futures and events. It goes on in turns:
streams read what has arrived, waiting pieces of recordings enter the search, and the search goes on
by one label. Utterances leave it when they are done, each with the result that it would have alone.
A few threads read the sound files ahead.
"""

from __future__ import annotations

import asyncio
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
from asr.serving.clients import Closed, Full, Listener, Live
from asr.serving.fairness import FairQueue
from asr.serving.jobs import Job, JobPart, RunningBatch
from asr.transcript import Segment, Transcript
from asr.transcription.endpoints import EndpointOptions
from asr.transcription.long import FAR, cut_long, sure_of
from asr.transcription.options import BATCH_SECONDS, SearchOptions
from asr.transcription.pipeline import (
    TOO_LONG,
    load_waveform,
    waveform_of,
)
from asr.transcription.recordings import Recording, one_recording
from asr.transcription.searcher import Running, Searcher
from asr.transcription.streams import Streams

ENTERING = {
    "cpu": 24.0,
    "cuda": 500.0,
}  # seconds that are encoded at once, so that others aren't kept waiting
READERS = {"cpu": 2, "cuda": 8}  # threads
AHEAD = 2  # pieces of a recording that are read before they are searched
SEARCHERS = 32  # with different options that are kept
ANEW = {"mode", "chunk", "lm"}  # options that a searcher can't be tuned to
CLOSED = "the server is shutting down"


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
        self._awake = self._closing = self._stopped = False
        self._jobs = dict[Job, None]()
        self._queue = FairQueue[Job]()
        self._groups = dict[SearchOptions, RunningBatch]()
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
        job = Job(client, audio, options or self.options)
        job.waveform, job.progress = waveform, progress
        self._accept(job)
        job.future.add_done_callback(lambda _: self._when_done(job))
        is_long = audio.duration > FAR * self._longest
        try:
            (self._cutters if is_long else self._pool).submit(self._prepare, job)
        except RuntimeError:  # the pools were shut down meanwhile
            job.settle(Closed(CLOSED))
        return job.future

    async def transcribe(self, *audio: object, **more: object) -> Transcript:
        """Await the result of `submit`, with the same arguments; canceling this cancels that."""
        work = asyncio.to_thread(self.submit, *audio, **more)  # type: ignore[arg-type]
        submitting = asyncio.ensure_future(work)
        try:
            future = await asyncio.shield(submitting)
        except asyncio.CancelledError:  # the thread goes on, and would submit it
            submitting.add_done_callback(
                lambda made: made.cancelled() or made.exception() or made.result().cancel()
            )
            raise
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
            if not future.set_running_or_notify_cancel():
                return  # the client has left
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
        with self._condition:
            self._closing = True
        self.wake()
        self._thread.join(seconds)
        for job in list(self._jobs):
            job.settle(Closed(CLOSED))
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
        with self._condition:
            if self._closing:
                raise Closed(CLOSED)
            self._posted.append(work)
        self.wake()

    # of any thread

    def _accept(self, job: Job) -> None:
        """Count a recording in, if there is room."""
        with self._condition:
            if self._closing:
                raise Closed(CLOSED)
            waiting = sum(other.recording.duration for other in self._jobs)
            if len(self._jobs) >= self.bounds.requests:
                raise Full(f"{len(self._jobs)} recordings wait, as many as may")
            if self._jobs and waiting + job.recording.duration > self.bounds.seconds:
                raise Full(f"{waiting / 3600:.1f} hours of audio wait; ask again later")
            self._jobs[job] = None

    def _when_done(self, job: Job) -> None:
        """Count it out, and forget what is left of it; any thread may have canceled it."""
        with self._condition:
            self._jobs.pop(job, None)
        job.clean()
        if job.future.cancelled():
            job.settle(Closed("canceled"))  # which tells whoever waits for several futures
        self._posted.append(lambda: self._drop(job))
        self.wake()

    # of a reader's thread

    def _prepare(self, job: Job) -> None:
        """Cut a recording, if it is long, and make its searcher."""
        if job.future.done():  # canceled
            return
        try:
            self._searcher(job.options)
            recording = job.recording
            if job.waveform is not None and recording.duration > FAR * self._longest:
                recording = self._as_file(job)
            rate, vad = self.recognizer.sample_rate, job.options.vad
            job.pieces = cut_long(recording, self._longest, rate, vad, sure_of(job.options.mode))
            job.unread.extend(job.pieces.parts if job.pieces else [recording])
            self._posted.append(lambda: self._begin(job))
            self.wake()
        except Exception as error:
            job.settle(error)
        finally:
            if job.future.done():  # canceled meanwhile
                job.clean()

    def _as_file(self, job: Job) -> Recording:
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
        if self._closing and not (self._jobs or self._lives or self._posted):
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

    def _begin(self, job: Job) -> None:
        if job.future.done():
            return
        if job.pieces and not job.pieces.parts:  # nothing is said in it
            job.settle(job.pieces.joined([]))
            return
        self._queue.add(job.client, job)
        self._read_ahead(job)

    def _read_ahead(self, job: Job) -> None:
        while job.unread and len(job.ahead) < AHEAD:
            recording = job.unread.popleft()
            if job.waveform is None:
                waveform = self._pool.submit(load_waveform, recording, self.recognizer)
            else:
                waveform = Future()
                waveform.set_result(job.waveform)
            job.ahead.append(JobPart(job, recording, waveform))
            waveform.add_done_callback(lambda _: self.wake())

    def _drop(self, job: Job) -> None:
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
        entering = dict[SearchOptions, list[JobPart]]()
        taken = 0.0
        while job := self._queue.next(Job.is_ready):
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
            group = self._groups.get(options) or RunningBatch(self._searcher(options))
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

    def _guarded(
        self, group: RunningBatch, work: Callable[[], None], new: Sequence[JobPart]
    ) -> None:
        """Do something with a group; if it fails, search its parts one by one, so that one fault is one request's."""
        try:
            work()
        except Exception as error:
            parts = [*dict.fromkeys([*group.encoded, *new])]
            if not is_oom(error):
                logger.exception("a batch failed; its recordings are searched one by one")
            group.encoded, group.running = {}, Running(group.searcher, prompt=True)
            for part in parts:
                self._search_alone(part, group.searcher)

    def _search_alone(self, part: JobPart, searcher: Searcher) -> None:
        if part.job.future.done():
            return
        group = RunningBatch(searcher)
        try:
            group.add([part])
            while group.encoded:
                self._take(group.step())
        except Exception as error:
            if is_oom(error):
                error = UserError(TOO_LONG.format(part.seconds))
            part.job.settle(error)

    def _take(self, found: Sequence[tuple[JobPart, Transcript]]) -> None:
        """Give results to their jobs."""
        for part, result in found:
            job = part.job
            try:
                if not job.future.done() and (whole := job.add(part.recording, result)):
                    job.settle(whole)
            except Exception as error:  # of its `progress`, or of joining: the other results stay
                logger.exception("a result could not be handed over")
                job.settle(error)

    def _streams_of(self, options: SearchOptions, endpoints: EndpointOptions) -> Streams:
        self._streams = {key: one for key, one in self._streams.items() if one.running}
        key = options, endpoints
        if key not in self._streams:
            how = (self.recognizer, *key, self.precision, self._searcher(options))
            self._streams[key] = Streams(*how)
        return self._streams[key]

    def _read_streams(self) -> bool:
        """Read what has arrived of all streams."""
        # beside recordings, no stream is read faster than it could be spoken
        lives = [live for live in self._lives if not (self._groups and live.is_ahead)]
        fed = [live for live in lives if self._fed(live)]
        for streams in {id(live.streams): live.streams for live in fed}.values():
            own = [live for live in self._lives if live.streams is streams]
            try:
                streams.advance()
            except Exception as error:
                logger.exception("streams failed")
                self._fail_streams(own, error)
        for live in (live for live in fed if live in self._lives):
            for event in live.stream.take():
                live.tell(event)
            if live.stream.ended:
                self.forget(live)
                live.tell(None)
        return bool(fed) or len(lives) < len(self._lives)

    def _fed(self, live: Live) -> bool:
        try:
            return live.take()
        except UserError as error:  # samples that can't be used
            self._fail_streams([live], error)
            return False

    def _fail_streams(self, lives: Sequence[Live], error: Exception) -> None:
        for live in list(lives):
            self.forget(live)
            live.tell(error)

    def forget(self, live: Live) -> None:
        """Leave a stream; in the engine's thread."""
        self._lives = [other for other in self._lives if other is not live]
        live.streams.forget(live.stream)
