"""CTC prefix scores without a loop over frames (the recursion: Watanabe et al. 2017, algorithm 2).

B utterances, T frames, K hypotheses, C candidate labels, V vocabulary; id 0 is the blank.

For a hypothesis g, r_n[t] and r_b[t] are the log-probabilities that the first t + 1 frames read g
and end in a label or in a blank. One more label c, with emissions x[t] = ln p(c at t) and blanks
b[t], is governed by

    φ[t] = r_b[t] ⊕ r_n[t], without r_n where c repeats g's last label       (⊕ = log-add)
    ψ(g·c)  = ⊕_t φ[t-1] + x[t]              the prefix score: all a candidate needs
    r_n'[t] = x[t] + (r_n'[t-1] ⊕ φ[t-1])    for the chosen ones only; in closed form, with S = cumsum x, B = cumsum b:
            = S[t] + logcumsumexp(φ[t-1] - S[t-1])
    r_b'[t] = b[t] + (r_b'[t-1] ⊕ r_n'[t-1])
            = B[t] + logcumsumexp(r_n'[t-1] - B[t-1])

in float64, for float32 loses 1e-3 at 800 frames. ψ is a product of matrices: its weights exp(φ[t-1]
- max φ) are the same for all candidates. Before the first frame φ is 0 for the empty hypothesis,
else -∞. In padding the blank is certain: so r_n ⊕ r_b of the last column is the complete score,
whatever the length.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from asr.ops import gather_beams, length_mask, unpadded_length

FLOOR = (
    -80.0
)  # of emissions: what is less likely counts as e^-80, so that all sums stay finite and exact
NEGLIGIBLE = (
    -600.0
)  # of weights, beside the largest: below, exp is slow (denormal numbers) and adds nothing to a sum
CHUNK = 64  # candidates at once: bounds the memory where all labels are
# emissions of candidates at once, whole utterances' in any case: bounds the memory where many are searched
MOST = {"cpu": 1 << 21, "cuda": 1 << 28}
NOTHING = -1e4  # of ψ beside max φ in float32, where it underflows: the label is possible, but the last to be chosen

OF_UTTERANCES = ("blanks", "padding", "r_n", "r_b", "prefix", "last", "first")  # parts of a state


@dataclass(frozen=True)
class PrefixState:
    """Hypotheses of B utterances.

    rows        (B,) of the tables
    emissions   (N, V, T or more) float32, x of the formula by label, FLOOR in padding
    p           the same, not as logarithms; empty (N, 0, …) unless all labels are scored at once
    blanks      (B, 1, 1 + T) float64, B of the formula: cumsum ln p(blank), from 0 before the first
                frame
    padding     (B, 1, T) bool
    r_n, r_b    (B, K, T) float64
    prefix      (B, K) float64, ψ
    last        (B, K) the last label, the start symbol at first
    first       (B, 1, 1) float64, φ before the first frame: 0 if no label has been read, else -∞
    """

    rows: Tensor
    emissions: Tensor
    p: Tensor
    blanks: Tensor
    padding: Tensor
    r_n: Tensor
    r_b: Tensor
    prefix: Tensor
    last: Tensor
    first: Tensor


class CTCPrefixScorer:
    """Score by CTC's ln p(label | labels before): the gain in prefix score.

    log_probs:  H (B, T, D) → (B, T, V) float, ln posteriors of blank and labels; what stands beyond
                H_lens isn't read
    sos_eos:    id of the start/end symbol
    full:       whether it scores all V labels at once, to pre-select candidates
    """

    ceiling = 0.0

    def __init__(self, log_probs: Callable[[Tensor], Tensor], sos_eos: int, full: bool = False):
        self.log_probs, self.sos_eos, self.full = log_probs, sos_eos, full

    def start(self, H: Tensor, H_lens: Tensor) -> PrefixState:
        """Begin with the empty hypothesis: all blanks."""
        x = self.log_probs(H)  # (B, T, V)
        padding = length_mask(H_lens, x.size(1))  # (B, T)
        blanks = x[..., 0].double().clamp(min=FLOOR).masked_fill(padding, 0.0)  # (B, T)
        blanks = F.pad(blanks.cumsum(1), (1, 0)).unsqueeze(1)  # (B, 1, 1 + T)
        x = x.float().clamp(min=FLOOR).masked_fill_(padding.unsqueeze(2), FLOOR)
        emissions = x.transpose(1, 2).contiguous()  # (B, V, T)
        p = emissions.exp() if self.full else emissions[:, :0]
        first = torch.zeros_like(blanks[..., :1])  # (B, 1, 1)
        prefix = first.squeeze(2)  # (B, 1)
        last = torch.full_like(prefix, self.sos_eos, dtype=torch.long)
        r_b, rows = blanks[..., 1:], torch.arange(len(H), device=H.device)
        none, padding = torch.full_like(r_b, -torch.inf), padding.unsqueeze(1)
        return PrefixState(rows, emissions, p, blanks, padding, none, r_b, prefix, last, first)

    def score(self, state: PrefixState, candidates: Tensor | None) -> Tensor:
        """Return the gain in prefix score of candidates (B, K, C); the end symbol's is ln P(g) less the prefix score.

        For all labels (B, K, V) it is a product of matrices in float32, good enough to pre-select.
        """
        phi = torch.stack(
            [torch.logaddexp(state.r_n, state.r_b), state.r_b]
        )  # of other and of repeated labels
        other, again = zip(*_weights(_before(state, phi)), strict=True)
        repeated = _psi(state, again, state.last.unsqueeze(2))  # (B, K, 1)
        complete = torch.logaddexp(state.r_n[..., -1:], state.r_b[..., -1:])  # (B, K, 1)
        if candidates is None:
            scores = _psi_of_all(state, other)  # (B, K, V)
            scores = scores.scatter(2, state.last.unsqueeze(2), repeated.float())
            scores[..., self.sos_eos] = complete.squeeze(2)
        else:
            parts = [_psi(state, other, c) for c in candidates.split(CHUNK, dim=2)]
            scores = torch.cat(parts, 2) if parts[1:] else parts[0]  # (B, K, C)
            last, end = (candidates == label for label in (state.last.unsqueeze(2), self.sos_eos))
            scores = torch.where(end, complete, torch.where(last, repeated, scores))
        prefix = state.prefix.unsqueeze(2)
        return (scores - prefix).masked_fill(prefix.isneginf(), -torch.inf)  # (B, K, C or V)

    def reorder(self, state: PrefixState, parents: Tensor) -> PrefixState:
        """Follow the hypotheses' parents, (B, K)."""
        r_n, r_b, prefix, last = (
            gather_beams(x, parents) for x in (state.r_n, state.r_b, state.prefix, state.last)
        )
        return replace(state, r_n=r_n, r_b=r_b, prefix=prefix, last=last)

    def select(self, state: PrefixState, utterances: Tensor) -> PrefixState:
        """Keep some utterances, (B',). On a CPU, drop frames that are padding for all.

        A full scorer's tables are copied, others stay in place.
        """
        rows, *kept = (
            x[utterances] for x in (state.rows, *(getattr(state, name) for name in OF_UTTERANCES))
        )
        chosen = _shorter(PrefixState(rows, state.emissions, state.p, *kept))
        if not self.full:
            return chosen
        T = chosen.r_n.size(2)
        tables = [x[rows, :, :T] for x in (state.emissions, state.p)]
        rows = torch.arange(len(rows), device=rows.device)
        return PrefixState(rows, *tables, *(getattr(chosen, name) for name in OF_UTTERANCES))

    def merge(self, state: PrefixState, other: PrefixState) -> PrefixState:
        """Put the other's utterances after this state's, in free rows of its tables if they fit there.

        Don't use `state`, or any state that shares its tables, afterwards.
        """
        T = max(state.r_n.size(2), other.r_n.size(2))
        tables = _written(state, other) or _copied(state, other, T)
        both = [_longer(x, T) for x in (state, other)]
        rest = (torch.cat([getattr(x, n) for x in both]) for n in OF_UTTERANCES)
        return PrefixState(*tables, *rest)

    def step(self, y: Tensor, state: PrefixState) -> PrefixState:
        """Read labels y (B, K)."""
        repeated = (y == state.last).unsqueeze(2)  # (B, K, 1)
        phi = torch.logaddexp(state.r_n.masked_fill(repeated, -torch.inf), state.r_b)
        before = _before(state, phi)  # (B, K, T), φ[t-1]
        prefix = _psi(state, _weights(before), y.unsqueeze(2)).squeeze(2)  # (B, K)
        x = _emissions(state, y).double()  # (B, K, T)
        S, B, B_before = x.cumsum(2), state.blanks[..., 1:], state.blanks[..., :-1]
        zero, none = (
            _constant(value, x.device).expand(len(x), 1, 1) for value in (0.0, -torch.inf)
        )
        r_n = S + (before - _shift(S, zero)).logcumsumexp(2)
        r_b = B + (_shift(r_n, none) - B_before).logcumsumexp(2)
        return replace(state, r_n=r_n, r_b=r_b, prefix=prefix, last=y, first=none)


