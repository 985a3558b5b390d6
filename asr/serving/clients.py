"""What clients hold of an engine: a stream that they feed, and the errors of one that takes nothing more."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from asr.audio.load import check_rate
from asr.logging import logger
from asr.transcript import Event
from asr.transcription.streams import Stream, Streams

if TYPE_CHECKING:
    from asr.serving.engine import Engine

TURN = 1.0  # seconds of a stream that are read at once, so that others aren't kept waiting
CLOSED = "the server is shutting down"
Listener = Callable[[Event | Exception | None], None]


class Closed(Exception):
    """The engine takes nothing new, because it is closing, or gave up what it had."""


class Full(Exception):
    """As much waits as may wait."""


class Live:
    """A stream of a client; any thread may use it. `Engine.open` makes it.

    listen    is called in the engine's thread, and must return at once: with each event, with an
              exception if the stream fails, and with None at its end
    """

    def __init__(self, engine: Engine, stream: Stream, streams: Streams, listen: Listener):
        self.listen, self.stream, self.streams = listen, stream, streams
        self._engine, self._rate = engine, streams.recognizer.sample_rate
        self._arrived = deque[tuple[np.ndarray, int]]()
        self._began = time.monotonic()
        self._fed = self._read = 0.0  # seconds; each is counted by one thread
        self._ended = False

    @property
    def backlog(self) -> float:
        """Seconds that have been fed, and not yet been read."""
        return self._fed - self._read

    @property
    def is_ahead(self) -> bool:
        """Whether more has been read than could have been spoken since it began."""
        return self._read > time.monotonic() - self._began + 2 * TURN

    def feed(self, samples: np.ndarray, sample_rate: int | None = None) -> None:
        """Take the next samples, (n,) int16, or float from -1 to 1, at a rate in Hz; the model's unless given.

        raises   UserError if the rate is none
        """
        rate = self._rate if sample_rate is None else sample_rate
        check_rate(rate, "sample_rate")
        size = max(1, round(TURN * rate))
        for begin in range(0, len(samples), size):
            part = samples[begin : begin + size]
            self._arrived.append((part, rate))
            self._fed += len(part) / rate
        self._engine.wake()

    def end(self) -> None:
        """Let nothing follow; the last events will come, and then None."""
        self._ended = True
        self._engine.wake()

    def close(self) -> None:
        """Forget it: the client has left. No more events come."""
        with contextlib.suppress(Closed):
            self._engine.post(lambda: self._engine.forget(self))

    def tell(self, event: Event | Exception | None) -> None:
        """Call the listener; what it raises is its own affair."""
        try:
            self.listen(event)
        except Exception:
            logger.exception("a stream's listener failed")

    def take(self) -> bool:
        """Give the stream what has arrived, a turn's worth; tell whether there was anything."""
        begun = self._read
        while self._arrived and self._read < begun + TURN:
            samples, rate = self._arrived[0]
            self.stream.feed(samples, rate)
            self._arrived.popleft()
            self._read += len(samples) / rate
        if self._read == begun and self._ended and not self.stream.ended:
            self.stream.end()
            return True
        return self._read > begun
