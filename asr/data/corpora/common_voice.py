"""Mozilla's Common Voice: a release's folder of one language, with clips/ and one table per split."""

from pathlib import Path

from asr.data.corpora.corpus import Corpus, Item, read_lines, tidy, wrong_layout
from asr.errors import UserError

LAYOUT = "the folder of a language (en/, zh-CN/) of a release, with clips/ and train.tsv, dev.tsv, test.tsv"
SPLITS = ("train", "dev", "test")  # validated.tsv and others overlap with these
NEEDED = ("client_id", "path", "sentence")


def read(source: Path) -> Corpus:
    """Read the official splits that exist; ids are the names of the clips without suffix.

    raises   UserError for another layout, or a malformed line, with file:line
    """
    files = [source / f"{name}.tsv" for name in SPLITS if (source / f"{name}.tsv").is_file()]
    if not files or not (source / "clips").is_dir():
        raise wrong_layout(source, LAYOUT)
    return Corpus({file.stem: read_split(file) for file in files})


def read_split(file: Path) -> list[Item]:
    """Read the table of one split."""
    (where, head), *lines = read_lines(file) or [(str(file), "")]
    names = head.split("\t")
    if missing := [name for name in NEEDED if name not in names]:
        raise UserError(
            f"{where}: got columns {', '.join(names)}, expected also {', '.join(missing)}, as in a release"
        )
    return [item(file, where, line.split("\t"), names) for where, line in lines]


def item(file: Path, where: str, cells: list[str], names: list[str]) -> Item:
    """Read one line."""
    values = dict(zip(names, cells, strict=False))
    if missing := [name for name in NEEDED if not values.get(name)]:
        raise UserError(
            f"{where}: lacks its {missing[0]}; {len(cells)} columns, expected {len(names)}"
        )
    if len(cells) > len(names):
        raise UserError(
            f"{where}: {len(cells)} columns, expected {len(names)}; does the sentence contain a tab?"
        )
    clip = file.parent / "clips" / values["path"]
    return Item(clip.stem, clip, tidy(values["sentence"]), values["client_id"], where)