def _before(state: PrefixState, phi: Tensor) -> Tensor:
    """φ[t-1] (…, B, K, T), -∞ in padding"""
    return _shift(phi, state.first).masked_fill_(state.padding, -torch.inf)


def _psi_of_all(state: PrefixState, weighted: tuple[Tensor, Tensor]) -> Tensor:
    """⊕_t φ[t-1] + x[t] of all labels → (B, K, V) float32, finite"""
    weights, top = weighted  # (B, K, T), (B, K, 1)
    p = state.p[..., : weights.size(2)]
    with torch.autocast(weights.device.type, enabled=False):
        psi = (weights.float() @ p.transpose(1, 2)).log()  # (B, K, V)
    return psi.clamp(min=NOTHING) + top.float()


def _psi(state: PrefixState, weighted: tuple[Tensor, Tensor], labels: Tensor) -> Tensor:
    """⊕_t φ[t-1] + x[t] of labels (B, K, C) → (B, K, C)"""
    weights, top = weighted  # (B, K, T), (B, K, 1)
    size = max(1, labels[:1].numel() * weights.size(2))  # of an utterance's emissions
    some = max(1, MOST[weights.device.type] // size)  # utterances at once
    parts = (x.split(some) for x in (state.rows, labels, weights))
    sums = [
        _picked(state.emissions, rows, c, w.size(2)).exp_().double() @ w.unsqueeze(3)
        for rows, c, w in zip(*parts, strict=True)
    ]
    return torch.cat(sums).squeeze(3).log() + top


def _weights(before: Tensor) -> tuple[Tensor, Tensor]:
    """exp(φ[t-1] - max φ) (…, B, K, T), and max φ (…, B, K, 1), finite."""
    top = before.amax(-1, keepdim=True).clamp(min=torch.finfo(torch.float32).min)
    weights = before - top
    return weights.masked_fill_(weights < NEGLIGIBLE, -torch.inf).exp_(), top


def _emissions(state: PrefixState, labels: Tensor) -> Tensor:
    """x[t] of labels (B, K, …) → (B, K, …, T) float32, a copy"""
    return _picked(state.emissions, state.rows, labels, state.r_n.size(2))


def _picked(x: Tensor, rows: Tensor, labels: Tensor, T: int) -> Tensor:
    """The first T of x (N, V, T or more) at labels (B, K, …) of the utterances at rows (B,) → (B, K, …, T), a copy"""
    return x[..., :T][rows.view(-1, *[1] * (labels.dim() - 1)), labels]


def _written(state: PrefixState, other: PrefixState) -> tuple[Tensor, Tensor, Tensor] | None:
    """Write the other's emissions over those of utterances that have left: rows and tables of both; None: no room."""
    x, new = state.emissions, other.emissions[other.rows]  # (N, V, T), (B', V, T')
    if new.size(2) > x.size(2) or len(new) > len(x) - len(state.rows):
        return None
    used = torch.zeros_like(x[:, 0, 0]).index_fill_(0, state.rows, 1.0)  # (N,)
    free = used.argsort(stable=True)[: len(new)]  # unlike nonzero, waits for nothing
    x.index_copy_(0, free, _padded(new, x.size(2), FLOOR))
    return torch.cat([state.rows, free]), x, state.p


def _copied(state: PrefixState, other: PrefixState, T: int) -> tuple[Tensor, Tensor, Tensor]:
    """Make tables of both, T frames long: rows and tables."""
    x, p = (
        torch.cat([_padded(getattr(s, table)[s.rows], T, value) for s in (state, other)])
        for table, value in (("emissions", FLOOR), ("p", 0.0))
    )
    return torch.arange(len(x), device=x.device), x, p


def _padded(x: Tensor, T: int, value: float) -> Tensor:
    more = T - x.size(2)
    return F.pad(x, (0, more), value=value) if more else x


def _longer(state: PrefixState, T: int) -> PrefixState:
    """Pad to T frames all but the tables."""
    more = (0, T - state.r_n.size(2))
    if not more[1]:
        return state
    r_n, r_b, blanks = (
        F.pad(x, more, mode="replicate") for x in (state.r_n, state.r_b, state.blanks)
    )
    padding = F.pad(state.padding, more, value=True)
    return replace(state, blanks=blanks, padding=padding, r_n=r_n, r_b=r_b)


def _shorter(state: PrefixState) -> PrefixState:
    """Leave out frames that are padding for all; the tables keep them."""
    T = unpadded_length(state.padding)
    r_n, r_b, padding = (x[..., :T] for x in (state.r_n, state.r_b, state.padding))
    return replace(state, blanks=state.blanks[..., : 1 + T], padding=padding, r_n=r_n, r_b=r_b)


def _shift(x: Tensor, first: Tensor) -> Tensor:
    """x[t-1] of x (…, B, K, T), with `first` (B, 1, 1) before the first frame."""
    return torch.cat([first.expand(*x.shape[:-1], 1), x[..., :-1]], dim=-1)


@functools.lru_cache(maxsize=8)
def _constant(value: float, device: torch.device) -> Tensor:
    """Make a number, float64, once."""
    with torch.inference_mode(False):
        return torch.full((), value, dtype=torch.float64, device=device)
