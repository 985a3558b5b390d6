"""One engine for all: whatever recordings and streams wait share the next batch.

A thread owns the model. Other threads hand it work, and get futures and events.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

import asr
from asr.logging import logger
from asr.models.recognizer import Recognizer
from asr.transcript import Event, Transcript
from asr.transcription.endpoints import EndpointOptions
from asr.transcription.options import SearchOptions
from asr.transcription.streams import Stream, Streams

TURN = 1.0  # seconds of a stream that are read at once, so that others aren't kept waiting
Listener = Callable[[Event | Exception | None], None]


class Closed(Exception):
    """The engine takes nothing new: it is closing."""


class Live:
    """A stream of a client; any thread may use it. `Engine.open` makes it.

    listen    is called in the engine's thread, and must return at once: with each event, with an
              exception if the stream fails, and with None at its end
    """

    def __init__(self, engine: Engine, stream: Stream, streams: Streams, listen: Listener):
        self.listen = listen
        self._engine, self._stream, self._streams = engine, stream, streams
        self._rate = streams.recognizer.sample_rate
        self._arrived = deque[tuple[np.ndarray, int]]()
        self._ended = False

    @property
    def backlog(self) -> float:
        """Seconds that have been fed, and not yet been read."""
        return sum(len(samples) / rate for samples, rate in list(self._arrived))

    def feed(self, samples: np.ndarray, sample_rate: int | None = None) -> None:
        """Take the next samples, (n,) int16, or float from -1 to 1, at a rate in Hz; the model's unless given."""
        rate = sample_rate or self._rate
        for begin in range(0, len(samples), rate):
            self._arrived.append((samples[begin : begin + rate], rate))
        self._engine._wake()

    def end(self) -> None:
        """Let nothing follow; the last events will come, and then None."""
        self._ended = True
        self._engine._wake()

    def close(self) -> None:
        """Forget it: the client has left. No more events come."""
        self._engine._post(lambda: self._engine._forget(self))

    def _take(self) -> bool:
        """Give the stream what has arrived, a turn's worth; tell whether there was anything."""
        if self._arrived:
            samples, rate = self._arrived[0]
            self._stream.feed(samples, rate)
            self._arrived.popleft()
        elif self._ended and not self._stream.ended:
            self._stream.end()
        else:
            return False
        return True


class Engine:
    """Transcribe recordings and streams of many clients with one model.

    recognizer  of `asr.load`; nothing else may use it while the engine runs
    options     how to search, unless a request says otherwise
    endpoints   when segments of streams end, unless a stream says otherwise
    precision   "fp32" or "bf16"
    """

    def __init__(
        self,
        recognizer: Recognizer,
        options: SearchOptions = SearchOptions(),  # noqa: B008 - frozen
        endpoints: EndpointOptions = EndpointOptions(),  # noqa: B008
        precision: str = "fp32",
    ):
        self.recognizer, self.options, self.endpoints = recognizer, options, endpoints
        self.precision = precision
        self._condition = threading.Condition()
        self._posted = deque[Callable[[], None]]()
        self._awake = self._closing = False
        self._streams = dict[tuple[SearchOptions, EndpointOptions], Streams]()
        self._lives = list[Live]()
        self._thread = threading.Thread(target=self._run, name="asr-engine", daemon=True)
        self._thread.start()

    def submit(
        self, audio: str | os.PathLike[str] | np.ndarray, options: SearchOptions | None = None
    ) -> Future[Transcript]:
        """Transcribe a sound file, or samples (n,) at the model's rate."""
        future: Future[Transcript] = Future()

        def work() -> None:
            try:
                how = vars(options or self.options)
                future.set_result(asr.transcribe(self.recognizer, audio, **how))
            except Exception as error:
                future.set_exception(error)

        self._post(work)
        return future

    def open(
        self,
        listen: Listener,
        options: SearchOptions | None = None,
        endpoints: EndpointOptions | None = None,
        position: float = 0.0,
        number: int = 0,
    ) -> Future[Live]:
        """Begin a stream, or resume one at the position and the number of its last `asr.Final`.

        raises   UserError, as the future's exception, if the model can't read streams
        """
        future: Future[Live] = Future()
        key = (options or self.options, endpoints or self.endpoints)

        def work() -> None:
            try:
                if key not in self._streams:
                    self._streams[key] = Streams(self.recognizer, *key, self.precision)
                streams = self._streams[key]
                live = Live(self, streams.open(position, number), streams, listen)
                self._lives.append(live)
                future.set_result(live)
            except Exception as error:
                future.set_exception(error)

        self._post(work)
        return future

    def close(self, seconds: float = 30.0) -> None:
        """Finish what runs, at most for some seconds, and take nothing new."""
        self._closing = True
        self._wake()
        self._thread.join(seconds)

    def _post(self, work: Callable[[], None]) -> None:
        if self._closing:
            raise Closed("the server is shutting down")
        with self._condition:
            self._posted.append(work)
        self._wake()

    def _wake(self) -> None:
        with self._condition:
            self._awake = True
            self._condition.notify()

    def _run(self) -> None:
        while not self._closing:
            with self._condition:
                self._condition.wait_for(lambda: self._awake)
                self._awake = False
            while self._posted:
                self._posted.popleft()()
            self._advance()

    def _advance(self) -> None:
        """Read what has arrived of all streams."""
        fed = [live for live in self._lives if live._take()]
        for streams in {live._streams for live in fed}:
            streams.advance()
        for live in fed:
            for event in live._stream.take():
                live.listen(event)
            if live._stream.ended:
                self._forget(live)
                live.listen(None)
        if fed:
            self._awake = True

    def _forget(self, live: Live) -> None:
        if live in self._lives:
            self._lives.remove(live)
        if live._stream in live._streams.running:
            live._streams.running.remove(live._stream)
