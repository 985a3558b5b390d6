"""Sources of samples, such as files and a microphone, transcribed side by side while they are read."""

import itertools
from collections.abc import Callable, Iterable, Iterator

from asr.audio.live import Portions
from asr.errors import UserError
from asr.failures import Failure
from asr.transcript import Event
from asr.transcription.streams import Stream, Streams


def transcribe_live(
    streams: Streams,
    sources: Iterable[tuple[str, Portions]],
    at_once: int = 16,
    stopped: Callable[[], bool] = lambda: False,
    at: tuple[float, int] = (0.0, 0),
) -> Iterator[tuple[str, Event | Failure]]:
    """Yield the events of sources that are read side by side, with their names.

    at_once  sources that are open together
    stopped  is asked before each portion; once it says so, no source is read on, and all end
    at       position and number with which each stream begins, or goes on
    returns  a failure, too, of a source that can't be read, or not to its end
    """
    waiting, running = iter(sources), dict[Stream, tuple[str, Portions]]()
    while not stopped():
        for source in itertools.islice(waiting, at_once - len(running)):
            running[streams.open(*at)] = source
        if not running:
            return
        for stream, (name, portions) in running.items():
            if failure := _feed(stream, name, portions):
                yield name, failure
        streams.advance()
        yield from _taken(running)
    for stream in running:
        stream.end()
    streams.advance()
    yield from _taken(running)


def _feed(stream: Stream, name: str, portions: Portions) -> Failure | None:
    """Give a stream the next portion of its source, or its end."""
    try:
        for samples, rate in itertools.islice(portions, 1):
            stream.feed(samples, rate)
            return None
        stream.end()
    except UserError as error:
        stream.end()
        return Failure(name, name, error.as_option())
    return None


def _taken(running: dict[Stream, tuple[str, Portions]]) -> Iterator[tuple[str, Event]]:
    """Yield the events that wait, and forget the streams that have ended."""
    for stream, (name, _) in list(running.items()):
        yield from ((name, event) for event in stream.take())
        if stream.ended:
            del running[stream]
