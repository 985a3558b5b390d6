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
    """The decoder's caches, and its scores of the next label, (B, K, V)."""

    caches: Any
    log_probs: Tensor | None


class AttentionScorer:
    """ln p(label | labels before, H) by a decoder."""

    full = True

    def __init__(self, decoder: Decoder, H: Tensor, H_lens: Tensor):
        self.decoder, self.H, self.H_lens = decoder, H, H_lens

    def start(self, K: int) -> AttentionState:
        """Project the encoder's keys and values."""
        return AttentionState(self.decoder.start(self.H, self.H_lens, K), None)

    def step(self, y: Tensor, state: AttentionState) -> AttentionState:
        """Run the decoder on one more label, y (B, K)."""
        logits, caches = self.decoder.step(y.flatten(), state.caches)  # (B·K, V)
        log_probs = logits.float().log_softmax(-1).view(*y.shape, -1)  # (B, K, V)
        return AttentionState(caches, log_probs)

    def score(self, state: AttentionState, candidates: Tensor | None) -> Tensor:
        """(B, K, V), or (B, K, C) of candidates"""
        return state.log_probs if candidates is None else state.log_probs.gather(2, candidates)

    def reorder(self, state: AttentionState, parents: Tensor) -> AttentionState:
        """Follow the hypotheses' parents, (B, K)."""
        B, K = parents.shape
        rows = (parents + torch.arange(B, device=parents.device).unsqueeze(1) * K).flatten()  # (B·K,)
        return AttentionState(state.caches.reorder(rows), None)

    def select(self, state: AttentionState, utterances: Tensor) -> AttentionState:
        """Keep some utterances."""
        K = state.log_probs.size(1)
        return AttentionState(state.caches.select(utterances, K), state.log_probs[utterances])
