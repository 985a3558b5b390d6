"""Sentences as token ids, all of a text in one array; and batches of them.

B batch, U labels.
"""

import os
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from asr.data import texts
from asr.data.batches import PADDING, halves, trim
from asr.data.ragged import Ragged, Rows
from asr.data.texts import Text
from asr.errors import UserError, shorten
from asr.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Sentences:
    """A tokenised text. A token takes one, two or four bytes, as the vocabulary needs; a sentence twelve more.

    path     of its file
    labels   token ids of each sentence
    lines    (S,) int32, the line of the file that each stands in
    words    of all sentences together: what white space separates
    empty    lines without a word, skipped
    long     lines of more tokens than were allowed, left out
    """

    path: str
    labels: Ragged
    lines: np.ndarray
    words: int
    empty: int
    long: list[int]

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, n: int) -> np.ndarray:
        return self.labels[n]

    @property
    def lens(self) -> np.ndarray:
        """Tokens of each, (S,)."""
        return self.labels.lens

    @property
    def dropped(self) -> str:
        """List the sentences that were left out, `file:line<TAB>reason` a line, for a file."""
        return "".join(f"{self.path}:{line}\tmore tokens than max_tokens\n" for line in self.long)

    @property
    def message(self) -> str:
        """Count what was taken, skipped and left out."""
        parts = [f"{len(self)} sentences, {self.words} words, {len(self.labels.values)} tokens"]
        parts += [f"{self.empty} empty lines skipped"] * bool(self.empty)
        parts += [f"{len(self.long)} too long ones left out (lines {shorten(map(str, self.long))})"] * bool(self.long)
        return "; ".join(parts)


def tokenise(path: str | os.PathLike, tokenizer: Tokenizer, max_tokens: int | None = None) -> Sentences:
    """Read and tokenise a text file or a manifest's texts (`texts.read`).

    max_tokens  of a sentence; None = any number
    raises      UserError if the file can't be read, holds no sentence, or one with a character that the tokenizer
                doesn't know; names file and line
    """
    return gather(path, texts.read(path), tokenizer, max_tokens)


def gather(
    path: str | os.PathLike, read: Iterable[Text], tokenizer: Tokenizer, max_tokens: int | None = None
) -> Sentences:
    """Tokenise the texts that were read from a file; as `tokenise`."""
    labels, lines, long = Rows.of_ids(tokenizer.vocabulary), array("i"), []
    words = empty = 0
    for where, line, text in read:
        count = len(text.split())
        ids = tokenizer.encode(text, where) if count else []
        if not ids:
            empty += 1
        elif max_tokens and len(ids) > max_tokens:
            long.append(line)
        else:
            labels.append(ids)
            lines.append(line)
            words += count
    if not lines:
        left_out = f"; {len(long)} sentences are longer than max_tokens={max_tokens}" if long else ""
        raise UserError(f"{path}: holds no sentence to use{left_out}")
    return Sentences(str(path), labels.done(), np.asarray(lines), words, empty, long)


@dataclass(frozen=True)
class SentenceBatch:
    """A padded batch: Y (B, U) int64 labels, -1 beyond Y_lens (B,) int64."""

    Y: Tensor
    Y_lens: Tensor

    def __len__(self) -> int:
        return len(self.Y)

    @property
    def elements(self) -> int:
        """What memory grows with: labels, padding included."""
        return self.Y.numel()

    def to(self, device: torch.device) -> "SentenceBatch":
        """Move the tensors to a device."""
        return SentenceBatch(self.Y.to(device), self.Y_lens.to(device))

    def halves(self) -> "tuple[SentenceBatch, SentenceBatch]":
        """The first and the second half of the sentences, each padded to its own longest.

        raises   ValueError for a batch of one
        """
        parts = [(self.Y[half], self.Y_lens[half]) for half in halves(len(self.Y))]
        return tuple(SentenceBatch(trim(Y, Y_lens), Y_lens) for Y, Y_lens in parts)


def collate(sentences: Sentences, indices: Sequence[int]) -> SentenceBatch:
    """Pad the chosen sentences to the longest."""
    chosen = [sentences[n].astype(np.int64) for n in indices]
    Y_lens = torch.tensor([len(y) for y in chosen])
    Y = torch.full((len(chosen), int(Y_lens.max())), PADDING)
    for row, y in zip(Y, chosen, strict=True):
        row[: len(y)] = torch.from_numpy(y)
    return SentenceBatch(Y, Y_lens)
