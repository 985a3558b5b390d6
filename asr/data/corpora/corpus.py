"""What every corpus reader gives: the splits as the corpus' own files state them, before any sound file is opened."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from asr.errors import UserError, shorten


@dataclass(frozen=True)
class Item:
    """One transcribed recording as the corpus lists it.

    id:       unique in the corpus
    path:     of the sound file
    text:     words separated by single spaces (Han characters by none)
    speaker:  None if the corpus doesn't say
    where:    file:line of the transcript, for messages
    """

    id: str
    path: Path
    text: str
    speaker: str | None
    where: str


@dataclass(frozen=True)
class Corpus:
    """The splits of a corpus.

    splits:  name → items
    notes:   what the person should know, one sentence each
    dev:     utterances to carve from train where the corpus has no dev set and the caller doesn't say otherwise
    transcribed:  False for recordings without texts, as of noise
    complete:  split → utterances that it has where the corpus is complete, of the splits for which that is known
    """

    splits: dict[str, list[Item]]
    notes: list[str] = field(default_factory=list)
    dev: int | None = None
    transcribed: bool = True
    complete: dict[str, int] = field(default_factory=dict)


def read_lines(path: Path) -> list[tuple[str, str]]:
    """Read a UTF-8 text file as (file:line, text without the line's end) of each line that isn't blank.

    raises   UserError if it's absent or not UTF-8; names the line
    """
    try:
        content = path.read_bytes()
        lines = content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        byte = f"0x{content[error.start]:02x}"
        raise UserError(f"{path}:{line}: not UTF-8 (byte {byte}); convert it, as with iconv -t UTF-8") from None
    except OSError as error:
        raise UserError(f"{path}: can't be read ({error.strerror})") from None
    return [(f"{path}:{n}", line.rstrip("\r")) for n, line in enumerate(lines, 1) if line.strip()]


def tidy(text: str) -> str:
    """Strip a text and put single spaces between its words."""
    return " ".join(text.split())


def wrong_layout(source: Path, expected: str) -> UserError:
    """Say that a folder isn't the corpus, and what the corpus looks like."""
    found = "no such folder" if not source.exists() else "not a folder" if not source.is_dir() else contents(source)
    return UserError(f"{source}: {found}; expected {expected}")


def contents(folder: Path) -> str:
    """List what a folder holds, for a message."""
    names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    return f"holds {shorten(names)}" if names else "is empty"


def refuse(faults: Iterable[str], what: str, fix: str) -> None:
    """Raise one UserError that counts the faults and lists the first; do nothing when there's none."""
    faults = list(faults)
    if faults:
        raise UserError(f"{what} ({len(faults)}): {shorten(faults)}; {fix}")


def refuse_untranscribed(audio: Iterable[Path], items: Iterable[Item]) -> None:
    """Raise a UserError that names the sound files which no transcript mentions."""
    known = {item.path for item in items}
    untold = sorted(str(path) for path in audio if path not in known)
    refuse(untold, "sound files without a transcript", "add their transcripts or take the files away")
