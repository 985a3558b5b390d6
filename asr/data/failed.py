"""The recordings that asr-prepare left out because their sound file can't be used: OUT/failed.tsv, one per line."""

import os
from dataclasses import dataclass
from pathlib import Path

from asr.audio.load import AudioInfo
from asr.data import manifest as names
from asr.data.corpora.corpus import Item
from asr.errors import UserError
from asr.files import write_text
from asr.stamp import Stamp, read

NAME = "failed.tsv"
HEAD = "id\tpath\treason\n"


@dataclass(frozen=True)
class Failure:
    """A recording that was left out, and the reason."""

    id: str
    path: str
    reason: str

    @classmethod
    def of(cls, item: Item, header: AudioInfo | UserError | None) -> "Failure | None":
        """Describe what is wrong with an item's sound file; None if it can be used."""
        path = str(item.path)
        if fault := names.fault(item.id):
            return cls(item.id, path, f"its name {fault}; rename the file")
        if isinstance(header, UserError):
            return cls(item.id, path, str(header).removeprefix(f"{path}: "))
        if header is None:
            return cls(item.id, path, "is within an archive; expected a file of its own")
        if item.channel is not None and item.channel >= header.channels:
            has = "1 channel" if header.channels == 1 else f"{header.channels} channels"
            return cls(
                item.id, path, f"has {has}, counted from 0; channel {item.channel} was requested"
            )
        return None

    @property
    def line(self) -> str:
        """The failure as a line of the file."""
        return (
            "\t".join(names.shown(part, 1000) for part in (self.id, self.path, self.reason)) + "\n"
        )


def write(out: str | os.PathLike, failures: list[Failure]) -> None:
    """Write OUT/failed.tsv, or remove one of an earlier run."""
    path = Path(out) / NAME
    if failures:
        write_text(path, HEAD + "".join(failure.line for failure in failures))
    elif is_ours(path):
        path.unlink()


def listed(stamp: Stamp) -> list[Failure] | None:
    """Read what an earlier run left out; None if its list is missing or was changed."""
    path = stamp.output / NAME
    try:
        count = int(read(stamp.output)["made"].get("failed", 0))
        lines = path.read_text(encoding="utf-8").splitlines()[1:] if count else []
        failures = [Failure(*line.split("\t")) for line in lines]
    except (UserError, OSError, ValueError, TypeError):
        return None
    return failures if len(failures) == count else None


def is_ours(path: Path) -> bool:
    """Tell whether a file is such a list."""
    try:
        with open(path, "rb") as file:
            return path.name == NAME and file.read(len(HEAD)) == HEAD.encode()
    except OSError:
        return False
