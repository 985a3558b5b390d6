"""The result of every corpus reader: the splits as in the corpus' own files, before any sound file is opened."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from asr import files
from asr.errors import UserError, refuse, shorten


@dataclass(frozen=True)
class Item:
    """One transcribed recording as the corpus lists it.

    id:       unique in the corpus
    path:     of the sound file
    text:     words separated by single spaces (Han characters by none)
    speaker:  None if the corpus doesn't say
    where:    file:line of the transcript, for messages
    channel:  of the sound file, from 0; None = the mean of all
    """

    id: str
    path: Path
    text: str
    speaker: str | None
    where: str
    channel: int | None = None


@dataclass(frozen=True)
class Corpus:
    """The splits of a corpus.

    splits:  name → items
    notes:   messages for the user, one sentence each
    dev:     utterances to split off train by default, if the corpus has no dev set
    transcribed:  False for recordings without texts, such as noise
    complete:  split → number of utterances in the complete corpus, as far as it is known
    """

    splits: dict[str, list[Item]]
    notes: list[str] = field(default_factory=list)
    dev: int | None = None
    transcribed: bool = True
    complete: dict[str, int] = field(default_factory=dict)


def read_lines(path: Path) -> list[tuple[str, str]]:
    """Read the non-blank lines of a UTF-8 text file, `.gz` or not, as (file:line, text without line end).

    raises   UserError if it is missing, damaged or not UTF-8, or has a line of more than 16 MB
    """
    lines, number = [], 0
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(files.read_lines(files.unpacked(file, path), path), 1):
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                lines.append((f"{path}:{number}", text.rstrip("\r\n")))
    except UnicodeDecodeError as error:
        byte = f"0x{error.object[error.start]:02x}"
        raise UserError(
            f"{path}:{number}: not UTF-8 (byte {byte}); convert it, for example with iconv -t UTF-8"
        ) from None
    except files.DAMAGED as error:
        raise UserError(f"{path}: damaged after line {number} ({error}); copy it again") from None
    except OSError as error:
        raise UserError(f"{path}: can't be read ({error.strerror})") from None
    return [(where, text) for where, text in lines if text.strip()]


def tidy(text: str) -> str:
    """Strip a text and separate its words by single spaces."""
    return " ".join(text.split())


def wrong_layout(source: Path, expected: str) -> UserError:
    """Make the error for a folder with another layout than the corpus'."""
    found = (
        "no such folder"
        if not source.exists()
        else "not a folder"
        if not source.is_dir()
        else contents(source)
    )
    return UserError(f"{source}: {found}; expected {expected}")


def contents(folder: Path) -> str:
    """List the content of a folder, for a message."""
    names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    return f"holds {shorten(names)}" if names else "is empty"


def refuse_untranscribed(audio: Iterable[Path], items: Iterable[Item]) -> None:
    """Raise a UserError that names the sound files which no transcript mentions."""
    known = {item.path for item in items}
    untold = sorted(str(path) for path in audio if path not in known)
    refuse(untold, "sound files without a transcript", "add their transcripts or remove the files")
