"""Signals that ask a training to save, or to save and end; and a watch that names the step that doesn't end.

Signals come from a terminal, a scheduler or the system, and are obeyed between two steps. A kernel
that never returns would leave the process to be killed, and nobody would know what it was at. So a
thread looks on, and ends the process where it hears no signal any more. A call that doesn't give up
the interpreter's lock stops the thread, too; those of PyTorch do.
"""

import contextlib
import multiprocessing
import os
import signal
import socket
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

# what a scheduler sends ahead of the end
SAVING = (signal.SIGUSR1,) if hasattr(signal, "SIGUSR1") else ()
ENDING = (signal.SIGINT, signal.SIGTERM)
AGAIN = 1.0  # seconds after which the same wish is a new one: a terminal and a parent may both pass on the first


def pass_over_saving() -> None:
    """From now on, and in processes that are started, a wish to save doesn't end the process, as it would otherwise."""
    for number in SAVING:
        signal.signal(number, signal.SIG_IGN)


@cache
def keep_from_forked() -> None:
    """From now on a forked process, as a data worker is, doesn't tell this one which signals come to it."""

    def hear_for_itself() -> None:
        with contextlib.suppress(ValueError):  # forked elsewhere than in the main thread
            signal.set_wakeup_fd(-1)

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=hear_for_itself)


class Stopped(KeyboardInterrupt):
    """The training was asked to end; `status` is the exit status, as a shell's."""

    def __init__(self, number: int):
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number, self.status = number, 128 + number


class Signals:
    """Note requests within `with`; the loop handles them between two steps.

    save, end:  the number of the signal that asked for it, 0 if none did
    A second wish to end, a second or more after the first, ends at once.
    """

    def __init__(self):
        self.save = self.end = self._heard = 0
        self._asked_at, self._waits, self._ear = 0.0, True, None

    def __enter__(self) -> "Signals":
        self._before = {}
        if (
            threading.current_thread() is threading.main_thread()
        ):  # elsewhere Python allows no handlers
            self._before = {
                number: signal.signal(number, self._note) for number in (*SAVING, *ENDING)
            }
            keep_from_forked()
            self._ear, self._mouth = socket.socketpair()
            for end in (self._ear, self._mouth):
                end.setblocking(False)
            self._listener = signal.set_wakeup_fd(self._mouth.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before:
            signal.set_wakeup_fd(self._listener)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def heard(self) -> int:
        """The number of a signal that asked to end, 0 if none did; for another thread.

        The system notes it at once. Python's handler, `_note`, waits until the main thread's kernel
        returns.
        """
        if self._ear and not self._heard:
            with contextlib.suppress(BlockingIOError):
                self._heard = next(
                    (number for number in self._ear.recv(4096) if number in ENDING), 0
                )
        return self._heard

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Within it a wish to end is obeyed at once, for all is saved; one that came before, too."""
        if self.end:
            raise Stopped(self.end)
        self._waits = False
        try:
            yield
        finally:
            self._waits = True

    def _note(self, number: int, _frame: object) -> None:
        if number in SAVING:
            self.save = number
        elif not self._waits or (self.end and time.monotonic() - self._asked_at > AGAIN):
            raise Stopped(number)
        elif not self.end:
            self.end, self._asked_at = number, time.monotonic()


LOOK = 1.0  # seconds between two looks
LIMIT = 60.0  # seconds after a signal to end in which what is watched has to; or TWICE the median step, if that is more
TWICE = 2
LONG = 10  # times the median, and LEAST seconds: a step that takes so long is logged
LEAST = 60.0
KNOWN = 10  # steps, after the first, whose median counts
RECENT = 101  # of which it is the median


class Watched(NamedTuple):
    """What is being done, since when, and whether it is a step."""

    describe: Callable[[], str]
    began: float
    is_step: bool


class Watch:
    """Within `with`, looks at what `over` says is being done.

    signals  that ask to end
    log      gets a line about what takes too long
    """

    def __init__(self, signals: Signals, log: Callable[[str], None]):
        self.signals, self.log = signals, log
        self.seconds: deque[float] = deque(maxlen=RECENT)  # of the last steps
        self.first = True
        self.now: Watched | None = None
        self.reported: Watched | None = None
        self.asked_at: float | None = None
        self._done, self._main = threading.Event(), threading.get_ident()

    def __enter__(self) -> "Watch":
        self._thread = threading.Thread(target=self._look_on, name="watch", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @contextlib.contextmanager
    def over(self, describe: Callable[[], str], is_step: bool = False) -> Iterator[None]:
        """Watch what is done within.

        describe  says what that is, and with which examples, where it has to be logged
        is_step   one of many alike: it is known how long one takes
        """
        began = time.monotonic()
        self.now = Watched(describe, began, is_step)
        try:
            yield
        finally:
            self.now = None
        if is_step and not self.first:
            self.seconds.append(time.monotonic() - began)
        self.first = self.first and not is_step  # which compiles, and takes memory

    def _look_on(self) -> None:
        while not self._done.wait(LOOK):
            number, now = self.signals.heard(), self.now
            if number and self.asked_at is None:
                self.asked_at = time.monotonic()
            if now and number:
                self._insist(number, *now)
            elif now and now is not self.reported:
                self._warn(now)

    def _median(self) -> float:
        return statistics.median(list(self.seconds)) if len(self.seconds) >= KNOWN else 0.0

    def _warn(self, now: Watched) -> None:
        """Tell of a step that takes far longer than others."""
        describe, began, is_step = now
        seconds, median = time.monotonic() - began, self._median()
        if is_step and median and seconds > max(LEAST, LONG * median):
            self.reported = now
            usual = f"where the median is {median:.1f} s"
            self.log(f"{describe()}: {seconds:.0f} s so far, {usual}, {self._place()}; it goes on")

    def _insist(
        self, number: int, describe: Callable[[], str], began: float, is_step: bool
    ) -> None:
        """End the process if what is done hasn't ended in time."""
        limit = max(LIMIT, TWICE * self._median())
        if time.monotonic() - max(self.asked_at or began, began) < limit:
            return
        try:
            asked = f"hasn't ended {limit:.0f} s after {signal.Signals(number).name}"
            self.log(
                f"{describe()}: {asked}, {self._place()}; ended without it, what was saved before stays"
            )
            for worker in multiprocessing.active_children():
                worker.kill()
        finally:
            os._exit(128 + number)

    def _place(self) -> str:
        """Where the watched thread is, in this package."""
        frame = sys._current_frames().get(self._main)
        package = Path(__file__).parents[1]
        while frame and package not in Path(frame.f_code.co_filename).parents:
            frame = frame.f_back
        if frame is None:
            return "at an unknown place"
        return f"at {Path(frame.f_code.co_filename).relative_to(package.parent)}:{frame.f_lineno}"
