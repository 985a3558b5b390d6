"""What the hub's client says of a repository, and the errors that it raises."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from asr.errors import UserError, reason

COMMIT = "[0-9a-f]{40}"  # in full: the hub needn't be asked
TOO_MANY_REQUESTS, SERVER_ERRORS = 429, range(500, 600)


def sizes_of(about: Any) -> dict[str, int]:
    """Bytes by name of the files of a repository, of which the hub says this."""
    return {file.rfilename: file.size or 0 for file in about.siblings}


def is_unreachable(error: Exception) -> bool:
    """Tell whether the hub gave no answer, or none about the model."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status is None or status == TOO_MANY_REQUESTS or status in SERVER_ERRORS


@contextmanager
def refusing(given: str, fix: str = "") -> Iterator[None]:
    """Make a UserError of what the hub's client raises.

    given   the name that was asked for
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # noqa: BLE001 - of the network, of HTTP, of the hub
        raise UserError(
            f"{given}: no such folder here, and the Hugging Face Hub doesn't give it ({reason(error)}){fix}"
        ) from None
