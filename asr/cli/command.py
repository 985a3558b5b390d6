"""What all commands share: a parser's looks, exit statuses, standard streams, and the user's mistake as one line.

Exit statuses: 0 done; 2 the user's mistake; 3 finished, but some inputs failed; 130 stopped by
Ctrl-C, 143 by SIGTERM; 141 the reader of standard output has left.
"""

import argparse
import contextlib
import errno
import functools
import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

from asr import __version__
from asr.errors import UserError
from asr.files import UNWRITABLE
from asr.logging import logger, show

Handler = Callable[[int, FrameType | None], Any] | int | None
MISTAKE, SOME_FAILED, READER_GONE = 2, 3, 141
AGAIN, ANEW = (
    "run the same command again to go on",
    "nothing was written; run the same command again",
)
STDOUT_FAULTS = {*UNWRITABLE, errno.EBADF}

__all__ = [
    "add_device",
    "ANEW",
    "MISTAKE",
    "SOME_FAILED",
    "channel",
    "command",
    "count",
    "emit",
    "parser",
    "place",
    "refuse",
]


def parser(name: str, description: str, epilog: str = "") -> argparse.ArgumentParser:
    """Make a command's parser: description from the first line on, examples at the end, --version."""
    parser = argparse.ArgumentParser(
        prog=name,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"{name} {__version__}")
    for letter, word, level in (("v", "verbose", logging.DEBUG), ("q", "quiet", logging.WARNING)):
        what = (
            "print more messages on standard error"
            if letter == "v"
            else "print only warnings and errors on standard error"
        )
        parser.add_argument(f"-{letter}", f"--{word}", action=Show, level=level, help=what)
    parser.error = lambda message: wrong_arguments(name, message)  # type: ignore[method-assign]
    return parser


class Show(argparse.Action):
    """Choose the messages that are shown."""

    def __init__(self, level: int, **settings: Any):
        super().__init__(nargs=0, default=argparse.SUPPRESS, **settings)
        self.level = level

    def __call__(self, *_: object) -> None:
        """Show messages of the option's level and above."""
        show(self.level)


def add_device(args: argparse.ArgumentParser) -> None:
    """Add what computes."""
    args.add_argument(
        "--device",
        default="auto",
        choices=["auto", "cpu", "cuda"],
        help="default: a GPU if one works",
    )


def wrong_arguments(name: str, message: str) -> NoReturn:
    """End with a mistake in the arguments, in one line; argparse would print the usage before it."""
    logger.error(f"{name}: error: {message}; {name} --help tells the arguments")
    sys.exit(MISTAKE)


def place(text: str) -> str:
    """Read an argument that names a file or a folder; argparse tells which argument it is."""
    if not text.strip():
        raise argparse.ArgumentTypeError(
            f"got {text!r}, an empty name; expected that of a file or a folder"
        )
    return text


def channel(word: str) -> int | None:
    """Read the number of a channel; None for the mean of all."""
    if word == "mean":
        return None
    if not (word.isascii() and word.isdigit() and int(word[:9]) < 1024):
        raise argparse.ArgumentTypeError(f"got {word!r}, expected a number from 0, or mean")
    return int(word)


def count(word: str) -> int:
    """Read a number from 1 on."""
    if not (word.isascii() and word.isdigit() and 0 < int(word[:9]) <= 100_000):
        raise argparse.ArgumentTypeError(f"got {word!r}, expected a number from 1 on")
    return int(word)


class Terminated(KeyboardInterrupt):
    """SIGTERM, as an exception: what is being written is removed on the way out."""

    status = 128 + signal.SIGTERM


def command(
    main: Callable[[list[str]], int | None] | None = None, *, hint: str = AGAIN
) -> Callable[..., Any]:
    """Wrap a command's main(arguments), which returns its exit status, or None for 0.

    hint     what to do after Ctrl-C; an exception with a `hint` of its own knows better

    A UserError, a place without rights or room, and a memory that is too small become one line on
    stderr and status 2, without a traceback. SIGTERM stops as Ctrl-C does.
    """
    if main is None:
        return functools.partial(command, hint=hint)

    @functools.wraps(main)
    def run(arguments: list[str] | None = None) -> None:
        open_standard_streams()
        show()
        with stoppable() as asked:
            try:
                status = main(sys.argv[1:] if arguments is None else arguments)
                flush()
            except BrokenPipeError:  # the reader of stdout has left, as `| head` does
                discard(sys.stdout)
                status = READER_GONE
            except KeyboardInterrupt as stopped:
                logger.error(f"{name()}: stopped; {getattr(stopped, 'hint', hint)}")
                status = getattr(stopped, "status", 130)
            except SystemExit:  # --help, or a mistake in the arguments
                flush_or_discard()
                raise
            except Exception as error:  # noqa: BLE001 - what is no mistake of the user's is raised again
                if (
                    asked
                ):  # a library has made another error of it, as pydantic does while it is imported
                    logger.error(f"{name()}: stopped; {hint}")
                    sys.exit(128 + asked[0])
                message = mistake(error)
                if message is None:
                    raise
                refuse(message)
        if status:
            sys.exit(status)

    return run


