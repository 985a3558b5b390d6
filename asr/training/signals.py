"""Signals that ask a training to save, or to save and end: those of a terminal, a scheduler, or the system."""

import contextlib
import signal
import threading
import time
from collections.abc import Iterator

SAVING = (signal.SIGUSR1,) if hasattr(signal, "SIGUSR1") else ()  # what a scheduler sends ahead of the end
ENDING = (signal.SIGINT, signal.SIGTERM)
AGAIN = 1.0  # seconds after which the same wish is a new one: a terminal and a parent may both pass on the first


def pass_over_saving() -> None:
    """From now on, and in processes that are started, a wish to save doesn't end the process, as it would otherwise."""
    for number in SAVING:
        signal.signal(number, signal.SIG_IGN)


class Stopped(KeyboardInterrupt):
    """The training was asked to end; `status` is the exit status, as a shell's."""

    def __init__(self, number: int):
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number, self.status = number, 128 + number


class Signals:
    """Within `with`, notes what was asked; the loop obeys between two steps.

    save, end:  the number of the signal that asked for it, 0 if none did
    A second wish to end, a second or more after the first, ends at once.
    """

    def __init__(self):
        self.save = self.end = 0
        self._asked_at, self._waits = 0.0, True

    def __enter__(self) -> "Signals":
        self._before = {}
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            self._before = {number: signal.signal(number, self._note) for number in (*SAVING, *ENDING)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

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
