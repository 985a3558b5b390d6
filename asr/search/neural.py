"""A network as a scorer of the beam search: the attention decoder, or a language model."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor


class Network(Protocol):
    """A decoder; its states have the methods `reorder`, `select` and `merge`, see Scorer."""

    def start(self, H: Tensor, H_lens: Tensor, /) -> Any:
        """Make the state before the start symbol; H (B, T, D), H_lens (B,)."""

    def step(self, y: Tensor, state: Any, /) -> tuple[Tensor, Any]:
        """Read labels y (B, K); return logits (B, K, V) and the new state."""


@dataclass(frozen=True)
class NetworkState:
    """The network's caches, and ln p of the next label (B, K, V); None between reorder and step."""

    caches: Any
    log_probs: Tensor | None


class NetworkScorer:
    """Score by ln p(label | labels before, H)."""

    full, ceiling = True, 0.0

    def __init__(self, network: Network, sos_eos: int):
        self.network, self.sos_eos = network, sos_eos

    def start(self, H: Tensor, H_lens: Tensor) -> NetworkState:
        """Read the start symbol."""
        y = torch.full((len(H), 1), self.sos_eos, device=H.device)
        return self.step(y, NetworkState(self.network.start(H, H_lens), None))

    def score(self, state: NetworkState, candidates: Tensor | None) -> Tensor:
        """(B, K, V), or (B, K, C) of candidates"""
        assert state.log_probs is not None, "step before"
        return state.log_probs if candidates is None else state.log_probs.gather(2, candidates)

    def step(self, y: Tensor, state: NetworkState) -> NetworkState:
        """Run the network on one more label, y (B, K)."""
        logits, caches = self.network.step(y, state.caches)  # (B, K, V)
        return NetworkState(caches, logits.float().log_softmax(-1))

    def reorder(self, state: NetworkState, parents: Tensor) -> NetworkState:
        """Follow the hypotheses' parents, (B, K)."""
        return NetworkState(state.caches.reorder(parents), None)

    def select(self, state: NetworkState, utterances: Tensor) -> NetworkState:
        """Keep some utterances, (B',)."""
        kept = state.log_probs if state.log_probs is None else state.log_probs[utterances]
        return NetworkState(state.caches.select(utterances), kept)

    def merge(self, state: NetworkState, other: NetworkState) -> NetworkState:
        """Put the other's utterances after this state's."""
        return NetworkState(state.caches.merge(other.caches), None)
