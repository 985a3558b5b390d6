"""The user's mistake as a value: one message that says what, where, got, expected and the fix."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake in the user's input. Commands print its message without a traceback and exit with status 2."""


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
