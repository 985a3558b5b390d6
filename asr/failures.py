"""Recordings that couldn't be used, and the list of them: one line each, with id, path and reason."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from asr.files import write_text
from asr.logging import printable

HEADER = "id\tpath\treason\n"


@dataclass(frozen=True)
class Failure:
    """A recording that couldn't be used, and the reason in one line."""

    id: str
    path: str
    reason: str

    @property
    def line(self) -> str:
        """The failure in one line, whatever the names are, with tabs between its parts."""
        return "\t".join(" ".join(printable(part).split()) for part in astuple(self))


def write(path: Path, failures: Sequence[Failure]) -> None:
    """List what couldn't be used; without failures, remove an earlier list."""
    if failures:
        write_text(path, HEADER + "".join(f"{failure.line}\n" for failure in failures))
    elif is_list(path):
        path.unlink()


def read(path: Path) -> list[Failure]:
    """Read a list.

    raises   OSError, ValueError, TypeError if it is missing or was changed
    """
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    return [Failure(*line.split("\t")) for line in lines]


def is_list(path: Path) -> bool:
    """Tell whether a file is such a list."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(len(HEADER)) == HEADER
    except OSError:
        return False
