"""What all requests share: the engines by name, the limits, and who may ask."""

from __future__ import annotations

import hmac
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from asr.serving.engine import Engine
from asr.serving.errors import RequestError
from asr.serving.metrics import Metrics
from asr.serving.options import ServingOptions
from asr.serving.uploads import Decoders

REMEMBERED = 10_000  # addresses whose requests are counted


class Service:
    """The models that are served, and how.

    engines   by the name of their model
    token     that requests must bear; "" lets everyone in
    folder    where uploads are kept while they are transcribed
    """

    def __init__(self, engines: Mapping[str, Engine], options: ServingOptions, token: str = ""):
        self.engines, self.options, self.token = dict(engines), options, token
        self.decoders = Decoders(options)
        self.metrics = Metrics(self.engines)
        self.limiter = Limiter(options.requests_per_minute)
        # transcriptions by address, from their headers to their answers
        self.arriving = Counter[str]()
        self.sessions = 0  # live ones
        self._temporary = tempfile.TemporaryDirectory(prefix="asr-serve-")
        self.folder = self._temporary.name

    def engine(self, name: str | None) -> tuple[str, Engine]:
        """Find a model's true name and its engine; with one model, any name is its name.

        raises   RequestError 404 that lists the models
        """
        if len(self.engines) == 1:
            return next(iter(self.engines.items()))
        if name in self.engines:
            return str(name), self.engines[str(name)]
        known = ", ".join(self.engines)
        message = f"there is no such model; expected one of {known}"
        raise RequestError(404, message, "model", "model_not_found")

    def admits(self, authorization: str | None) -> bool:
        """Whether a header `Authorization: Bearer TOKEN` is right; compared in constant time."""
        if not self.token:
            return True
        kind, _, given = (authorization or "").partition(" ")
        right = hmac.compare_digest(given.strip().encode(), self.token.encode())
        return right and kind.lower() == "bearer"

    def give_up(self) -> None:
        """Leave what runs: whoever waits for it is told."""
        self.decoders.close()
        with ThreadPoolExecutor(len(self.engines) or 1) as pool:
            list(pool.map(lambda engine: engine.close(0.0), self.engines.values()))

    def close(self) -> None:
        """Leave what runs, and remove what was kept."""
        self.give_up()
        self._temporary.cleanup()


class Limiter:
    """Requests that an address may still make: a bucket that holds a minute's worth, and fills evenly."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic):
        self.most, self.clock = float(per_minute), clock
        self._left = dict[str, tuple[float, float]]()  # by address: requests left, when

    def wait(self, address: str) -> float:
        """Take one request; return 0, or the seconds after which there is one again."""
        now, rate = self.clock(), self.most / 60
        left, then = self._left.pop(address, (self.most, now))
        left = min(self.most, left + (now - then) * rate)
        self._left[address] = (left - 1 if left >= 1 else left), now
        while len(self._left) > REMEMBERED:  # the one that was heard longest ago
            del self._left[next(iter(self._left))]
        return 0.0 if left >= 1 else (1 - left) / rate
