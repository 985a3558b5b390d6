"""Texts of a file: plain text with a sentence a line, or a manifest's texts."""

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from asr.data import manifest
from asr.errors import UserError


class Text(NamedTuple):
    """One sentence, as it stands in its file.

    where   file and line, or file and utterance id, for messages
    line    of the file, from 1 (of a manifest: the utterance's number)
    text    not normalised, perhaps empty
    """

    where: str
    line: int
    text: str


def read(path: str | os.PathLike) -> Iterator[Text]:
    """Yield the texts of a UTF-8 text file, `.gz` or not, or of a manifest, `.jsonl` or `.jsonl.gz`.

    raises   UserError if the file is absent, damaged or no UTF-8; names file and line
    """
    if str(path).endswith((".jsonl", ".jsonl.gz")):
        for number, utterance in enumerate(manifest.read(path), 1):
            yield Text(f"{path}: {utterance.id}", number, utterance.text)
        return
    number = 0
    try:
        with (gzip.open if Path(path).suffix == ".gz" else open)(path, "rb") as file:
            for number, line in enumerate(file, 1):
                yield Text(f"{path}:{number}", number, line.decode("utf-8-sig" if number == 1 else "utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such text file; expected a sentence a line, or a manifest (.jsonl.gz)") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}:{number}: not UTF-8 text (byte {error.start + 1} of the line)") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: damaged after line {number} ({error}); copy it again") from None
    except OSError as error:
        raise UserError(f"{path}: can't be read ({error.strerror})") from None
