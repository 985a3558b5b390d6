"""The user's own recordings: lines of `id path text [speaker]`, tab-separated, with or without a header."""

import re
from pathlib import Path

from asr.data.corpora.corpus import Corpus, Item, contents, read_lines, tidy
from asr.errors import UserError
from asr.failures import is_list

LAYOUT = "a .tsv file, or a folder with one .tsv per split (train.tsv, dev.tsv, test.tsv), of `id path text [speaker]`"
NEEDED = ("id", "path", "text")
COLUMNS = (*NEEDED, "speaker")


def read(source: Path) -> Corpus:
    """Read one .tsv, or each .tsv in a folder; a split gets the name of its file.

    Paths are relative to the .tsv's folder. With a header, columns can have any order, and unknown
    ones are ignored. Without one, they are id, path, text and perhaps speaker. A column `channel`
    holds numbers from 0, or nothing.
    raises   UserError for a missing file, or a malformed one, with file:line
    """
    if not source.exists():
        raise UserError(f"{source}: no such file or folder; expected {LAYOUT}")
    if not source.is_file() and not source.is_dir():
        raise UserError(f"{source}: is a device or a pipe; expected {LAYOUT}")
    files = [source] if source.is_file() else sorted(source.glob("*.tsv"))
    files = [file for file in files if not is_list(file)]  # if OUT is SOURCE
    if not files:
        raise UserError(f"{source}: {contents(source)}; expected {LAYOUT}")
    return Corpus({file.stem: read_split(file) for file in files})


def read_split(file: Path) -> list[Item]:
    """Read one .tsv."""
    rows = [
        (where, [cell.strip() for cell in line.split("\t")]) for where, line in read_lines(file)
    ]
    if not rows:
        raise UserError(f"{file}: is empty; expected {LAYOUT}")
    columns = header(*rows[0])
    if columns is None:
        refuse_other_header(file, *rows[0])
        return [item(file, where, cells, COLUMNS, len(NEEDED)) for where, cells in rows]
    least = 1 + max(columns.index(name) for name in NEEDED)
    return [item(file, where, cells, columns, least) for where, cells in rows[1:]]


def header(where: str, cells: list[str]) -> tuple[str, ...] | None:
    """Read the first line as a header if it has two of id, path, text; None if it is data."""
    names = tuple(cell.lower() for cell in cells)
    missing = [name for name in NEEDED if name not in names]
    if len(missing) == 1:
        raise UserError(
            f"{where}: expected a column {missing[0]!r} in the header, got {', '.join(names)}"
        )
    twice = [name for name in COLUMNS if names.count(name) > 1]
    if twice and not missing:
        raise UserError(f"{where}: got two columns {twice[0]!r} in the header, expected one")
    return None if missing else names


def refuse_other_header(file: Path, where: str, cells: list[str]) -> None:
    """Raise a UserError if the first line looks like another header: its path isn't that of a sound file."""
    if (
        len(cells) >= len(NEEDED)
        and not Path(cells[1]).suffix
        and not (file.parent / cells[1]).exists()
    ):
        got, wanted = ", ".join(cells), ", ".join(NEEDED)
        raise UserError(
            f"{where}: got {got}, expected a recording, or a header with the names {wanted}, speaker"
        )


def item(file: Path, where: str, cells: list[str], columns: tuple[str, ...], least: int) -> Item:
    """Read one line with at least `least` cells."""
    if not least <= len(cells) <= len(columns):
        count = f"{least} to {len(columns)}" if least < len(columns) else f"{least}"
        sign = (
            next((sign for sign in ",;" if cells[0].count(sign) + 1 >= least), None)
            if len(cells) == 1
            else None
        )
        if sign:
            name = {",": "commas", ";": "semicolons"}[sign]
            raise UserError(
                f"{where}: has {name}, expected tabs between its columns; save the table as .tsv"
            )
        raise UserError(
            f"{where}: {len(cells)} tab-separated columns; expected {count}: {', '.join(columns)}"
        )
    values = dict(zip(columns, cells, strict=False))
    for name in ("id", "path"):
        if not values[name]:
            raise UserError(f"{where}: the {name} is empty")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", values["path"]):
        raise UserError(
            f"{where}: path: got {values['path']}, expected a file; URLs aren't fetched, download it"
        )
    channel = values.get("channel", "")
    if channel and not (channel.isascii() and channel.isdigit() and len(channel) < 5):
        raise UserError(
            f"{where}: channel: got {channel!r}, expected a number from 0 on, or nothing"
        )
    path, text, speaker = (
        file.parent / values["path"],
        tidy(values["text"]),
        values.get("speaker") or None,
    )
    return Item(values["id"], path, text, speaker, where, int(channel) if channel else None)
