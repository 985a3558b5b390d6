"""What an epoch's batches of utterances hold: their waveforms and token ids, drawn for the epoch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from asr.audio import load as audio
from asr.data.augmentation import Augment
from asr.data.batches import Batch, collate
from asr.data.concatenation import Ids, JoinedUtterances
from asr.data.manifest import Utterance
from asr.seeding import uniforms, utterance_seed
from asr.text.bpe_dropout import BPEDropout

# Sizes of batches are rounded up, so that they recur, and with them what oneDNN has prepared for
# their shapes: 188 → 163 ms a step on a CPU in one run
STEP_SECONDS, STEP_LABELS = 0.32, 4


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
