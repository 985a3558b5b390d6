"""The user's mistake as a value: one message that says what, where, got, expected and the fix."""

import difflib
import re
from collections.abc import Iterable


class UserError(Exception):
    """A mistake in the user's input. Commands print its message without a traceback and exit with status 2.

    argument   name of the function's argument that is wrong, if one is; a command writes it as its
               option
    """

    def __init__(self, message: str, argument: str = ""):
        super().__init__(f"{argument}: {message}" if argument else message)
        self.message, self.argument = message, argument

    def as_option(self) -> str:
        """Return the message for the person at the terminal: with arguments, also those in `…`, as options.

        >>> UserError("got 9, expected at most `beam_size`", argument="n_best").as_option()
        '--n-best: got 9, expected at most --beam-size'
        """
        message = re.sub(r"`([a-z_]+)`", lambda found: _option(found[1]), self.message)
        return f"{_option(self.argument)}: {message}" if self.argument else message


def _option(argument: str) -> str:
    return f"--{argument.replace('_', '-')}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Say the nearest known name, as `; did you mean 'dim'?`, or nothing when none is near.

    >>> did_you_mean("dmi", ["dim", "heads"])
    "; did you mean 'dim'?"
    """
    near = difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


def shorten(names: Iterable[str], most: int = 5) -> str:
    """List names for a message: the first few, then how many more."""
    names = list(names)
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def reason(error: BaseException) -> str:
    """Say in one line what another library's error says, or else its kind.

    >>> reason(ValueError("not found\\n  at /x")), reason(KeyError())
    ('not found', 'KeyError')
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0].strip()


def refuse(faults: Iterable[str], what: str, fix: str) -> None:
    """Raise one UserError that counts the faults and lists the first; do nothing when there's none."""
    faults = list(faults)
    if faults:
        raise UserError(f"{what} ({len(faults)}): {shorten(faults)}; {fix}")


def repeated(names: Iterable[str]) -> list[str]:
    """List names each time that they come again.

    >>> repeated(["a", "b", "a", "a"])
    ['a', 'a']
    """
    seen: set[str] = set()
    again = []
    for name in names:
        if name in seen:
            again.append(name)
        seen.add(name)
    return again
