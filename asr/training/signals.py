"""Signals that ask a training to save, or to save and end: those of a terminal, a scheduler, or the system."""

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from functools import cache

SAVING = (
    (signal.SIGUSR1,) if hasattr(signal, "SIGUSR1") else ()
)  # what a scheduler sends ahead of the end
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
