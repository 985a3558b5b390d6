"""Where the files of a part stand, and how far it is."""

from dataclasses import dataclass
from pathlib import Path

from asr.download.sources import Part

WORK = ".download"  # folder, within the corpus folder, of what is under way


@dataclass(frozen=True)
class Place:
    """A part in a corpus folder."""

    folder: Path
    part: Part

    @property
    def target(self) -> Path:
        """What the part becomes; it gets this name when it is whole."""
        return self.folder / self.part.target

    @property
    def kept(self) -> Path:
        """The archive, where the person has put it or wants to keep it."""
        return self.folder / self.part.file

    @property
    def archive(self) -> Path:
        """The file under way."""
        return self.folder / WORK / self.part.file

    @property
    def unpacked(self) -> Path:
        """The folder under way."""
        return self.folder / WORK / self.part.name

    def nested(self) -> list[Path]:
        """Archives within the target that are still to unpack."""
        return sorted(self.target.glob(self.part.nested)) if self.part.nested else []

    def done(self) -> bool:
        """Whether nothing is left to do."""
        return self.target.exists() and not self.nested() and not self.archive.exists()

    def to_fetch(self) -> int:
        """Bytes that are still to fetch."""
        if self.target.exists() or self.kept.exists():
            return 0
        here = self.archive.stat().st_size if self.archive.exists() else 0
        return max(0, self.part.bytes - here)

    def to_unpack(self) -> int:
        """Bytes that unpacking will add."""
        if not self.target.exists():
            return self.part.unpacked
        return sum(path.stat().st_size for path in self.nested()) * self.part.unpacked // self.part.bytes
