"""Parallel texts, two files a split, to checked ones: UTF-8, single spaces, a translation for every line."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from asr.data import texts
from asr.data.manifest import fault_of_text
from asr.errors import UserError, did_you_mean
from asr.files import make_folder, replacing
from asr.outputs import check_folder
from asr.stamp import Stamp
from asr.text.normalize import Convention, convention

MOST = 10_000  # characters of a line: far beyond a sentence


@dataclass(frozen=True)
class TextSplit:
    """A prepared split: its files, pairs of lines, those left out since both sides are empty, words of each side."""

    files: tuple[Path, Path]
    pairs: int
    empty: int
    words: tuple[int, int]

    @property
    def message(self) -> str:
        """Count what was taken and left out."""
        left_out = f", {self.empty} empty ones left out" if self.empty else ""
        files = " and ".join(map(str, self.files))
        return f"{self.pairs} pairs, {self.words[0]} and {self.words[1]} words{left_out}: {files}"


def prepare_texts(
    source: str | os.PathLike,
    out: str | os.PathLike,
    languages: Sequence[str],
    splits: Sequence[str] | None = None,
    normalize: str | None = None,
    force: bool = False,
) -> dict[str, TextSplit] | None:
    """Write `out/<split>.<language>` for each split of a folder with `<split>.<language>` or the same as `.gz`.

    languages   of the source and of the target, as the files' names end
    splits      names; None = all
    normalize   a convention of `asr.text.normalize` to rewrite the texts by; None = NFC and single
                spaces, as tokens have them
    force       replace files of these names in `out` that it didn't make
    returns     the splits, None if all is done already; pairs whose sides are both empty, perhaps by
                the convention, are left out
    raises      UserError if a file is absent or no UTF-8, two have different numbers of lines or no
                pair, or a line is empty on one side alone, has more than MOST characters, or control
                characters
    """
    if len(set(languages)) != 2:
        raise UserError(
            f"got {' '.join(languages) or 'none'}, expected two, as `en de`", argument="languages"
        )
    found = select(find(Path(source), languages), splits, Path(source), languages)
    names = {split: tuple(f"{split}.{language}" for language in languages) for split in found}
    inputs = [path for pair in found.values() for path in pair]
    stamp = Stamp(
        out, "asr-prepare", {"languages": list(languages), "normalize": normalize}, inputs
    )
    made = [Path(out) / name for pair in names.values() for name in pair]
    if stamp.is_current() and all(path.is_file() for path in made):
        return None
    check_folder("OUT", out, [path.name for path in made], "asr-prepare", inputs, force)
    rewrite = convention(normalize or "none")
    for pair in found.values():
        if not sum(bool(sides[0]) for sides in clean(pair, rewrite)):  # a mistake shows now
            raise UserError(f"{pair[0]} and {pair[1]}: have no pair of sentences; fill them")
    folder = make_folder(out)
    stamp.begin()
    written = {}
    for split, pair in found.items():
        first, second = (folder / name for name in names[split])
        written[split] = write(pair, (first, second), rewrite)
    stamp.write()
    return written


def find(source: Path, languages: Sequence[str]) -> dict[str, tuple[Path, Path]]:
    """Find the splits that have a file of each language."""
    if not source.is_dir():
        raise UserError(
            f"{source}: no such folder; expected one with train.{languages[0]} and others"
        )
    files: dict[str, dict[str, Path]] = {}
    pattern = re.compile(rf"(.+)\.({'|'.join(map(re.escape, languages))})(\.gz)?")
    for path in sorted(source.iterdir()):
        if named := pattern.fullmatch(path.name):
            files.setdefault(named[1], {}).setdefault(named[2], path)
    one, other = languages
    return {split: (sides[one], sides[other]) for split, sides in files.items() if len(sides) == 2}


def select(
    found: dict[str, tuple[Path, Path]],
    wanted: Sequence[str] | None,
    source: Path,
    languages: Sequence[str],
) -> dict[str, tuple[Path, Path]]:
    """Select splits.

    raises   UserError for a missing one, or if there are none
    """
    if not found:
        raise UserError(
            f"{source}: no split has files of both languages; expected names as train.{languages[0]} and "
            f"train.{languages[1]}, or with .gz"
        )
    for name in wanted or ():
        if name not in found:
            near = did_you_mean(name, found)
            raise UserError(
                f"got {name!r}, no such split{near}; there are {', '.join(found)}",
                argument="splits",
            )
    return {name: found[name] for name in wanted or found}


def write(pair: tuple[Path, Path], files: tuple[Path, Path], rewrite: Convention) -> TextSplit:
    """Write one split."""
    pairs, empty, words = 0, 0, [0, 0]
    with ExitStack() as held:
        into = [held.enter_context(replacing(file)) for file in files]
        opened = [held.enter_context(path.open("w", encoding="utf-8")) for path in into]
        for sides in clean(pair, rewrite):
            if not sides[0]:
                empty += 1
                continue
            pairs += 1
            for n, text in enumerate(sides):
                opened[n].write(text + "\n")
                words[n] += len(text.split())
    return TextSplit(files, pairs, empty, (words[0], words[1]))


def clean(pair: tuple[Path, Path], rewrite: Convention) -> Iterator[list[str]]:
    """Read two files side by side; yield the pairs, with texts on both sides or on none."""
    for lines in beside(pair):
        sides = [rewrite(line.text) for line in lines]
        check_sides(lines, sides)
        yield sides


def beside(pair: tuple[Path, Path]) -> Iterator[tuple[texts.Text, texts.Text]]:
    """Read two files line by line."""
    for first, second in zip_longest(*map(texts.read, pair)):
        if first is None or second is None:
            longer, shorter = (pair[1], pair[0]) if first is None else pair
            last = (first or second).line - 1
            raise UserError(
                f"{shorter}: got {last} lines, but {longer} has more; a line of each is a translation of the other's"
            )
        yield first, second


def check_sides(lines: Sequence[texts.Text], sides: Sequence[str]) -> None:
    """Refuse a pair that has one side alone, or a side that is no sentence."""
    for line, text, other in zip(lines, sides, sides[::-1], strict=True):
        if bool(text) < bool(other):
            given = line.text.strip()
            what = f"normalization leaves nothing of {given[:60]!r}" if given else "empty"
            raise UserError(
                f"{line.where}: {what}, but its translation isn't empty; fill both sides, or take the line out of "
                "both files"
            )
        if fault := fault_of_text(text):
            raise UserError(f"{line.where}: the text {fault}; remove that")
        if len(text) > MOST:
            raise UserError(
                f"{line.where}: got {len(text)} characters, expected {MOST} or fewer; put each sentence on a line"
            )
