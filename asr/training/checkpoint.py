"""Training states: written whole, checked by their hash, the newest good one found again."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import torch

from asr.errors import UserError
from asr.files import make_folder, replacing

FORMAT = 1  # of a state; one of another format is refused
DIGITS = 16  # of the hash, in a state's name
BLOCK = 1 << 20  # bytes


class Checkpoints:
    """A folder of training states, `state-000012-<the first digits of its content's SHA-256>.pt`, numbered as written.

    A state is a dict of tensors, numbers, texts, lists and dicts of them. It is written to a
    temporary name, synced and renamed, so what has its name is whole; what a disk does to it later
    shows in the hash.

    keep     number of the newest that stay
    log      is called with a word about damaged ones
    """

    def __init__(self, folder: Path, keep: int, log: Callable[[str], None]):
        self.folder, self.keep, self.log = make_folder(folder), keep, log
        self.damaged: set[Path] = set()  # known to be

    def save(self, state: dict) -> Path:
        """Write a state; of the older ones that aren't known to be damaged the `keep` - 1 newest stay."""
        for left in self.folder.glob(".partial-*"):  # by a kill
            left.unlink(missing_ok=True)
        number = max((int(path.name.split("-")[1]) for path in self.paths()), default=0) + 1
        hashed = hashlib.sha256()
        named = lambda: self.folder / f"state-{number:06d}-{hashed.hexdigest()[:DIGITS]}.pt"  # noqa: E731
        with replacing(self.folder / "state.pt", named) as temporary, open(temporary, "wb") as file:
            _save({"format": FORMAT, **state}, _Hashing(file, hashed))
        good = [path for path in self.paths() if path not in self.damaged]
        for old in {*self.damaged, *good[self.keep :]}:
            old.unlink(missing_ok=True)
        return named()

    def load(self) -> dict | None:
        """Read the newest state that isn't damaged; None if there is none at all.

        raises   UserError if all are damaged, one can't be read, or the newest good one is of
                 another format
        """
        paths = self.paths()
        for path in paths:
            if (state := self._read(path)) is not None:
                return state
        if paths:
            raise UserError(
                f"{self.folder}: every training state is damaged; remove them to begin this run anew"
            )
        return None

    def paths(self) -> list[Path]:
        """The states, newest first."""
        return sorted(self.folder.glob("state-*-*.pt"), reverse=True)

    def _read(self, path: Path) -> dict | None:
        """Read a state; None, and a word about it, if it is damaged."""
        try:
            if not path.stem.endswith(f"-{digest(path)}"):
                raise ValueError("it isn't what was written")
            state = torch.load(path, map_location="cpu", weights_only=True)
        except OSError as error:
            raise UserError(
                f"{path}: can't be read ({error.strerror}); fix that, or move it away"
            ) from None
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - torch raises many kinds
            self.damaged.add(path)
            self.log(f"{path}: damaged ({str(error).splitlines()[0]}), so it is passed over")
            return None
        if state["format"] != FORMAT:
            raise UserError(
                f"{path}: got format {state['format']}, expected {FORMAT}: another version has written it"
            )
        return state


class _Hashing:
    """A file to write to, and the hash of what it was given."""

    def __init__(self, file: IO[bytes], hashed):
        self.file, self.hashed = file, hashed
        self.error: OSError | None = None  # that ended the writing

    def write(self, data: bytes) -> int:
        self.hashed.update(data)
        try:
            return self.file.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        self.file.flush()


def _save(state: dict, into: Any) -> None:
    """Write a state into a _Hashing file; of a fault the system's error, where torch raises one of its own after it."""
    try:
        torch.save(state, into)
    except RuntimeError:
        if into.error:
            raise into.error from None
        raise


def digest(path: Path) -> str:
    """The first digits of the SHA-256 of a file's content."""
    hashed = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            hashed.update(block)
    return hashed.hexdigest()[:DIGITS]
