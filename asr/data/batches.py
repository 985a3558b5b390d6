"""Batches of training: utterances of like length together, by total seconds, in an order that a seed decides.

B batch, S samples, U labels.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from asr import audio
from asr.data.manifest import Utterance
from asr.errors import UserError
from asr.features.noise import uniforms, utterance_seed

PADDING = -1  # of labels
# Sizes of batches are rounded up, so that they recur: 188 → 163 ms a step on a CPU in one run; why was not traced
STEP_SECONDS, STEP_LABELS = 0.32, 4


@dataclass(frozen=True)
class Batch:
    """A padded batch.

    ids:        utterance ids
    waveforms:  (B, S) float32 in [-1, 1], zeros beyond wave_lens
    wave_lens:  (B,) int64, samples
    Y:          (B, U) int64, labels, -1 beyond Y_lens
    Y_lens:     (B,) int64
    seeds:      (B,) int64, of (seed, epoch, utterance id), for augmentation on the device
    """

    ids: list[str]
    waveforms: Tensor
    wave_lens: Tensor
    Y: Tensor
    Y_lens: Tensor
    seeds: Tensor

    def to(self, device: torch.device) -> "Batch":
        """Move the tensors to a device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> "Batch":
        """Put the tensors where a GPU can fetch them by itself; DataLoader asks for it."""
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return Batch(**{k: change(v) if torch.is_tensor(v) else v for k, v in values.items()})


def plan(
    durations: Sequence[float], ids: Sequence[str], batch_seconds: float, seed: int, epoch: int
) -> list[list[int]]:
    """Decide an epoch's batches: all utterances once, like lengths together, batches in random order.

    durations:      seconds; ids: utterance ids
    batch_seconds:  of a padded batch, at most (an utterance that is longer stands alone)
    returns         one list of indices a batch; depends on (seed, epoch) and the utterances alone
    """
    durations = np.asarray(durations, dtype=np.float64)
    rng = np.random.default_rng(utterance_seed(seed, "order", epoch))
    order = np.argsort(durations * rng.uniform(0.85, 1.15, len(durations)), kind="stable")  # other company each epoch
    batches, batch, longest = [], [], 0.0
    for index in order.tolist():
        longest = max(longest, durations[index])
        if batch and longest * (len(batch) + 1) > batch_seconds:
            batches.append(batch)
            batch, longest = [], durations[index]
        batch.append(index)
    batches += [batch] if batch else []
    rng.shuffle(batches)
    return batches


class SpeechDataset(Dataset):
    """Batches of one epoch, read from sound files in worker processes.

    utterances:  with their recordings
    labels:      token ids of each
    rate:        Hz
    seed, epoch: of the augmentation; `speeds` are the factors of speed perturbation, one drawn an utterance
    """

    def __init__(
        self,
        utterances: Sequence[Utterance],
        labels: Sequence[Sequence[int]],
        rate: int,
        seed: int = 0,
        epoch: int = 0,
        speeds: Sequence[float] = (1.0,),
    ):
        self.utterances, self.labels, self.rate = utterances, labels, rate
        self.seed, self.epoch, self.speeds = seed, epoch, speeds

    def __getitem__(self, indices: Sequence[int]) -> Batch:
        """Read and pad the utterances of one batch."""
        chosen = [self.utterances[n] for n in indices]
        seeds = torch.tensor([utterance_seed(self.seed, self.epoch, u.id) for u in chosen])
        factors = [self.speeds[int(r * len(self.speeds))] for r in uniforms(~seeds, 1)[:, 0].tolist()]
        waveforms = [self._waveform(u, factor) for u, factor in zip(chosen, factors, strict=True)]
        labels = [self.labels[n] for n in indices]
        return collate([u.id for u in chosen], waveforms, labels, seeds, round(STEP_SECONDS * self.rate), STEP_LABELS)

    def _waveform(self, utterance: Utterance, speed: float) -> np.ndarray:
        waveform = audio.load(utterance.path, self.rate, utterance.start, utterance.duration)
        return audio.resample(waveform, self.rate * speed, self.rate)


def collate(
    ids: list[str],
    waveforms: list[np.ndarray],
    labels: Sequence[Sequence[int]],
    seeds: Tensor,
    samples_step: int = 1,
    labels_step: int = 1,
) -> Batch:
    """Pad waveforms with zeros and labels with -1, to the batch's longest, rounded up to multiples of the steps."""
    wave_lens = torch.tensor([len(w) for w in waveforms])
    Y_lens = torch.tensor([len(y) for y in labels])
    padded = torch.zeros(len(ids), _round_up(int(wave_lens.max()), samples_step))
    Y = torch.full((len(ids), _round_up(int(Y_lens.max()), labels_step)), PADDING)
    for n, (waveform, y) in enumerate(zip(waveforms, labels, strict=True)):
        padded[n, : len(waveform)] = torch.from_numpy(waveform)
        Y[n, : len(y)] = torch.tensor(y, dtype=torch.long)
    return Batch(ids, padded, wave_lens, Y, Y_lens, seeds)


def _round_up(n: int, step: int) -> int:
    return -(-n // step) * step


def load(dataset: SpeechDataset, batches: Sequence[Sequence[int]], workers: int, pin: bool = False) -> Iterator[Batch]:
    """Yield the planned batches, read ahead by worker processes; their number changes nothing but the speed.

    pin      in memory from which a GPU can fetch them by itself
    raises   UserError if a recording has become unreadable
    """
    for batch in DataLoader(_Telling(dataset), batch_size=None, sampler=batches, num_workers=workers, pin_memory=pin):
        if isinstance(batch, UserError):
            raise batch
        yield batch


class _Telling(Dataset):
    """Hands a UserError back as a value, for DataLoader would wrap it into its worker's traceback."""

    def __init__(self, dataset: SpeechDataset):
        self.dataset = dataset

    def __getitem__(self, indices: Sequence[int]) -> Batch | UserError:
        try:
            return self.dataset[indices]
        except UserError as error:
            return error
