"""Where the files of a part are, and how far the work on it has come."""

import os
from dataclasses import dataclass
from pathlib import Path

from asr.download.sources import Part
from asr.errors import UserError

WORK = ".download"  # folder for unfinished work, within the corpus folder


@dataclass(frozen=True)
class Place:
    """A part in a corpus folder."""

    folder: Path
    part: Part

    @property
    def target(self) -> Path:
        """The result, which gets this name once it is complete."""
        return self.folder / self.part.target

    @property
    def kept(self) -> Path:
        """The archive, if the user has put it here or wants to keep it."""
        return self.folder / self.part.file

    @property
    def archive(self) -> Path:
        """The file being downloaded."""
        return self.folder / WORK / self.part.file

    @property
    def unpacked(self) -> Path:
        """The folder being unpacked."""
        return self.folder / WORK / self.part.name

    def nested(self) -> list[Path]:
        """List the archives within the target that are still to unpack."""
        return (
            sorted(path for path in self.target.glob(self.part.nested) if path.is_file())
            if self.part.nested
            else []
        )

    def look(self) -> None:
        """Check that anything with the name of the target or the archive is of the right kind.

        raises   UserError
        """
        kind = "a folder" if self.part.unpacked else "a file"
        right = self.target.is_dir() if self.part.unpacked else self.target.is_file()
        if os.path.lexists(self.target) and not right:
            raise UserError(
                f"{self.target}: exists and isn't {kind}; move it away: {self.part.name} needs that name"
            )
        if self.target.is_dir() and not any(self.target.iterdir()):
            raise UserError(
                f"{self.target}: exists and is empty; remove it, so that {self.part.name} is fetched"
            )
        if os.path.lexists(self.kept) and not self.kept.is_file():
            found = "a folder" if self.kept.is_dir() else "not a regular file"
            raise UserError(
                f"{self.kept}: is {found}; move it away, so that {self.part.name} is fetched"
            )

    def done(self) -> bool:
        """Tell whether nothing is left to do."""
        return self.target.exists() and not self.nested() and not self.archive.exists()

    def to_fetch(self) -> int:
        """Return the bytes that are still to fetch."""
        if self.target.exists() or self.kept.exists():
            return 0
        here = self.archive.stat().st_size if self.archive.exists() else 0
        return max(0, self.part.bytes - here)

    def to_unpack(self) -> int:
        """Return the bytes that unpacking will add."""
        if not self.target.exists():
            return self.part.unpacked
        return (
            sum(path.stat().st_size for path in self.nested())
            * self.part.unpacked
            // self.part.bytes
        )