def mistake(error: Exception) -> str | None:
    """Say in one line what the person can do about an error; None if it is a fault of this program."""
    if isinstance(error, UserError):
        return error.as_option()
    if isinstance(error, MemoryError):
        return "out of memory; give it less at once, or a machine with more"
    if isinstance(error, RecursionError):
        return "an input is nested too deeply to be read; is it damaged?"
    if isinstance(error, FileNotFoundError) and not has_folder():
        return "the folder that this command runs in is gone; change to one that is there"
    if isinstance(error, OSError) and error.filename is not None and error.errno in UNWRITABLE:
        return f"{os.fsdecode(error.filename)}: {error.strerror}; choose another place, or fix that"
    return None


def has_folder() -> bool:
    """Whether the working directory is there."""
    try:
        return bool(os.getcwd())
    except OSError:
        return False


def emit(text: str, end: str = "\n") -> None:
    """Print a result on standard output, at once.

    raises   UserError if it can't be written there; BrokenPipeError if its reader has left
    """
    with told():
        print(text, end=end, flush=True)


def flush() -> None:
    """Write what still waits for standard output."""
    with told():
        sys.stdout.flush()


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Within it, make a mistake of the user's of a standard output that can't be written."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno not in STDOUT_FAULTS:
            raise
        discard(sys.stdout)
        why = "it is closed" if error.errno == errno.EBADF else error.strerror
        raise UserError(
            f"standard output can't be written ({why}); what was printed isn't complete"
        ) from None


def flush_or_discard() -> None:
    """Write what still waits for standard output, if that is possible."""
    with contextlib.suppress(UserError, BrokenPipeError):
        flush()


def discard(stream) -> None:
    """Have a stream go nowhere, so that Python's own flush at the end can't fail."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def open_standard_streams() -> None:
    """Fill the places of closed standard streams, where the next file opened would else receive what is printed.

    What is written to a closed stdout fails, as it should; what is said on a closed stderr is lost.
    Both are UTF-8.
    """
    for number, stream in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY if stream == "stderr" else os.O_RDONLY)
            if nowhere != number:
                os.dup2(nowhere, number)
        if getattr(sys, stream) is None:
            mode = "r" if stream == "stdin" else "w"
            opened = open(number, mode, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
            setattr(sys, stream, opened)
    with contextlib.suppress(AttributeError, ValueError):  # a test's own stream
        if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding.lower() != "utf-8":
            sys.stdout.reconfigure(encoding="utf-8")


@contextlib.contextmanager
def stoppable() -> Iterator[list[int]]:
    """Within it, SIGTERM raises Terminated; a second one ends the process at once.

    returns   the signals that asked to stop, as they come
    """
    asked: list[int] = []

    def interrupt(number: int, _frame: object) -> NoReturn:
        asked.append(number)
        raise KeyboardInterrupt

    def terminate(number: int, _frame: object) -> NoReturn:
        signal.signal(number, signal.SIG_DFL)
        asked.append(number)
        raise Terminated

    usual: dict[int, tuple[Handler, Handler]] = {
        signal.SIGINT: (signal.default_int_handler, interrupt),
        signal.SIGTERM: (signal.SIG_DFL, terminate),
    }
    main_thread = threading.current_thread() is threading.main_thread()
    ours = [
        number
        for number, (before, _) in usual.items()
        if main_thread and signal.getsignal(number) == before
    ]
    for number in ours:
        signal.signal(number, usual[number][1])
    try:
        yield asked
    finally:
        for number in ours:
            signal.signal(number, usual[number][0])


def refuse(message: str) -> NoReturn:
    """End with a mistake in one line; bytes of names that aren't UTF-8 are shown as such."""
    logger.error(f"{name()}: {' '.join(message.splitlines())}")
    sys.exit(MISTAKE)


def name() -> str:
    """Name of the command that runs."""
    return os.path.basename(sys.argv[0])
