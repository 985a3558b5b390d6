"""Live streams in the engine: streams with the same options are stepped side by side."""

from __future__ import annotations

import time
from collections.abc import Sequence

from asr.errors import UserError
from asr.logging import logger
from asr.serving.clients import Full, Live
from asr.serving.searchers import Searchers
from asr.transcription.endpoints import EndpointOptions
from asr.transcription.options import SearchOptions
from asr.transcription.streams import Streams

# seconds of searching for final results, after which all that has arrived is read again
FINALS = 0.1


class LiveStreams:
    """Streams that are open; one thread uses it.

    most   streams
    """

    def __init__(self, searchers: Searchers, most: int):
        self._searchers, self._most = searchers, most
        self._streams = dict[tuple[SearchOptions, EndpointOptions], Streams]()
        self._open = list[Live]()

    def __len__(self) -> int:
        """Count them; any thread may."""
        return len(self._open)

    def find(self, options: SearchOptions, endpoints: EndpointOptions) -> Streams:
        """Find or make what one more stream is stepped with.

        raises   Full; UserError if the model can't read streams
        """
        if len(self._open) >= self._most:
            raise Full(f"{len(self._open)} streams are open, the most allowed")
        self._streams = {key: one for key, one in self._streams.items() if one.is_busy}
        key = options, endpoints
        if key not in self._streams:
            recognizer, precision = self._searchers.recognizer, self._searchers.precision
            searcher = self._searchers.find(options)
            self._streams[key] = Streams(recognizer, *key, precision, searcher)
        return self._streams[key]

    def add(self, live: Live) -> None:
        """Let a stream be read."""
        self._open.append(live)

    def end(self) -> None:
        """Let nothing follow in any stream."""
        for live in self._open:
            live.end()

    def read(self, paced: bool) -> bool:
        """Read what has arrived of all streams; return whether there is more to do.

        paced   read no stream faster than it could be spoken
        """
        lives = [x for x in self._open if not (x.stream.is_behind or (paced and x.is_ahead))]
        fed = {live.streams for live in lives if self._fed(live)}
        busy = bool(fed) or len(lives) < len(self._open)
        for streams in dict.fromkeys(live.streams for live in self._open):
            try:
                if streams in fed:
                    streams.read()
                busy |= _searched(streams)
            except Exception as error:
                logger.exception("streams failed")
                self._fail([live for live in self._open if live.streams is streams], error)
        for live in list(self._open):
            for event in live.stream.take():
                live.tell(event)
            if live.stream.is_over:
                self.forget(live)
                live.tell(None)
        return busy

    def forget(self, live: Live) -> None:
        """Leave a stream."""
        self._open = [other for other in self._open if other is not live]
        live.streams.forget(live.stream)

    def give_up(self, error: Exception) -> None:
        """Leave all of them."""
        self._fail(self._open, error)

    def _fed(self, live: Live) -> bool:
        try:
            return live.take()
        except UserError as error:  # samples that can't be used
            self._fail([live], error)
            return False

    def _fail(self, lives: Sequence[Live], error: Exception) -> None:
        for live in list(lives):
            self.forget(live)
            live.tell(error)


def _searched(streams: Streams) -> bool:
    """Search for final results, for a while; return whether there is more to do."""
    began = time.monotonic()
    while more := streams.search():
        if time.monotonic() > began + FINALS:
            break
    return more
