"""Padded batches: of utterances, of sentences, and of sentences with their translations.

B batch, S samples, U labels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from asr.data.concatenation import Ids
from asr.data.texts import Sentences
from asr.ops import PADDING


@dataclass(frozen=True)
class Batch:
    """A padded batch.

    ids:        utterance ids
    waveforms:  (B, S) float32 in [-1, 1] (augmented ones may leave it), zeros beyond wave_lens
    wave_lens:  (B,) int64, samples
    Y:          (B, U) int64, labels, -1 beyond Y_lens
    Y_lens:     (B,) int64
    seeds:      (B,) int64, of (seed, epoch, utterance id), for augmentation on the device
    multiples:  what S and U are rounded up to multiples of
    on_cpu:     wave_lens and Y_lens as they were before the batch moved to a device
    """

    ids: list[str]
    waveforms: Tensor
    wave_lens: Tensor
    Y: Tensor
    Y_lens: Tensor
    seeds: Tensor
    multiples: tuple[int, int] = (1, 1)
    on_cpu: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def elements(self) -> int:
        """What memory grows with: samples, padding included."""
        return self.waveforms.numel()

    def to(self, device: torch.device) -> "Batch":
        """Move the tensors to a device."""
        moved = self._each(lambda tensor: tensor.to(device, non_blocking=True))
        return replace(moved, on_cpu=(self.wave_lens, self.Y_lens))

    def pin_memory(self) -> "Batch":
        """Put the tensors where a GPU can fetch them by itself; DataLoader asks for it."""
        return self._each(Tensor.pin_memory)

    def halves(self) -> "tuple[Batch, Batch]":
        """The first and the second half of the examples, each padded to its own longest.

        raises   ValueError for a batch of one
        """
        first, second = map(self._part, halves(len(self.ids)))
        return first, second

    def _part(self, part: slice) -> "Batch":
        wave_lens, Y_lens = self.wave_lens[part], self.Y_lens[part]
        waveforms = trim(self.waveforms[part], wave_lens, self.multiples[0])
        Y = trim(self.Y[part], Y_lens, self.multiples[1])
        return Batch(
            self.ids[part], waveforms, wave_lens, Y, Y_lens, self.seeds[part], self.multiples
        )

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        values: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        tensors = {k: change(v) for k, v in values.items() if torch.is_tensor(v)}
        return Batch(**(values | tensors))


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
        first, second = map(self._part, halves(len(self.Y)))
        return first, second

    def _part(self, part: slice) -> "SentenceBatch":
        Y_lens = self.Y_lens[part]
        return SentenceBatch(trim(self.Y[part], Y_lens), Y_lens)


@dataclass(frozen=True)
class PairBatch:
    """Sentences and their translations, each side padded by itself."""

    source: SentenceBatch
    target: SentenceBatch

    def __len__(self) -> int:
        return len(self.target)

    @property
    def elements(self) -> int:
        """What memory grows with: tokens of both sides, padding included."""
        return self.source.elements + self.target.elements

    def to(self, device: torch.device) -> "PairBatch":
        """Move the tensors to a device."""
        return PairBatch(self.source.to(device), self.target.to(device))

    def halves(self) -> "tuple[PairBatch, PairBatch]":
        """The first and the second half of the pairs; see `SentenceBatch.halves`."""
        first, second = zip(self.source.halves(), self.target.halves(), strict=True)
        return PairBatch(*first), PairBatch(*second)


def collate(
    ids: list[str],
    waveforms: list[np.ndarray],
    labels: Sequence[Ids],
    seeds: Tensor,
    multiples: tuple[int, int] = (1, 1),
) -> Batch:
    """Pad waveforms with zeros and labels with -1, to the batch's longest, rounded up to the multiples."""
    wave_lens = torch.tensor([len(w) for w in waveforms])
    Y_lens = torch.tensor([len(y) for y in labels])
    padded = torch.zeros(len(ids), _round_up(int(wave_lens.max()), multiples[0]))
    Y = torch.full((len(ids), _round_up(int(Y_lens.max()), multiples[1])), PADDING)
    for n, (waveform, y) in enumerate(zip(waveforms, labels, strict=True)):
        padded[n, : len(waveform)] = torch.from_numpy(waveform)
        Y[n, : len(y)] = torch.tensor(y, dtype=torch.long)
    return Batch(ids, padded, wave_lens, Y, Y_lens, seeds, multiples)


def collate_sentences(sentences: Sentences, indices: Sequence[int]) -> SentenceBatch:
    """Pad the chosen sentences to the longest."""
    labels, chosen = sentences.labels, np.asarray(indices)
    lens = labels.lens_of(chosen)
    steps = np.arange(lens.max())  # (U,)
    inside = steps < lens[:, None]  # (B, U)
    Y = np.full(inside.shape, PADDING, dtype=np.int64)
    Y[inside] = labels.values[(labels.offsets[chosen][:, None] + steps)[inside]]
    return SentenceBatch(torch.from_numpy(Y), torch.from_numpy(lens))


def halves(examples: int) -> tuple[slice, slice]:
    """The first and the second half of a batch's examples.

    raises   ValueError if there is but one
    """
    if examples < 2:
        raise ValueError(f"a batch of {examples} can't be halved")
    return slice(0, examples // 2), slice(examples // 2, examples)


def trim(X: Tensor, lens: Tensor, multiple: int = 1) -> Tensor:
    """Cut off what stands beyond the longest example, rounded up to a multiple; X (B, T, ...)."""
    return X[:, : _round_up(int(lens.max()), multiple)]


def _round_up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple
