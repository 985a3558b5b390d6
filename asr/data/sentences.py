"""Sentences as token ids, all of a text in one array; and batches of them.

B batch, U labels.
"""

import os
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from asr.data import texts
from asr.data.batches import PADDING
from asr.errors import UserError, shorten
from asr.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Sentences:
    """A tokenised text. A token takes one, two or four bytes, as the vocabulary needs; a sentence twelve more.

    path     of its file
    tokens   ids of all sentences, one behind the other
    offsets  (S + 1,) int64: sentence n is tokens[offsets[n] : offsets[n + 1]]
    lines    (S,) int32, the line of the file that each stands in
    words    of all sentences together: what white space separates
    empty    lines without a word, skipped
    long     lines of more tokens than were allowed, left out
    """

    path: str
    tokens: np.ndarray
    offsets: np.ndarray
    lines: np.ndarray
    words: int
    empty: int
    long: list[int]

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, n: int) -> np.ndarray:
        return self.tokens[self.offsets[n] : self.offsets[n + 1]]

    @property
    def lens(self) -> np.ndarray:
        """Tokens of each, (S,)."""
        return np.diff(self.offsets)

    @property
    def dropped(self) -> str:
        """List the sentences that were left out, `file:line<TAB>reason` a line, for a file."""
        return "".join(f"{self.path}:{line}\tmore tokens than max_tokens\n" for line in self.long)

    @property
    def message(self) -> str:
        """Count what was taken, skipped and left out."""
        parts = [f"{len(self)} sentences, {self.words} words, {len(self.tokens)} tokens"]
        parts += [f"{self.empty} empty lines skipped"] * bool(self.empty)
        parts += [f"{len(self.long)} too long ones left out (lines {shorten(map(str, self.long))})"] * bool(self.long)
        return "; ".join(parts)


def tokenise(path: str | os.PathLike, tokenizer: Tokenizer, max_tokens: int | None = None) -> Sentences:
    """Read and tokenise a text file or a manifest's texts (`texts.read`).

    max_tokens  of a sentence; None = any number
    raises      UserError if the file can't be read, holds no sentence, or one with a character that the tokenizer
                doesn't know; names file and line
    """
    tokens, offsets, lines, long = array("I"), array("q", [0]), array("i"), []
    words = empty = 0
    for where, line, text in texts.read(path):
        count = len(text.split())
        ids = tokenizer.encode(text, where) if count else []
        if not ids:
            empty += 1
        elif max_tokens and len(ids) > max_tokens:
            long.append(line)
        else:
            tokens.extend(ids)
            offsets.append(len(tokens))
            lines.append(line)
            words += count
    if not lines:
        left_out = f"; {len(long)} sentences are longer than max_tokens={max_tokens}" if long else ""
        raise UserError(f"{path}: holds no sentence to use{left_out}")
    narrow = np.min_scalar_type(tokenizer.vocabulary - 1)
    arrays = np.asarray(tokens).astype(narrow), np.asarray(offsets), np.asarray(lines)
    return Sentences(str(path), *arrays, words, empty, long)


@dataclass(frozen=True)
class SentenceBatch:
    """A padded batch: Y (B, U) int64 labels, -1 beyond Y_lens (B,) int64."""

    Y: Tensor
    Y_lens: Tensor

    def to(self, device: torch.device) -> "SentenceBatch":
        """Move the tensors to a device."""
        return SentenceBatch(self.Y.to(device), self.Y_lens.to(device))


def collate(sentences: Sentences, indices: Sequence[int]) -> SentenceBatch:
    """Pad the chosen sentences to the longest."""
    chosen = [sentences[n].astype(np.int64) for n in indices]
    Y_lens = torch.tensor([len(y) for y in chosen])
    Y = torch.full((len(chosen), int(Y_lens.max())), PADDING)
    for row, y in zip(Y, chosen, strict=True):
        row[: len(y)] = torch.from_numpy(y)
    return SentenceBatch(Y, Y_lens)
