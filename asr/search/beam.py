"""Beam search over many utterances at once, with any weighted sum of scorers.

B utterances still searched, K hypotheses of each, V vocabulary, C candidate labels of a hypothesis, U labels so far,
S scorers, N the length of the n-best list.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from asr.search.hypothesis import Hypothesis
from asr.search.scorer import Scorer, follow

BLANK = 0
LEAVING = 1 / 8  # share of the batch that is done before it leaves: leaving copies what stays


@dataclass(frozen=True)
class Beam:
    """Hypotheses of each utterance.

    Y         (B, K, U) labels, shorter ones padded with blanks
    parts     (B, K, S) float64, scores by scorer
    totals    (B, K) float64, weighted sums; -∞ = no hypothesis
    complete  (B, K) bool, whether the end symbol was among the best continuations
    """

    Y: Tensor
    parts: Tensor
    totals: Tensor
    complete: Tensor

    @classmethod
    def empty(cls, B: int, K: int, S: int, total: float, device: torch.device) -> "Beam":
        """Hypotheses without labels."""
        Y = torch.empty(B, K, 0, dtype=torch.long, device=device)
        parts = torch.zeros(B, K, S, dtype=torch.float64, device=device)
        totals = torch.full((B, K), total, dtype=torch.float64, device=device)
        return cls(Y, parts, totals, torch.zeros_like(totals, dtype=torch.bool))

    def best_of(self, other: "Beam") -> "Beam":
        """As many as before, best first, out of both; other's labels are at least as long."""
        Y = F.pad(self.Y, (0, other.Y.size(2) - self.Y.size(2)), value=BLANK)
        best = torch.cat([self.totals, other.totals], 1).topk(self.totals.size(1)).indices  # (B, K)
        pairs = ((Y, other.Y), (self.parts, other.parts), (self.totals, other.totals), (self.complete, other.complete))
        return Beam(*(follow(torch.cat(pair, 1), best) for pair in pairs))

    def select(self, utterances: Tensor) -> "Beam":
        """Keep some utterances, (B',)."""
        return Beam(*(x[utterances] for x in (self.Y, self.parts, self.totals, self.complete)))

    def without(self, utterances: Tensor) -> "Beam":
        """Let all hypotheses of some utterances die; utterances (B,) bool."""
        dead = utterances.unsqueeze(1)
        parts = self.parts.masked_fill(dead.unsqueeze(2), -torch.inf)
        return Beam(self.Y, parts, self.totals.masked_fill(dead, -torch.inf), self.complete)

    def hypotheses(self, names: Sequence[str]) -> list[list[Hypothesis]]:
        """The list of each utterance, without those that are none."""
        return [
            [
                Hypothesis([c for c in y if c != BLANK], total, dict(zip(names, scores, strict=True)), complete)
                for y, scores, total, complete in zip(*utterance, strict=True)
                if total > -torch.inf
            ]
            for utterance in zip(*(x.tolist() for x in (self.Y, self.parts, self.totals, self.complete)), strict=True)
        ]


@torch.no_grad()
def beam_search(
    scorers: Mapping[str, tuple[Scorer, float]],
    limits: Tensor,
    sos_eos: int,
    beam: int = 10,
    nbest: int = 1,
    pre_beam: float = 1.5,
) -> list[list[Hypothesis]]:
    """Search the label sequences with the highest weighted sum of scores.

    scorers:   by name, each with its weight, at least 0; one or more are full scorers
    limits:    (B,) int, labels an utterance has at most
    beam:      K
    nbest:     hypotheses returned of each utterance, at most
    pre_beam:  C / K: the full scorers' best C labels of a hypothesis are shown to the other scorers; all labels are,
               where no full scorer has a weight
    returns    for each utterance its n-best list, best first; empty where every sequence scores -∞
    raises     ValueError if weights or scorers can't be searched

    An end is accepted where it is among the K best candidates of its utterance, and at the length limit. Totals only
    fall as a hypothesis grows, so an utterance is done when no living hypothesis can reach its n-best list.
    """
    if not any(scorer.full for scorer, _ in scorers.values()):
        raise ValueError(f"scorers: got {', '.join(scorers) or 'none'}, expected one or more that score all labels")
    weights = {name: weight for name, (_, weight) in scorers.items()}
    if min(weights.values()) < 0 or not any(weights.values()):
        raise ValueError(f"weights: got {weights}, expected none below 0 and one or more above")
    search = _Search(scorers, limits, sos_eos, beam, nbest, max(1, round(beam * pre_beam)))
    while len(search.rows):
        search.step()
    return search.results


class _Search:
    """The state of one search; `rows` (B,) are the utterances not yet done, as numbered at its start."""

    def __init__(self, scorers, limits, sos_eos, K, N, C):
        self.names = list(scorers)
        self.scorers, self.weights = zip(*scorers.values(), strict=True)
        self.sos_eos, self.K, self.C, self.limits = sos_eos, K, C, limits
        B, S, device = len(limits), len(scorers), limits.device
        self.rows = torch.arange(B, device=device)
        self.living = Beam.empty(B, 1, S, 0.0, device)
        self.ended = Beam.empty(B, N, S, -torch.inf, device)
        self.results: list[list[Hypothesis]] = [[] for _ in range(B)]
        start = torch.full((B, 1), sos_eos, device=device)
        self.states = [scorer.start(start) for scorer in self.scorers]

    def step(self) -> None:
        """One more label for every hypothesis."""
        candidates, parts = self._candidates()  # (B, K, C + 1), (B, K, C + 1, S); the end symbol is the last
        totals = self._weigh(parts)  # (B, K, C + 1)
        self._end(parts, totals)
        parents = self._leave(self._go_on(candidates, parts, totals))  # (B', K')
        if len(parents):
            y = self.living.Y[..., -1]
            reordered = (scorer.reorder(x, parents) for scorer, x in zip(self.scorers, self.states, strict=True))
            self.states = [scorer.step(y, x) for scorer, x in zip(self.scorers, reordered, strict=True)]

    def _candidates(self) -> tuple[Tensor, Tensor]:
        """Labels to go on with, the end symbol last, and what the scorers then give the whole hypothesis."""
        best, labels = self._pre_select()  # (B, K, C)
        candidates = F.pad(labels, (0, 1), value=self.sos_eos)  # (B, K, C + 1)
        gains = [scorer.score(x, candidates).double() for scorer, x in zip(self.scorers, self.states, strict=True)]
        parts = self.living.parts.unsqueeze(2) + torch.stack(gains, 3)  # (B, K, C + 1, S)
        none = F.pad(best.isneginf(), (0, 1)).unsqueeze(3)  # the blank must not pass for a label that scores -∞
        return candidates, parts.masked_fill(none, -torch.inf)

    def _pre_select(self) -> tuple[Tensor, Tensor]:
        """The full scorers' best C labels, or all if they have no weight: their scores, and these, (B, K, C)."""
        each = zip(self.scorers, self.states, self.weights, strict=True)
        full = [(scorer.score(x, None), w) for scorer, x, w in each if scorer.full]  # (B, K, V)
        weighed = [scores * w for scores, w in full if w > 0]
        scores = sum(weighed) if weighed else torch.zeros_like(full[0][0])
        scores[..., BLANK] = scores[..., self.sos_eos] = -torch.inf
        V = scores.size(2) - 2
        return scores.topk(min(self.C, V) if weighed else V)

    def _weigh(self, parts: Tensor) -> Tensor:
        """Weighted sum over scorers (…, S) → (…); a weight of 0 silences even -∞."""
        return sum(parts[..., n] * w for n, w in enumerate(self.weights) if w > 0)

    def _end(self, parts: Tensor, totals: Tensor) -> None:
        """Accept ends among the K best candidates of their utterance; any at the length limit."""
        worst = totals.flatten(1).topk(min(self.K, totals[0].numel())).values[:, -1:]  # (B, 1)
        full = (self.limits[self.rows] <= self.living.Y.size(2)).unsqueeze(1)  # (B, 1)
        ends, chosen = totals[..., -1], totals[..., -1] >= worst  # (B, K)
        accepted = ends.masked_fill(~(chosen | full), -torch.inf)
        self.ended = self.ended.best_of(Beam(self.living.Y, parts[:, :, -1], accepted, chosen))

    def _go_on(self, candidates: Tensor, parts: Tensor, totals: Tensor) -> Tensor:
        """Let the K best continuations live; returns their parents (B, K)."""
        going, C = totals[..., :-1].flatten(1), totals.size(2) - 1  # (B, K·C)
        totals, best = going.topk(min(self.K, going.size(1)))  # (B, K)
        parents, y = best // C, candidates[..., :-1].flatten(1).gather(1, best)  # (B, K)
        Y = torch.cat([follow(self.living.Y, parents), y.unsqueeze(2)], 2)  # (B, K, U + 1)
        parts = follow(parts[:, :, :-1].flatten(1, 2), best)  # (B, K, S)
        self.living = Beam(Y, parts, totals, torch.zeros_like(parents, dtype=torch.bool))
        return parents

    def _leave(self, parents: Tensor) -> Tensor:
        """Take the utterances that are done out of the batch; returns the parents (B', K) of those that stay."""
        full = self.limits[self.rows] < self.living.Y.size(2)  # (B,)
        done = full | (self.living.totals[:, 0] <= self.ended.totals[:, -1])  # the best living against the N-th ended
        number = int(done.sum())
        if number < len(done) * LEAVING:
            if number:
                self.living = self.living.without(done)
            return parents
        leave, stay = done.nonzero().squeeze(1), (~done).nonzero().squeeze(1)
        lists = self.ended.select(leave).hypotheses(self.names)
        for row, hypotheses in zip(self.rows[leave].tolist(), lists, strict=True):
            self.results[row] = hypotheses
        self.rows, self.living, self.ended = self.rows[stay], self.living.select(stay), self.ended.select(stay)
        if len(stay):
            self.states = [scorer.select(x, stay) for scorer, x in zip(self.scorers, self.states, strict=True)]
        return parents[stay]
