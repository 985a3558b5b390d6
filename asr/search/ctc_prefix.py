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

in float64, for float32 loses 1e-3 at 800 frames. ψ is a product of matrices: its weights exp(φ[t-1] - max φ) are the
same for all candidates. Before the first frame φ is 0 for the empty hypothesis, else -∞. In padding the blank is
certain: so r_n ⊕ r_b of the last column is the complete score, whatever the length.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from asr.nn.masks import length_mask
from asr.search.scorer import follow

FLOOR = -80.0  # of emissions: what is less likely counts as e^-80, so that all sums stay finite and exact
NEGLIGIBLE = -600.0  # of weights, beside the largest: below, exp is slow (denormal numbers) and adds nothing to a sum
CHUNK = 64  # candidates at once: bounds the memory where all labels are


@dataclass(frozen=True)
class PrefixState:
    """Hypotheses of B utterances.

    utterances  (B,) rows of the scorer's tables
    r_n, r_b    (B, K, T) float64
    prefix      (B, K) float64, ψ
    last        (B, K) the last label, the start symbol at first
    empty       whether no label has been read
    """

    utterances: Tensor
    r_n: Tensor
    r_b: Tensor
    prefix: Tensor
    last: Tensor
    empty: bool


class CTCPrefixScorer:
    """ln p(label | labels before) by CTC: the gain in prefix score.

    log_probs:  (B, T, V) float, normalised; what stands beyond H_lens is never read
    H_lens:     (B,) frames
    sos_eos:    id of the start/end symbol
    """

    full = False

    def __init__(self, log_probs: Tensor, H_lens: Tensor, sos_eos: int):
        self.sos_eos = sos_eos
        self.padding = length_mask(H_lens, log_probs.size(1))  # (B, T)
        x = log_probs.clamp(min=FLOOR).masked_fill(self.padding.unsqueeze(2), FLOOR)
        self.by_label = x.transpose(1, 2).contiguous()  # (B, V, T)
        self.blanks = self.by_label[:, 0].double().masked_fill(self.padding, 0.0)  # (B, T)
        self.blanks = self.blanks.cumsum(1).unsqueeze(1)  # (B, 1, T), B of the formula

    def start(self, y: Tensor) -> PrefixState:
        """The empty hypothesis: all blanks; y (B, K) start symbols."""
        r_b = self.blanks.expand(-1, y.size(1), -1)  # (B, K, T)
        prefix = torch.zeros_like(r_b[..., 0])  # (B, K)
        utterances = torch.arange(len(y), device=y.device)
        return PrefixState(utterances, torch.full_like(r_b, -torch.inf), r_b, prefix, y, True)

    def score(self, state: PrefixState, candidates: Tensor) -> Tensor:
        """Gain in prefix score of candidates (B, K, C); of the end symbol, ln P(g) less the prefix score."""
        before = self._before(state, torch.logaddexp(state.r_n, state.r_b))  # (B, K, T), φ[t-1]
        scores = torch.cat([self._psi(state, before, c) for c in candidates.split(CHUNK, dim=2)], 2)  # (B, K, C)
        last, end = (candidates == label for label in (state.last.unsqueeze(2), self.sos_eos))
        repeated = self._psi(state, self._before(state, state.r_b), state.last.unsqueeze(2))  # (B, K, 1)
        complete = torch.logaddexp(state.r_n[..., -1], state.r_b[..., -1])  # (B, K)
        scores = torch.where(last, repeated, scores)
        scores = torch.where(end, complete.unsqueeze(2), scores)
        prefix = state.prefix.unsqueeze(2)
        return (scores - prefix).masked_fill(prefix.isneginf(), -torch.inf)  # (B, K, C)

    def select(self, state: PrefixState, utterances: Tensor) -> PrefixState:
        """Keep some utterances, (B',)."""
        kept = (x[utterances] for x in (state.utterances, state.r_n, state.r_b, state.prefix, state.last))
        return PrefixState(*kept, state.empty)

    def reorder(self, state: PrefixState, parents: Tensor) -> PrefixState:
        """Follow the hypotheses' parents, (B, K)."""
        r_n, r_b, prefix, last = (follow(x, parents) for x in (state.r_n, state.r_b, state.prefix, state.last))
        return replace(state, r_n=r_n, r_b=r_b, prefix=prefix, last=last)

    def step(self, y: Tensor, state: PrefixState) -> PrefixState:
        """Read labels y (B, K)."""
        repeated = (y == state.last).unsqueeze(2)  # (B, K, 1)
        phi = torch.logaddexp(state.r_n.masked_fill(repeated, -torch.inf), state.r_b)
        before = self._before(state, phi)  # (B, K, T), φ[t-1]
        prefix = self._psi(state, before, y.unsqueeze(2)).squeeze(2)  # (B, K)
        x = self._emissions(state, y)  # (B, K, T)
        S, B = x.cumsum(2), self.blanks[state.utterances]
        r_n = S + (before - _shift(S, 0.0)).logcumsumexp(2)
        r_b = B + (_shift(r_n, -torch.inf) - _shift(B, 0.0)).logcumsumexp(2)
        return PrefixState(state.utterances, r_n, r_b, prefix, y, False)

    def _emissions(self, state: PrefixState, labels: Tensor) -> Tensor:
        """x[t] of labels (B, K, …) → (B, K, …, T) float64"""
        rows = state.utterances.view(-1, *[1] * (labels.dim() - 1))
        return self.by_label[rows, labels].double()

    def _before(self, state: PrefixState, phi: Tensor) -> Tensor:
        """φ[t-1] (B, K, T), -∞ in padding"""
        before = _shift(phi, 0.0 if state.empty else -torch.inf)
        return before.masked_fill(self.padding[state.utterances].unsqueeze(1), -torch.inf)

    def _psi(self, state: PrefixState, before: Tensor, labels: Tensor) -> Tensor:
        """⊕_t φ[t-1] + x[t] of labels (B, K, C) → (B, K, C)"""
        top = before.amax(2, keepdim=True).clamp(min=torch.finfo(before.dtype).min)  # (B, K, 1), finite
        weights = before - top  # (B, K, T)
        weights = weights.masked_fill(weights < NEGLIGIBLE, -torch.inf).exp().unsqueeze(3)
        return (self._emissions(state, labels).exp_() @ weights).squeeze(3).log() + top


def _shift(x: Tensor, first: float) -> Tensor:
    """x[t-1], with `first` before the first frame."""
    return torch.cat([torch.full_like(x[..., :1], first), x[..., :-1]], dim=-1)
