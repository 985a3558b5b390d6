"""Sentences and their translations: two tokenized texts whose lines belong together."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from asr.data import manifest
from asr.data.batches import PairBatch, collate_sentences
from asr.data.columns import longest
from asr.data.texts import Sentences, is_manifest, none_to_use
from asr.errors import UserError, shorten


def sides(paths: str | Sequence[str]) -> list[tuple[str, int | None]]:
    """File and column of the source and of the target: of [source, target], or of one table of both."""
    given = [paths] if isinstance(paths, str) else list(paths)
    return [(path, None) for path in given] if len(given) == 2 else [(given[0], n) for n in (0, 1)]


@dataclass(frozen=True)
class Pairs:
    """Pairs of a source and a target sentence.

    source, target  tokenized texts
    rows            which sentences of each belong together, (P,) each; None: all, in order
    """

    source: Sentences
    target: Sentences
    rows: tuple[np.ndarray, np.ndarray] | None = None

    def __len__(self) -> int:
        return len(self.target) if self.rows is None else len(self.rows[0])

    def rows_of(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where some pairs' sentences stand in each text, (M,) each."""
        return (
            (indices, indices)
            if self.rows is None
            else (self.rows[0][indices], self.rows[1][indices])
        )

    def lens_of(self, indices: np.ndarray) -> np.ndarray:
        """Tokens of the longer side of some pairs, (M,)."""
        source, target = self.rows_of(indices)
        return np.maximum(self.source.labels.lens_of(source), self.target.labels.lens_of(target))

    @property
    def lens(self) -> np.ndarray:
        """Tokens of the longer side of each pair, (P,)."""
        return self.lens_of(np.arange(len(self)))

    def longest(self, n: int) -> list[int]:
        """The n longest pairs, the longest first; all if there are fewer."""
        return longest(self, n)

    def lines(self, indices: Sequence[int]) -> list[int]:
        """Where some pairs stand in their files."""
        return self.target.lines[self.rows_of(np.asarray(indices))[1]].tolist()

    def batch(self, indices: Sequence[int]) -> PairBatch:
        """Pad some pairs."""
        source, target = (rows.tolist() for rows in self.rows_of(np.asarray(indices)))
        return PairBatch(
            collate_sentences(self.source, source), collate_sentences(self.target, target)
        )

    @property
    def path(self) -> str:
        """The files."""
        return ", ".join(dict.fromkeys((self.source.path, self.target.path)))

    @property
    def long(self) -> list[int]:
        """Lines with a side of more tokens than were allowed, left out."""
        return sorted({*self.source.long, *self.target.long})

    @property
    def dropped(self) -> str:
        """List the pairs that were left out, `file:line<TAB>reason` a line, for a file."""
        return "".join(
            f"{side.path}:{line}\tmore tokens than max_tokens\n"
            for side in (self.source, self.target)
            for line in side.long
        )

    @property
    def message(self) -> str:
        """Count what was taken, skipped and left out."""
        tokens = [len(side.labels.values) for side in (self.source, self.target)]
        parts = [f"{len(self)} pairs of sentences, {tokens[0]} and {tokens[1]} tokens"]
        parts += [f"{self.target.empty} empty ones skipped"] * bool(self.target.empty)
        parts += [
            f"{len(self.long)} too long ones left out (lines {shorten(map(str, self.long))})"
        ] * bool(self.long)
        return "; ".join(parts)


def join(source: Sentences, target: Sentences) -> Pairs:
    """Join the sentences of two texts, line by line; what one of them leaves out as too long is left out.

    raises   UserError if they have different numbers of lines, one has a line where the other has
             none, they are manifests with other ids, or there is no pair; names file and line
    """
    check_ids(source.path, target.path)
    counts = [len(side) + len(side.long) + side.empty for side in (source, target)]
    if counts[0] != counts[1]:
        raise UserError(
            f"{source.path} and {target.path}: got {counts[0]} and {counts[1]} lines, expected as many: a line of "
            "the target translates the same line of the source"
        )
    alike = np.array_equal(source.lines, target.lines)
    pairs = Pairs(source, target, None if alike else shared_rows(source, target))
    if not len(pairs):
        raise none_to_use(pairs.path, len(pairs.long), None)
    return pairs


def shared_rows(source: Sentences, target: Sentences) -> tuple[np.ndarray, np.ndarray]:
    """Find which sentences of two texts stand in the same lines, (P,) each.

    raises   UserError if a line is empty in one text and not in the other
    """
    for one, other in ((source, target), (target, source)):
        alone = np.setdiff1d(one.lines, other.lines, assume_unique=True)
        if len(alone := np.setdiff1d(alone, other.long, assume_unique=True)):
            full = "one column" if one.path == other.path else f"line {alone[0]} of {one.path}"
            raise UserError(
                f"{other.path}:{alone[0]}: empty, but {full} isn't "
                f"({len(alone)} such lines); fill both sides of a pair, or empty both"
            )
    _, *rows = np.intersect1d(source.lines, target.lines, assume_unique=True, return_indices=True)
    return rows[0], rows[1]


def check_ids(source: str, target: str) -> None:
    """See that two manifests have the same ids in the same order, since their lines belong together; texts have no ids.

    raises   UserError at the first that differ
    """
    if source == target or not (is_manifest(source) and is_manifest(target)):
        return
    pairs = zip(manifest.read(source), manifest.read(target), strict=False)
    for line, (one, other) in enumerate(pairs, 1):
        if one.id != other.id:
            raise UserError(
                f"{target}: got {other.id!r} as utterance {line}, expected {one.id!r}, as in {source}; give both the "
                "same ids in the same order, or files of text"
            )
