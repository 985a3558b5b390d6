"""Files that are whole or absent: written under a temporary name, synced, renamed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from asr.errors import UserError


@contextmanager
def replacing(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success sync it and rename it to `path`, else remove it.

    The temporary name keeps the suffixes of `path`, so that writers which look at them (`.jsonl.gz`) still work.
    raises   UserError if the folder can't be written
    """
    path = Path(path)
    temporary = path.with_name(f".partial-{os.getpid()}-{path.name}")
    make_folder(path.parent)
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except PermissionError as error:
        raise UserError(f"{path}: can't be written ({error.strerror}); choose another output or its rights") from None
    finally:
        temporary.unlink(missing_ok=True)


def make_folder(folder: str | os.PathLike) -> Path:
    """Create a folder and its parents and see that files can be written there.

    raises   UserError that names the folder and the reason
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".partial-{os.getpid()}-probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(f"{folder}: can't write into this folder ({error.strerror}); choose another output") from None
    return folder


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write a UTF-8 text file in one piece."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
