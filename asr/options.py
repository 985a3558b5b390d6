"""Options of a function, each declared once: its name, default, help and limits. A command makes its arguments of them.

@dataclass(frozen=True)
class Options:
    beam: int = option(10, "hypotheses of an utterance", least=1)
"""

import math
from collections.abc import Sequence
from dataclasses import Field, field, fields
from numbers import Integral, Real
from typing import Any

from asr.errors import UserError

NUMBERS = {int: (Integral, "a whole number"), float: (Real, "a number")}  # also NumPy's


def option(
    default: Any,
    help: str,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    choices: Sequence[str] = (),
    path: str = "",
) -> Any:
    """Declare an option as the field of a dataclass.

    least, most  limits of a number
    choices      the values that it may have
    path         what a file or folder is called in the help, as FILE; "" if the option isn't one
    """
    facts = {"help": help, "least": least, "most": most, "choices": choices, "path": path}
    return field(default=default, metadata=facts)


def declared(options: Any) -> list[Field]:
    """List the options of a dataclass or of its value, its own before the inherited ones."""
    return sorted(fields(options), key=lambda option: option.kw_only is True)


def paths(options: Any) -> dict[str, str]:
    """Map the names of options that name a file or folder to these, where they are set."""
    values = {
        option.name: getattr(options, option.name)
        for option in fields(options)
        if option.metadata["path"]
    }
    return {name: path for name, path in values.items() if path and isinstance(path, str)}


def check(options: Any) -> None:
    """Check the values: numbers where the default is one, and their choices and limits.

    raises   UserError that names the option
    """
    for option in declared(options):
        value, choices = getattr(options, option.name), option.metadata["choices"]
        if choices and value not in choices:
            raise UserError(
                f"got {value!r}, expected one of {', '.join(choices)}", argument=option.name
            )
        if type(option.default) in NUMBERS:
            kind, what = NUMBERS[type(option.default)]
            if isinstance(value, bool) or not isinstance(value, kind):
                raise UserError(f"got {value!r}, expected {what}", argument=option.name)
        least, most = option.metadata["least"], option.metadata["most"]
        if isinstance(value, Real) and not least <= value <= most:
            raise UserError(f"got {value}, expected {least:g} to {most:g}", argument=option.name)
