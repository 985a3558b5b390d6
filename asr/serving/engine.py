"""One engine for all: whatever recordings and streams wait share the next batch.

A thread owns the model; other threads hand it work and get futures and events. It goes on in turns:
streams read what has arrived, waiting pieces of recordings enter the search, and each batch of the search
goes on by one label. Utterances leave it when they are done, each with the result that it would have alone.
A few threads read the sound files ahead.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np
import torch

from asr.device import tuned
from asr.logging import logger
from asr.models.recognizer import Recognizer
from asr.serving.batches import Batches
from asr.serving.clients import CLOSED, Closed, Full, Listener, Live
from asr.serving.jobs import Job
from asr.serving.readers import Readers
from asr.serving.searchers import Searchers
from asr.serving.streams import LiveStreams
from asr.transcript import Segment, Transcript
from asr.transcription.endpoints import EndpointOptions
from asr.transcription.options import BATCH_SECONDS, SearchOptions
from asr.transcription.pipeline import waveform_of
from asr.transcription.recordings import Recording, one_recording

LEAVING = 5.0  # seconds that the engine's thread may take to end the step that it is at


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
        searchers = Searchers(recognizer, options, precision)
        self.device = searchers.device.type
        self._condition = threading.Condition()
        self._posted = deque[Callable[[], None]]()
        self._awake = self._closing = self._stopped = False
        self._jobs = dict[Job, None]()
        self._readers = Readers(searchers, self._enter, self.wake)
        most = bounds.batch_seconds or BATCH_SECONDS[self.device]
        self._batches = Batches(searchers, self._readers, most, self._watched)
        self._streams = LiveStreams(searchers, bounds.streams)
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
            waveform = waveform_of(audio, sample_rate, self.recognizer)
            audio = Recording("", "", 0.0, len(waveform) / self.recognizer.sample_rate)
        job = Job(client, audio, options or self.options)
        job.waveform, job.progress = waveform, progress
        self._accept(job)
        job.future.add_done_callback(lambda _: self._when_done(job))
        try:
            self._readers.prepare(job)
        except RuntimeError:  # they were closed meanwhile
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
                streams = self._streams.find(*key)
                live = Live(self, streams.open(position, number), streams, listen)
            except Exception as error:
                future.set_exception(error)
            else:
                self._streams.add(live)
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
        jobs = list(self._jobs)
        seconds = sum(job.recording.duration for job in jobs)
        return len(jobs), seconds, len(self._batches), len(self._streams)

    def close(self, seconds: float = 30.0) -> None:
        """Take nothing new, and finish what runs; give up what isn't done after some seconds.

        Closing it again does nothing.
        """
        with self._condition:
            if self._closing:
                return
            self._closing = True
        self.wake()
        self._thread.join(seconds)
        for job in list(self._jobs):
            job.settle(Closed(CLOSED))
        self._stopped = True
        self.wake()
        self._thread.join(LEAVING)
        self._readers.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wake(self) -> None:
        """Have the engine's thread look for work."""
        with self._condition:
            self._awake = True
            self._condition.notify()

    def forget(self, live: Live) -> None:
        """Leave a stream; in the engine's thread."""
        self._streams.forget(live)

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
                raise Full(f"{len(self._jobs)} recordings wait, the most allowed")
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
        self._posted.append(lambda: self._batches.drop(job))
        self.wake()

    def _enter(self, job: Job) -> None:
        self._posted.append(lambda: self._batches.begin(job))
        self.wake()

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
        streams, batches = self._streams, self._batches
        busy = streams.read(batches.is_searching) + batches.admit() + batches.step()
        if self._closing and not (self._jobs or streams or self._posted):
            self._stopped = True
        elif self._closing:
            streams.end()
        with self._condition:
            if not busy and not self._stopped:
                self._condition.wait_for(lambda: self._awake)
            self._awake = False

    def _give_up(self) -> None:
        self._batches.clear()
        for job in list(self._jobs):
            job.settle(RuntimeError("the engine failed"))
        self._streams.give_up(RuntimeError("the engine failed"))

    def _watched(self, size: int, seconds: float) -> None:
        if self.watch:
            self.watch(size, seconds)
