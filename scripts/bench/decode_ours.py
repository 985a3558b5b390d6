"""Our side of decode.py; see decoding.py."""

import torch
from torch import Tensor

from asr.device import keep_memory
from asr.transcription.encoding import encode_features
from asr.transcription.searcher import for_search
from scripts.bench import decoding, ours, workload


class Ours:
    """Batches as they come. The 30th step scores the end of hypotheses of 29 labels."""

    labels = workload.STEPS - 1

    def __init__(self, args):
        self.steps, self.precision = 0, args.precision
        keep_memory()  # as asr-decode does
        self.model = for_search(ours.build_endless(args.device), args.precision)
        ours.count_steps(self.model, self._count)

    def _count(self):
        self.steps += 1

    def encode(self, X: Tensor, X_lens: Tensor) -> tuple[Tensor, Tensor]:
        """X (B, T, F), X_lens (B,) → H (B, T', D), H_lens (B,)"""
        encoded = encode_features(self.model.encoder, X, X_lens, self.precision)
        return encoded.H, encoded.H_lens

    def search(self, encoded: tuple[Tensor, Tensor], joint: bool) -> list[int]:
        """Lengths of the best hypotheses."""
        H, H_lens = encoded
        limits = torch.full_like(H_lens, self.labels)
        nbests = ours.search(self.model, H, H_lens, limits, joint)
        return [len(nbest[0].tokens) for nbest in nbests]


if __name__ == "__main__":
    decoding.serve(Ours)
