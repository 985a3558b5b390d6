"""Batches of training: utterances of like length together, by total seconds, in an order that a seed decides.

B batch, S samples, U labels.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from asr import audio
from asr.data.manifest import Utterance
from asr.features.noise import uniforms, utterance_seed

PADDING = -1  # of labels


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
        moved = {f.name: getattr(self, f.name) for f in fields(self)}
        return Batch(**{k: v.to(device, non_blocking=True) if torch.is_tensor(v) else v for k, v in moved.items()})


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
        return collate([u.id for u in chosen], waveforms, [self.labels[n] for n in indices], seeds)

    def _waveform(self, utterance: Utterance, speed: float) -> np.ndarray:
        waveform = audio.load(utterance.path, self.rate, utterance.start, utterance.duration)
        return audio.resample(waveform, self.rate * speed, self.rate)


def collate(ids: list[str], waveforms: list[np.ndarray], labels: Sequence[Sequence[int]], seeds: Tensor) -> Batch:
    """Pad waveforms with zeros and labels with -1."""
    pad = torch.nn.utils.rnn.pad_sequence
    return Batch(
        ids,
        pad([torch.from_numpy(w) for w in waveforms], batch_first=True),
        torch.tensor([len(w) for w in waveforms]),
        pad([torch.tensor(y, dtype=torch.long) for y in labels], batch_first=True, padding_value=PADDING),
        torch.tensor([len(y) for y in labels]),
        seeds,
    )


def load(dataset: SpeechDataset, batches: Sequence[Sequence[int]], workers: int, pin: bool = False) -> Iterator[Batch]:
    """Yield the planned batches, read ahead by worker processes; their number changes nothing but the speed."""
    return iter(DataLoader(dataset, batch_size=None, sampler=batches, num_workers=workers, pin_memory=pin))
