"""The attention decoder as a scorer of the beam search."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor


class Decoder(Protocol):
    """A decoder with caches: `start(H, H_lens, K)` makes a state, `step(y (B·K,), state)` gives logits (B·K, V)."""

    start: Callable
    step: Callable


@dataclass(frozen=True)
class AttentionState:
    """The decoder's caches, and ln p of the next label, (B, K, V) float32."""

    caches: Any
    log_probs: Tensor


class AttentionScorer:
    """ln p(label | labels before, H) by a decoder."""

    full = True

    def __init__(self, decoder: Decoder, H: Tensor, H_lens: Tensor):
        self.decoder, self.H, self.H_lens = decoder, H, H_lens

    def start(self, y: Tensor) -> AttentionState:
        """Project the encoder's keys and values, read the start symbol y (B, K)."""
        caches = self.decoder.start(self.H, self.H_lens, y.size(1))
        return self.step(y, AttentionState(caches, self.H.new_empty(0)))

    def score(self, state: AttentionState, candidates: Tensor | None) -> Tensor:
        """(B, K, V), or (B, K, C) of candidates"""
        return state.log_probs if candidates is None else state.log_probs.gather(2, candidates)

    def select(self, state: AttentionState, utterances: Tensor) -> AttentionState:
        """Keep some utterances, (B',)."""
        K = state.log_probs.size(1)
        return AttentionState(state.caches.select(utterances, K), state.log_probs[utterances])

    def reorder(self, state: AttentionState, parents: Tensor) -> AttentionState:
        """Follow the hypotheses' parents, (B, K); the log-probabilities are stale until `step`."""
        B, K, _ = state.log_probs.shape
        rows = (parents + torch.arange(B, device=parents.device).unsqueeze(1) * K).flatten()  # (B·K',)
        return AttentionState(state.caches.reorder(rows), state.log_probs)

    def step(self, y: Tensor, state: AttentionState) -> AttentionState:
        """Run the decoder on one more label, y (B, K)."""
        logits, caches = self.decoder.step(y.flatten(), state.caches)  # (B·K, V)
        return AttentionState(caches, logits.float().log_softmax(-1).view(*y.shape, -1))
