"""Messages and progress. The library logs to the logger "asr"; a command shows that on stderr, above its progress bar.

A program that embeds the library configures the logger as any other:

    logging.getLogger("asr").setLevel(logging.WARNING)
"""

import contextlib
import logging
import os
import sys
from typing import Any

logger = logging.getLogger("asr")


class TerminalHandler(logging.Handler):
    """Write messages on stderr; a stderr that is full or closed is no reason to stop."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one message above any progress bar."""
        text = printable(self.format(record))
        try:
            if "tqdm" in sys.modules:
                sys.modules["tqdm"].tqdm.write(text, file=sys.stderr)
            else:
                print(text, file=sys.stderr, flush=True)
            sys.stderr.flush()
        except (OSError, ValueError, AttributeError):
            with contextlib.suppress(
                OSError, ValueError, AttributeError
            ):  # what is buffered is lost
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


_warned: set[str] = set()  # of what this process has warned


def warn_once(message: str, about: str | None = None) -> None:
    """Warn, unless this process has said the same before, or has warned about the same."""
    if (about or message) not in _warned:
        _warned.add(about or message)
        logger.warning(message)


def show(level: int | None = logging.INFO) -> None:
    """Show messages from a level on, and progress bars at INFO and below, on stderr; None changes nothing."""
    if level is None:
        return
    logger.setLevel(level)
    if shown_level() is None:
        logger.addHandler(TerminalHandler())


def shown_level() -> int | None:
    """Return the level that `show` was given; None if messages aren't shown."""
    return (
        logger.level
        if any(isinstance(handler, TerminalHandler) for handler in logger.handlers)
        else None
    )


def progress_bar(*iterable: Any, **settings: Any) -> Any:
    """Make a tqdm bar on stderr, drawn only on a terminal and only where INFO messages are shown."""
    from tqdm import tqdm

    return tqdm(*iterable, **{"disable": bars_hidden(), "leave": False} | settings)


def bars_hidden() -> bool | None:
    """Return tqdm's `disable`: None draws a bar on a terminal only, True never."""
    return None if shown_level() is not None and logger.isEnabledFor(logging.INFO) else True


def printable(text: str) -> str:
    """Write control characters, on which a terminal would act, and bytes that aren't UTF-8 as escapes.

    >>> printable("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    shown = "".join(
        c if c in "\n\t" or not _is_control(c) else c.encode("unicode_escape").decode()
        for c in text
    )
    return shown.encode("utf-8", "backslashreplace").decode("utf-8")


def plain(words: str) -> str:
    """Turn text from a stranger (a server, an archive) into one short line without characters that control a terminal.

    >>> plain("404 Not" + chr(10) + chr(27) + "[2J")
    '404 Not  [2J'
    """
    return "".join(letter if letter.isprintable() else " " for letter in words[:200])


def _is_control(character: str) -> bool:
    return (
        character < " "
        or "\x7f" <= character < "\xa0"
        or character in "\u2028\u2029\u202e\u2066\u2067\u2068\u2069"
    )
