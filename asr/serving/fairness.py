"""Whose turn it is among clients and their requests: who has had the fewest seconds of audio.

A client that comes anew begins with what the least served of the others has had: it is next, but
doesn't catch up on the time before it came. Within a client, requests take turns in the same way. So
a recording of hours delays a short one by no more than what is being computed at that moment.
"""

import contextlib
import threading
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Request = TypeVar("Request")


class FairQueue(Generic[Request]):
    """Requests of clients, each with the seconds that it has had."""

    def __init__(self) -> None:
        self._had = dict[Hashable, float]()  # by client
        self._requests = dict[Hashable, dict[Request, float]]()  # by client, by request

    def add(self, client: Hashable, request: Request) -> None:
        """Let a request take part."""
        if client not in self._requests:
            self._had[client], self._requests[client] = min(self._had.values(), default=0.0), {}
        own = self._requests[client]
        own[request] = min(own.values(), default=0.0)

    def remove(self, client: Hashable, request: Request) -> None:
        """Let it take part no longer; it may have been removed before."""
        own = self._requests.get(client, {})
        own.pop(request, None)
        if not own and client in self._requests:
            del self._requests[client], self._had[client]

    def next(self, is_ready: Callable[[Request], bool]) -> Request | None:
        """Choose the next one of those that are ready; None if there is none."""
        return next(filter(is_ready, self._in_order()), None)

    def charge(self, client: Hashable, request: Request, seconds: float) -> None:
        """Note that a request was given some seconds."""
        self._had[client] += seconds
        self._requests[client][request] += seconds

    def _in_order(self) -> Iterator[Request]:
        for client in sorted(self._requests, key=lambda client: self._had[client]):
            own = self._requests[client]
            yield from sorted(own, key=lambda request: own[request])


class FairThreads:
    """Threads that go on with the work of clients in turn, one step at a time."""

    def __init__(self, threads: int, name: str):
        self._pool, self._lock = ThreadPoolExecutor(threads, name), threading.Lock()
        self._queue = FairQueue[Iterator[float]]()
        self._waiting = dict[Iterator[float], Hashable]()  # with their clients

    def begin(self, client: Hashable, work: Iterator[float]) -> None:
        """Take in work; each of its steps yields the seconds that it counts for, and none may raise.

        raises   RuntimeError if it is closed
        """
        with self._lock:
            self._queue.add(client, work)
            self._waiting[work] = client
        self._pool.submit(self._step)

    def close(self) -> None:
        """Leave what isn't done."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _step(self) -> None:
        """Do a step of the work whose turn it is; for all work that waits there is one such call."""
        with self._lock:
            work = self._queue.next(self._waiting.__contains__)
            assert work
            client = self._waiting.pop(work)
        seconds = next(work, None)
        with self._lock:
            if seconds is None:
                self._queue.remove(client, work)
                return
            self._queue.charge(client, work, seconds)
            self._waiting[work] = client
        with contextlib.suppress(RuntimeError):  # it was closed meanwhile
            self._pool.submit(self._step)
