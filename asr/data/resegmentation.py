"""Other token ids of the same text in each epoch, as training reads it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

import numpy as np

from asr.seeding import utterance_seed
from asr.text.bpe_dropout import BPEDropout

Ids = Sequence[int] | np.ndarray  # of the tokens of a text


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
        needed = len(drawn) + sum(
            one == other for one, other in pairwise(drawn)
        )  # a blank between equal ones
        return plain if 0 in drawn or needed > self.frames[n] else drawn
