"""Batches of training, of utterances and of sentences, read as they are planned (asr/data/bucketing.py).

B batch, S samples, U labels.
"""

import contextlib
import math
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import pairwise
from multiprocessing.util import Finalize
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from asr.audio import load as audio
from asr.data.augmentation import Augment
from asr.data.concatenation import Ids, JoinedUtterances
from asr.data.manifest import Utterance
from asr.data.texts import Sentences
from asr.errors import UserError
from asr.ops import PADDING
from asr.seeding import uniforms, utterance_seed
from asr.text.bpe_dropout import BPEDropout

# Sizes of batches are rounded up, so that they recur, and with them what oneDNN has prepared for
# their shapes: 188 → 163 ms a step on a CPU in one run
STEP_SECONDS, STEP_LABELS = 0.32, 4
SHM, SHM_SHARE = "/dev/shm", 0.8  # where workers leave batches, and what they may take of it
# what a terminal, a scheduler or the system asks a training with
TRAINING_SIGNALS = {
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)
}


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


def utterance_seeds(seed: int, epoch: int, ids: Iterable[str]) -> Tensor:
    """Seeds of the utterances' augmentation in an epoch, (B,) int64."""
    return torch.tensor([utterance_seed(seed, epoch, name) for name in ids], dtype=torch.int64)


def draw_speeds(seeds: Tensor, speeds: Sequence[float]) -> np.ndarray:
    """Draw one of the factors of speed perturbation for each seed, (B,) float64."""
    drawn = uniforms(~seeds, 1)[:, 0].numpy()
    return np.asarray(speeds, dtype=np.float64)[(drawn * len(speeds)).astype(np.int64)]


@dataclass(frozen=True)
class Segmentation:
    """Segments texts by BPE dropout, drawn by the utterance's seed, so that CTC can still align them.

    dropout   of a tokenizer
    frames    (N,) int, encoder frames that each utterance has at least, at any speed
    """

    dropout: BPEDropout
    frames: np.ndarray

    def __call__(self, n: int, text: str, plain: Ids, seed: int) -> Ids:
        """Draw token ids of the n-th utterance.

        plain    its ids without dropout: they stay where its frames are too few for what was drawn
        seed     of the utterance's augmentation
        """
        drawn = self.dropout.encode(text, Random(utterance_seed(seed, "pieces")).random)
        # a blank between equal ones
        needed = len(drawn) + sum(one == other for one, other in pairwise(drawn))
        return plain if 0 in drawn or needed > self.frames[n] else drawn


class SpeechDataset(Dataset):
    """Batches of one epoch, read from sound files in worker processes.

    utterances:  with their recordings
    labels:      token ids of each
    rate:        Hz
    seed, epoch: of the augmentation; `speeds` are the factors of speed perturbation, one drawn an
    utterance
    segmentation:  draws other token ids
    joined:      the epoch's examples; without them each utterance is one
    augment:     changes an example's waveform after that
    """

    def __init__(
        self,
        utterances: Sequence[Utterance],
        labels: Sequence[Ids],
        rate: int,
        seed: int = 0,
        epoch: int = 0,
        speeds: Sequence[float] = (1.0,),
        augment: Augment | None = None,
        segmentation: Segmentation | None = None,
        joined: JoinedUtterances | None = None,
    ):
        self.utterances, self.labels, self.rate = utterances, labels, rate
        self.seed, self.epoch, self.speeds, self.augment = seed, epoch, speeds, augment
        self.segmentation, self.joined = segmentation, joined

    def __getitem__(self, indices: Sequence[int]) -> Batch:
        """Read and pad the examples of one batch, each named by its first utterance."""
        ids = [self.utterances[n].id for n in indices]
        seeds = utterance_seeds(self.seed, self.epoch, ids)
        examples = [self._example(*facts) for facts in zip(indices, seeds.tolist(), strict=True)]
        waveforms, labels = map(list, zip(*examples, strict=True))
        return collate(
            ids, waveforms, labels, seeds, (round(STEP_SECONDS * self.rate), STEP_LABELS)
        )

    def _example(self, n: int, seed: int) -> tuple[np.ndarray, Ids]:
        """The waveform and the token ids of the example that begins with utterance n."""
        members = self.joined.members(n) if self.joined else [n]
        utterances = [self.utterances[m] for m in members]
        seeds = utterance_seeds(self.seed, self.epoch, [u.id for u in utterances])
        speeds = draw_speeds(seeds, self.speeds).tolist()
        waveforms = list(map(self._waveform, utterances, speeds))
        labels = list(map(self._labels, members, utterances, seeds.tolist()))
        waveform, ids = waveforms[0], labels[0]
        if self.joined:
            waveform = self.joined.waveform(n, waveforms, self.rate, seed)
            ids = self.joined.labels([u.text for u in utterances], labels)
        return self.augment(waveform, self.rate, seed) if self.augment else waveform, ids

    def _waveform(self, utterance: Utterance, speed: float) -> np.ndarray:
        place = utterance.start, utterance.duration, utterance.channel
        waveform = audio.load(utterance.path, self.rate, *place)
        return audio.resample(waveform, self.rate * speed, self.rate)

    def _labels(self, n: int, utterance: Utterance, seed: int) -> Ids:
        plain = self.labels[n]
        return self.segmentation(n, utterance.text, plain, seed) if self.segmentation else plain


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


