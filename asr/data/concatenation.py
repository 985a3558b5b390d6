"""Training examples of several utterances in a row, with pauses between them and silence around them.

A long recording is cut at its pauses, so a piece may hold several sentences, and it begins and ends
with more silence or less than the corpus' utterances do. A model that never heard that runs words
together where sentences meet, and hears letters in the silence at the edges.

N utterances. Only (seed, epoch, utterance) decide what is drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from asr.config import Settings
from asr.seeding import another, uniforms, utterance_seed
from asr.text.normalize import join_han
from asr.text.tokenizer import Tokenizer

Ids = Sequence[int] | np.ndarray  # of the tokens of a text

QUIETEST_DB, LOUDEST_DB = -80.0, -50.0  # of the noise that stands for silence: quiet rooms


class ConcatenationSettings(Settings):
    """Utterances that follow each other in the manifest, in one example."""

    probability: float = Field(0.3, ge=0, lt=1)  # that an utterance is joined to the one before it
    max_seconds: float = Field(20.0, gt=0)  # of joined utterances
    min_pause: float = Field(0.1, ge=0)  # seconds between two, and what CTC needs for a blank
    max_pause: float = Field(1.0, le=10)
    max_edge: float = Field(0.3, ge=0, le=10)  # seconds before the first and after the last
    # earlier epochs go without: single utterances teach more in little time
    from_epoch: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _ordered(self):
        if self.min_pause > self.max_pause:
            raise ValueError(
                f"min_pause: got {self.min_pause:g}, expected max_pause ({self.max_pause:g}) or less"
            )
        return self


@dataclass(frozen=True)
class JoinedUtterances:
    """The examples of an epoch.

    tokenizer  of the texts
    counts     (N,) int64, utterances of the example that begins with each; 0 for those within one
    before     (N,) float64, seconds of silence before each utterance
    after      (N,) float64, seconds of silence after each utterance, where it is an example's last
    durations  (N,) float64, seconds of the example that begins with each; 0 for those within one
    """

    tokenizer: Tokenizer
    counts: np.ndarray
    before: np.ndarray
    after: np.ndarray
    durations: np.ndarray

    @property
    def firsts(self) -> np.ndarray:
        """The utterances that begin an example, in order."""
        return np.flatnonzero(self.counts)

    def members(self, n: int) -> range:
        """The utterances of the example that begins with utterance n."""
        return range(n, n + int(self.counts[n]))

    def waveform(self, n: int, waveforms: Sequence[np.ndarray], rate: int, seed: int) -> np.ndarray:
        """Join the waveforms of the example that begins with utterance n.

        waveforms  (S,) float32 each, of its members
        seed       of the example
        returns    (S',) float32
        """
        members = self.members(n)
        silences = [*(self.before[m] for m in members), self.after[members[-1]]]
        samples = [round(seconds * rate) for seconds in silences]
        noise = np.split(faint_noise(sum(samples), seed), np.cumsum(samples)[:-1])
        parts = [part for pair in zip(noise[:-1], waveforms, strict=True) for part in pair]
        return np.concatenate([*parts, noise[-1]])

    def labels(self, texts: Sequence[str], labels: Sequence[Ids]) -> Ids:
        """Join token ids (U,) of texts, with the ids that stand between them."""
        seams = [[], *(between(self.tokenizer, a, b) for a, b in pairwise(texts))]
        parts = zip(seams, labels, strict=True)
        return np.fromiter(chain.from_iterable(chain(*pair) for pair in parts), dtype=np.int64)


@dataclass(frozen=True)
class Concatenation:
    """Draws the examples of each epoch.

    tokenizer    of the texts
    most_tokens  of joined utterances
    least_pause  seconds with which CTC can align what is joined, see `least_pause`
    """

    settings: ConcatenationSettings
    tokenizer: Tokenizer
    most_tokens: int
    least_pause: float

    def draw(self, durations: np.ndarray, tokens: np.ndarray, seeds: Tensor) -> JoinedUtterances:
        """Draw an epoch's examples: each utterance is in one of them, the first or behind the one before it.

        durations  (N,) seconds of the utterances, at their drawn speeds
        tokens     (N,) int64, of each
        seeds      (N,) int64, of (seed, epoch, utterance id)
        """
        s = self.settings
        chance, pause, head, tail = uniforms(another(~seeds), 4).numpy().T
        least, most = max(s.min_pause, self.least_pause), max(s.max_pause, self.least_pause)
        pauses = least + (most - least) * pause
        sizes = np.stack([durations + pauses, tokens + 1], 1)  # (N, 2)
        begins = _begins(chance < s.probability, sizes, pauses, (s.max_seconds, self.most_tokens))
        ends = np.append(begins[1:], True)
        firsts = np.flatnonzero(begins)
        before = np.where(begins, s.max_edge * head, pauses)
        after = np.where(ends, s.max_edge * tail, 0.0)
        counts, totals = np.zeros(len(durations), dtype=np.int64), np.zeros(len(durations))
        counts[firsts] = np.diff([*firsts, len(durations)])
        totals[firsts] = np.add.reduceat(before + durations + after, firsts)
        return JoinedUtterances(self.tokenizer, counts, before, after, totals)


def between(tokenizer: Tokenizer, a: str, b: str) -> list[int]:
    """The token ids between those of two texts in a row, such as a space's; none if their tokens just follow."""
    last, first = a.split()[-1], b.split()[0]
    text = join_han(f"{last} {first}")
    if tokenizer.unknown(text):  # the space, which no text of one word has
        return []
    head, tail, joint = map(tokenizer.encode, (last, first, text))
    middle = joint[len(head) : len(joint) - len(tail)]
    return middle if head + middle + tail == joint else []


def least_pause(shortest: int, hop: int, rate: int) -> float:
    """Seconds between two utterances with which they have a frame more than each alone, for a blank or a space.

    An utterance of S samples has (S - shortest) // hop + 1 frames.

    shortest   samples of the first frame of the encoder
    hop        samples from one frame to the next
    rate       Hz
    """
    return max(0, 2 * hop - shortest + 3) / rate  # three for what resampling and pauses round


def _begins(
    follows: np.ndarray, sizes: np.ndarray, pauses: np.ndarray, most: tuple[float, int]
) -> np.ndarray:
    """Which utterances begin an example: those that were not drawn to follow, or would make one too long.

    sizes   (N, 2): seconds and tokens, with the pause and the space before each
    most    of both
    """
    begins, seconds, tokens = np.ones(len(follows), dtype=bool), 0.0, 0.0
    rows = zip(follows.tolist(), sizes.tolist(), pauses.tolist(), strict=True)
    for n, (drawn, (own_seconds, own_tokens), pause) in enumerate(rows):
        fits = seconds + own_seconds <= most[0] and tokens + own_tokens <= most[1]
        begins[n] = not (n and drawn and fits)
        if begins[n]:
            seconds, tokens = own_seconds - pause, own_tokens - 1
        else:
            seconds, tokens = seconds + own_seconds, tokens + own_tokens
    return begins


def faint_noise(samples: int, seed: int) -> np.ndarray:
    """White noise whose level is drawn, uniform in dB of full scale: (samples,) float32."""
    [level] = uniforms(torch.tensor([utterance_seed(seed, "silence")]), 1)[0].tolist()
    scale = 10 ** ((QUIETEST_DB + (LOUDEST_DB - QUIETEST_DB) * level) / 20)
    drawn = np.random.default_rng(utterance_seed(seed, "faint noise"))
    return scale * drawn.standard_normal(samples, dtype=np.float32)
