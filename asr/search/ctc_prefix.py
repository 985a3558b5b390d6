"""CTC prefix scores without a loop over frames (the recursion: Watanabe et al. 2017, algorithm 2).

B utterances, T frames, K hypotheses, C candidate labels, V vocabulary; id 0 is the blank.

For a hypothesis g, r_n[t] and r_b[t] are the log-probabilities that the first t + 1 frames read g and end in a label
or in a blank. One more label c, with emissions x[t] = ln p(c at t) and blanks b[t], is governed by

    φ[t] = r_b[t] ⊕ r_n[t], without r_n where c repeats g's last label       (⊕ = log-add)
    ψ(g·c)  = ⊕_t φ[t-1] + x[t]              the prefix score: all a candidate needs
    r_n'[t] = x[t] + (r_n'[t-1] ⊕ φ[t-1])    for the chosen ones only; in closed form, with S = cumsum x, B = cumsum b:
            = S[t] + logcumsumexp(φ[t-1] - S[t-1])
    r_b'[t] = b[t] + (r_b'[t-1] ⊕ r_n'[t-1])
            = B[t] + logcumsumexp(r_n'[t-1] - B[t-1])

in float64, for float32 loses 1e-3 at 800 frames. Before the first frame φ is 0 for the empty hypothesis, else -∞.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class PrefixState:
    """Of every hypothesis: r_n, r_b (B, K, T), its prefix score (B, K), last label (B, K) and whether it's empty."""

    r_n: Tensor
    r_b: Tensor
    prefix: Tensor
    last: Tensor
    empty: bool


class CTCPrefixScorer:
    """ln p(label | labels before) by CTC: the gain in prefix score.

    log_probs:  (B, T, V) float, normalised; H_lens (B,) frames
    sos_eos:    id of the start/end symbol
    """

    full = False

    def __init__(self, log_probs: Tensor, H_lens: Tensor, sos_eos: int):
        self.by_label = log_probs.transpose(1, 2).contiguous()  # (B, V, T)
        self.H_lens, self.sos_eos = H_lens, sos_eos
        self.blanks = self.by_label[:, 0].double()  # (B, T)

    def start(self, K: int) -> PrefixState:
        """The empty hypothesis: all blanks."""
        r_b = self.blanks.cumsum(1).unsqueeze(1).expand(-1, K, -1)  # (B, K, T)
        prefix = r_b.new_zeros(r_b.shape[:2])
        last = torch.full_like(prefix, self.sos_eos, dtype=torch.long)
        return PrefixState(torch.full_like(r_b, -torch.inf), r_b, prefix, last, True)

    def step(self, y: Tensor, state: PrefixState) -> PrefixState:
        """Read labels y (B, K); the start symbol leaves the empty hypothesis as it is."""
        if state.empty and bool((y == self.sos_eos).all()):
            return state
        x = self._emissions(y.unsqueeze(2)).squeeze(2)  # (B, K, T)
        before = self._before(state, y.unsqueeze(2)).squeeze(2)  # (B, K, T), φ[t-1]
        prefix = self._sum(before + x)  # (B, K)
        S, B = x.cumsum(2), self.blanks.cumsum(1).unsqueeze(1)
        r_n = S + torch.logcumsumexp(before - _shift(S, 0.0), 2)
        r_b = B + torch.logcumsumexp(_shift(r_n, -torch.inf) - _shift(B, 0.0), 2)
        return PrefixState(r_n, r_b, prefix, y, False)

    def score(self, state: PrefixState, candidates: Tensor | None) -> Tensor:
        """Gain in prefix score of candidates (B, K, C); of the end symbol, ln P(g) less the prefix score."""
        scores = self._sum(self._before(state, candidates) + self._emissions(candidates))  # (B, K, C)
        end = (self.H_lens - 1).view(-1, 1, 1).expand(*state.prefix.shape, 1)
        complete = torch.logaddexp(state.r_n, state.r_b).gather(2, end)  # (B, K, 1)
        scores = torch.where(candidates == self.sos_eos, complete, scores)
        prefix = state.prefix.unsqueeze(2)
        return torch.where(prefix.isneginf(), -torch.inf, scores - prefix)

    def reorder(self, state: PrefixState, parents: Tensor) -> PrefixState:
        """Follow the hypotheses' parents, (B, K)."""
        rows = torch.arange(len(parents), device=parents.device).unsqueeze(1)
        return PrefixState(*(x[rows, parents] for x in (state.r_n, state.r_b, state.prefix, state.last)), state.empty)

    def select(self, state: PrefixState, utterances: Tensor) -> PrefixState:
        """Keep some utterances."""
        self.by_label, self.blanks = self.by_label[utterances], self.blanks[utterances]
        self.H_lens = self.H_lens[utterances]
        return PrefixState(*(x[utterances] for x in (state.r_n, state.r_b, state.prefix, state.last)), state.empty)

    def _emissions(self, labels: Tensor) -> Tensor:
        """x[t] of labels (B, K, C) → (B, K, C, T) float64"""
        rows = torch.arange(len(labels), device=labels.device).view(-1, 1, 1)
        return self.by_label[rows, labels].double()

    def _before(self, state: PrefixState, labels: Tensor) -> Tensor:
        """φ[t-1] of labels (B, K, C) → (B, K, C, T)"""
        first = 0.0 if state.empty else -torch.inf
        either = _shift(torch.logaddexp(state.r_n, state.r_b), first).unsqueeze(2)  # (B, K, 1, T)
        blank = _shift(state.r_b, first).unsqueeze(2)
        repeated = (labels == state.last.unsqueeze(2)).unsqueeze(3)  # (B, K, C, 1)
        return torch.where(repeated, blank, either)

    def _sum(self, x: Tensor) -> Tensor:
        """Log-add over the real frames, (B, K, …, T) → (B, K, …)"""
        padding = torch.arange(x.size(-1), device=x.device) >= self.H_lens.unsqueeze(1)  # (B, T)
        padding = padding.view(len(padding), *[1] * (x.dim() - 2), -1)
        return x.masked_fill(padding, -torch.inf).logsumexp(-1)


def _shift(x: Tensor, first: float) -> Tensor:
    """x[t-1], with `first` before the first frame."""
    return torch.cat([torch.full_like(x[..., :1], first), x[..., :-1]], dim=-1)