def read_ahead_limits(workers: int, size: float) -> tuple[int, int | None]:
    """How many workers can read, and batches that each reads ahead, in the shared memory that is free.

    A container has 64 MB unless told otherwise, and where it is full, the system kills a worker.

    size  bytes of a batch
    """
    if not workers:
        return 0, None
    free = shutil.disk_usage(SHM).free if os.path.isdir(SHM) else math.inf
    fit = SHM_SHARE * free / max(size, 1)
    return max(1, int(min(workers, fit))), 2 if 2 * workers <= fit else 1


def load(
    dataset: SpeechDataset,
    batches: Iterable[Sequence[int]],
    workers: int,
    pin: bool = False,
    size: float = 0.0,
) -> Iterator[Batch]:
    """Yield the planned batches, read ahead by worker processes; their number changes nothing but the speed.

    pin      in memory from which a GPU can fetch them by itself
    size     of the largest batch, bytes, about
    raises   UserError if a recording has become unreadable
    """
    workers, ahead = read_ahead_limits(workers, size)
    if workers:
        _end_with_the_trainer()
    with _signals_held():
        stream = iter(
            DataLoader(
                _Telling(dataset),
                batch_size=None,
                sampler=batches,
                num_workers=workers,
                pin_memory=pin,
                prefetch_factor=ahead,
                worker_init_fn=_obey_the_trainer,
            )
        )
    try:
        for batch in stream:
            if isinstance(batch, UserError):
                raise UserError(*batch.args)
            yield batch
    finally:
        del stream  # an error's traceback holds this frame, and would with it hold the workers


@lru_cache(maxsize=1)
def _end_with_the_trainer() -> None:
    """See to it that this process, when it ends, ends its workers: multiprocessing asks by SIGTERM, and waits."""

    def end() -> None:
        for child in filter(lambda child: child.daemon, multiprocessing.active_children()):
            child.kill()

    Finalize(None, end, exitpriority=0)


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Let signals wait while workers start, who inherit that: there is no moment in which one could end them.

    A mask holds for its own thread only, and a signal that another thread takes runs the handler in
    the main one. A handler that raises there would leave the loader half made.
    """
    masks = hasattr(signal, "pthread_sigmask")  # not on Windows
    before = signal.pthread_sigmask(signal.SIG_BLOCK, TRAINING_SIGNALS) if masks else set()
    held: list[int] = []
    handlers = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in TRAINING_SIGNALS:
                if signal.getsignal(number) is not None:  # else another language's, and lost
                    handlers[number] = signal.signal(number, lambda number, _: held.append(number))
        yield
    finally:
        if masks:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in held:
            signal.raise_signal(number)


def _obey_the_trainer(_worker: int) -> None:
    """Leave a terminal's or a scheduler's signals to the process that trains: it ends its workers when it has saved."""
    for number in TRAINING_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


class _Telling(Dataset):
    """Hands a UserError back as a value, for DataLoader would wrap it into its worker's traceback."""

    def __init__(self, dataset: SpeechDataset):
        self.dataset = dataset

    def __getitem__(self, indices: Sequence[int]) -> Batch | UserError:
        try:
            return self.dataset[indices]
        except UserError as error:
            return error


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


def collate_sentences(sentences: Sentences, indices: Sequence[int]) -> SentenceBatch:
    """Pad the chosen sentences to the longest."""
    labels, chosen = sentences.labels, np.asarray(indices)
    lens = labels.lens_of(chosen)
    steps = np.arange(lens.max())  # (U,)
    inside = steps < lens[:, None]  # (B, U)
    Y = np.full(inside.shape, PADDING, dtype=np.int64)
    Y[inside] = labels.values[(labels.offsets[chosen][:, None] + steps)[inside]]
    return SentenceBatch(torch.from_numpy(Y), torch.from_numpy(lens))
