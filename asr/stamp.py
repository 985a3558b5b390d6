"""Finished work, recognized: an output carries a stamp of the arguments and inputs that made it.

A command that finds its output's stamp equal to what it would write now has nothing to do. Nothing
heavy is imported here: a recipe whose work is all done ends in seconds.
"""

import copy
import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from asr import __version__, provenance
from asr.errors import UserError
from asr.files import write_text

_planning = ContextVar("planning", default=False)


class Planned(BaseException):
    """A command has asked, within `planning`, whether its work is done, and goes no further."""

    def __init__(self, stamp: "Stamp", current: bool):
        self.stamp, self.current = stamp, current


@contextmanager
def planning() -> Iterator[None]:
    """Have commands end where they ask their stamp: there `Stamp.is_current` raises Planned."""
    before = _planning.set(True)
    try:
        yield
    finally:
        _planning.reset(before)


class Stamp:
    """The stamp of one output.

    output:     the file or folder that the command makes
    command:    its name
    arguments:  what its result depends on, JSON-like
    inputs:     files (their content counts) and folders (names, sizes and modification times of all
                files in them)
    """

    def __init__(
        self,
        output: str | os.PathLike,
        command: str,
        arguments: Mapping,
        inputs: Iterable[str | os.PathLike],
    ):
        self._begun = time.monotonic()
        self.output = Path(output)
        self.facts: dict[str, Any] = {
            "command": command,
            "version": __version__,
            "arguments": dict(sorted(arguments.items())),
            "inputs": {str(path): fingerprint(Path(path)) for path in inputs},
        }

    @property
    def path(self) -> Path:
        """Where the stamp stands: inside a folder, beside a file."""
        if self.output.is_dir():
            return self.output / ".stamp.json"
        return self.output.with_name(f".{self.output.name}.stamp.json")

    def of(self, output: str | os.PathLike, **arguments: Any) -> "Stamp":
        """Return the stamp of another output, made of the same inputs with further arguments."""
        other = copy.copy(self)
        other.output = Path(output)
        found = dict(sorted((self.facts["arguments"] | arguments).items()))
        other.facts = self.facts | {"arguments": found}
        return other

    def is_current(self) -> bool:
        """True if the output exists and was made by this command from these arguments and inputs.

        raises   Planned within `planning`
        """
        current = self._is_current()
        if _planning.get():
            raise Planned(self, current)
        return current

    def is_finished(self) -> bool:
        """True if the output is current, or would be but for inputs that failed."""
        return self._is_current(but_failures=True)

    def _is_current(self, but_failures: bool = False) -> bool:
        try:
            stamped = json.loads(self.path.read_text())
            stamped.pop("made", None)
            if but_failures and stamped.pop("failed", 0):
                stamped.pop("begun")
            return self.output.exists() and stamped == json.loads(json.dumps(self.facts))
        except (
            OSError,
            ValueError,
            TypeError,
            AttributeError,
        ):  # absent, damaged, or facts that JSON doesn't know
            return False

    def begin(self, **state: int) -> None:
        """Say that the output is being made anew: it is this command's, but not finished.

        state    `failed` where it is written, and that number of inputs have failed
        """
        write_text(self.path, json.dumps(self.facts | {"begun": True} | state, indent=1) + "\n")

    def write(self, **made: float | str) -> None:
        """Stamp the finished output.

        made     figures of its making, which don't identify it; unless given, `seconds` are those
                 since the stamp was begun, `commit` is that of this code, and `hardware` the CPU
        """
        facts: dict[str, float | str] = {
            "seconds": round(time.monotonic() - self._begun, 1),
            "commit": provenance.commit(),
            "hardware": provenance.cpu(),
        }
        write_text(self.path, json.dumps(self.facts | {"made": facts | made}, indent=1) + "\n")


def is_stamped(output: str | os.PathLike) -> bool:
    """Whether an output has a stamp, of whatever work."""
    return Stamp(output, "", {}, []).path.exists()


def maker(output: str | os.PathLike) -> str | None:
    """Name the command that has made an output, or begun to; None if none of this toolkit's did."""
    try:
        return json.loads(Stamp(output, "", {}, []).path.read_text(encoding="utf-8"))["command"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read(output: str | os.PathLike) -> dict:
    """Read the stamp of a finished output: `command`, `arguments`, `inputs`, `made`.

    raises   UserError if there is none
    """
    path = Stamp(output, "", {}, []).path
    try:
        stamped = json.loads(path.read_text())
        return {name: stamped[name] for name in ("command", "arguments", "inputs", "made")}
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"{output}: not finished, its stamp {path.name} is absent or damaged; make it anew"
        ) from None


def fingerprint(path: Path) -> str:
    """Digest of a file's content, or of the names, sizes and modification times of a folder's files."""
    digest = hashlib.sha256()
    if "\0" in str(path):
        return "absent"
    if os.path.isdir(path):  # which doesn't mind missing rights
        for root, folders, names in os.walk(path):
            folders.sort()
            for name in sorted(names):
                file = os.path.join(root, name)
                if not name.startswith("."):
                    broken = not os.path.exists(file)
                    state = os.lstat(file) if broken else os.stat(file)
                    line = f"{os.path.relpath(root, path)}/{name} {state.st_size} {state.st_mtime_ns}\n"
                    digest.update(os.fsencode(line))
    else:
        if os.path.exists(path) and not os.path.isfile(path):
            return "no file"  # a device or a pipe, which may have no end
        try:
            with open(path, "rb") as opened:
                while block := opened.read(1 << 20):
                    digest.update(block)
        except OSError as error:  # who reads it for its content says what is wrong
            return "absent" if isinstance(error, FileNotFoundError) else "unreadable"
    return digest.hexdigest()[:32]


def fingerprint_of_list(paths: Iterable[str]) -> str:
    """Digest of the names, sizes and modification times of many files."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            state = os.stat(path)
            facts = f"{state.st_size} {state.st_mtime_ns}"
        except (OSError, ValueError):
            facts = "absent"
        digest.update(os.fsencode(f"{path}\0{facts}\n"))
    return digest.hexdigest()[:32]
