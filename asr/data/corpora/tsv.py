"""Anybody's own recordings: lines of `id path text [speaker]`, tab-separated, with or without a header."""

from pathlib import Path

from asr.data.corpora.corpus import Corpus, Item, contents, read_lines, tidy
from asr.errors import UserError

LAYOUT = "a .tsv file, or a folder with one .tsv a split (train.tsv, dev.tsv, test.tsv), of `id path text [speaker]`"
NEEDED = ("id", "path", "text")
COLUMNS = (*NEEDED, "speaker")


def read(source: Path) -> Corpus:
    """Read one .tsv, or each .tsv of a folder; a split has its file's name.

    Paths are relative to the .tsv's folder. Under a header the columns stand in any order and others are ignored;
    without one they are id, path, text and perhaps speaker.
    raises   UserError if there's no such file, or with file:line for a malformed one
    """
    if not source.exists():
        raise UserError(f"{source}: no such file or folder; expected {LAYOUT}")
    files = [source] if source.is_file() else sorted(source.glob("*.tsv"))
    if not files:
        raise UserError(f"{source}: {contents(source)}; expected {LAYOUT}")
    return Corpus({file.stem: read_split(file) for file in files})


def read_split(file: Path) -> list[Item]:
    """Read one .tsv."""
    rows = [(where, [cell.strip() for cell in line.split("\t")]) for where, line in read_lines(file)]
    if not rows:
        raise UserError(f"{file}: is empty; expected {LAYOUT}")
    columns = header(*rows[0])
    if columns is None:
        refuse_other_header(file, *rows[0])
        return [item(file, where, cells, COLUMNS, len(NEEDED)) for where, cells in rows]
    least = 1 + max(columns.index(name) for name in NEEDED)
    return [item(file, where, cells, columns, least) for where, cells in rows[1:]]


def header(where: str, cells: list[str]) -> tuple[str, ...] | None:
    """Take the first line as the names of the columns if it holds two of id, path, text; None if it's data."""
    names = tuple(cell.lower() for cell in cells)
    missing = [name for name in NEEDED if name not in names]
    if len(missing) == 1:
        raise UserError(f"{where}: expected a column {missing[0]!r} in the header, got {', '.join(names)}")
    return None if missing else names


def refuse_other_header(file: Path, where: str, cells: list[str]) -> None:
    """Raise a UserError if the first line names columns, but others: what ought to be a path is no sound file's."""
    if len(cells) >= len(NEEDED) and not Path(cells[1]).suffix and not (file.parent / cells[1]).exists():
        got, wanted = ", ".join(cells), ", ".join(NEEDED)
        raise UserError(f"{where}: got {got}, expected a recording, or a header with the names {wanted}, speaker")


def item(file: Path, where: str, cells: list[str], columns: tuple[str, ...], least: int) -> Item:
    """Read one line of at least `least` cells."""
    if not least <= len(cells) <= len(columns):
        count = f"{least} to {len(columns)}" if least < len(columns) else f"{least}"
        raise UserError(f"{where}: {len(cells)} tab-separated columns; expected {count}: {', '.join(columns)}")
    values = dict(zip(columns, cells, strict=False))
    for name in ("id", "path"):
        if not values[name]:
            raise UserError(f"{where}: the {name} is empty")
    return Item(values["id"], file.parent / values["path"], tidy(values["text"]), values.get("speaker") or None, where)
