"""What all commands share: a parser's looks, and the user's mistake as one line and exit status 2."""

import argparse
import functools
import os
import sys
from collections.abc import Callable
from typing import NoReturn

from asr import __version__
from asr.errors import UserError
from asr.files import UNWRITABLE


def parser(name: str, description: str, epilog: str = "") -> argparse.ArgumentParser:
    """Make a command's parser: description from the first line on, examples at the end, --version."""
    parser = argparse.ArgumentParser(
        prog=name, description=description, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"{name} {__version__}")
    return parser


def command(main: Callable[[list[str]], None]) -> Callable[..., None]:
    """Wrap a command's main(arguments): a UserError, or a place without rights or room, becomes one line on stderr.

    The exit status is 2 then, and there is no traceback.
    """

    @functools.wraps(main)
    def run(arguments: list[str] | None = None) -> None:
        try:
            main(sys.argv[1:] if arguments is None else arguments)
        except UserError as error:
            refuse(str(error))
        except KeyboardInterrupt as stopped:
            print(f"{os.path.basename(sys.argv[0])}: stopped; run the same command again to go on", file=sys.stderr)
            sys.exit(getattr(stopped, "status", 130))
        except BrokenPipeError:  # the reader of stdout has left, as `| head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(141)
        except OSError as error:
            if error.filename is None or error.errno not in UNWRITABLE:
                raise
            refuse(f"{error.filename}: {error.strerror}; choose another place, or mend that")

    return run


def refuse(message: str) -> NoReturn:
    """End with a mistake in one line; bytes of names that aren't UTF-8 are shown as such."""
    shown = message.encode("utf-8", "backslashreplace").decode("utf-8")
    print(f"{os.path.basename(sys.argv[0])}: {shown}", file=sys.stderr)
    sys.exit(2)


def say(message: str) -> None:
    """Tell the person at the terminal; stdout is for results."""
    print(message, file=sys.stderr, flush=True)
