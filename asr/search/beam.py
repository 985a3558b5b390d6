"""Beam search over many utterances at once, with any weighted sum of scorers.

B utterances still searched, K hypotheses of each, V vocabulary, C candidate labels of a hypothesis, U labels so far,
S scorers, N ended hypotheses kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from asr.search.hypothesis import Hypothesis
from asr.search.scorer import Scorer

BLANK = 0


@dataclass(frozen=True)
class Beam:
    """Hypotheses of each utterance: Y (B, K, U) labels, parts (B, K, S) float64 scores by scorer."""

    Y: Tensor
    parts: Tensor

    def take(self, parents: Tensor, labels: Tensor, parts: Tensor) -> "Beam":
        """Go on from parents (B, K) with labels (B, K); parts (B, K, S) are the new scores."""
        Y = self.Y.gather(1, parents.unsqueeze(2).expand(-1, -1, self.Y.size(2)))  # (B, K, U)
        return Beam(torch.cat([Y, labels.unsqueeze(2)], dim=2), parts)


class Ended:
    """The N best ended hypotheses of every utterance, searched or done: totals (B, N), their parts and labels."""

    def __init__(self, B: int, N: int, S: int, device: torch.device):
        self.N = N
        self.totals = torch.full((B, N), -torch.inf, dtype=torch.float64, device=device)
        self.parts = torch.zeros(B, N, S, dtype=torch.float64, device=device)
        self.Y = torch.full((B, N, 0), BLANK, device=device)  # padded with blanks
        self.complete = torch.ones(B, N, dtype=torch.bool, device=device)

    def add(self, rows: Tensor, totals: Tensor, parts: Tensor, Y: Tensor, complete: bool) -> None:
        """Let hypotheses of utterances rows (R,) compete: totals (R, K), -∞ = none; parts (R, K, S); Y (R, K, U)."""
        if Y.size(2) > self.Y.size(2):
            self.Y = torch.nn.functional.pad(self.Y, (0, Y.size(2) - self.Y.size(2)), value=BLANK)
        flags = torch.full_like(totals, complete, dtype=torch.bool)
        together = torch.cat([self.totals[rows], totals], 1)  # (R, N + K)
        self.totals[rows], best = together.topk(self.N, dim=1)  # (R, N)
        for name, new in (("parts", parts), ("Y", Y), ("complete", flags)):
            old = getattr(self, name)
            both = torch.cat([old[rows], new], 1)  # (R, N + K, …)
            index = best.view(*best.shape, *[1] * (both.dim() - 2)).expand(-1, -1, *both.shape[2:])
            old[rows] = both.gather(1, index)

    def hypotheses(self, names: Sequence[str]) -> list[list[Hypothesis]]:
        """The n-best list of each utterance, best first."""
        totals, parts, Y, complete = self.totals.tolist(), self.parts.tolist(), self.Y.tolist(), self.complete.tolist()
        return [
            [
                Hypothesis([y for y in Y[b][n] if y != BLANK], totals[b][n], dict(zip(names, parts[b][n], strict=True)), complete[b][n])
                for n in range(self.N)
                if totals[b][n] > -torch.inf
            ]
            for b in range(len(totals))
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

    scorers:   by name, each with its weight; at least one is a full scorer
    limits:    (B,) int, labels an utterance has at most
    beam:      K
    nbest:     hypotheses returned of each utterance, at most
    pre_beam:  C / K: the full scorers' best C labels of a hypothesis are shown to the other scorers
    returns    for each utterance its n-best list, best first

    An end is accepted where it is among the K best candidates of its utterance. Scores only fall as a hypothesis
    grows, so an utterance is done, and leaves the batch, when no living hypothesis can reach its n-best list.
    """
    search = _Search(scorers, limits, sos_eos, beam, nbest, pre_beam)
    while len(search.rows):
        search.step()
    return search.ended.hypotheses(list(scorers))


class _Search:
    """The state of one search; `rows` (B,) are the utterances not yet done, as numbered at its start."""

    def __init__(self, scorers, limits, sos_eos, beam, nbest, pre_beam):
        self.scorers = [scorer for scorer, _ in scorers.values()]
        self.weights = torch.tensor([w for _, w in scorers.values()], dtype=torch.float64, device=limits.device)
        self.sos_eos, self.K, self.C, self.limits = sos_eos, beam, max(1, round(beam * pre_beam)), limits
        B, S, device = len(limits), len(self.scorers), limits.device
        parts = torch.zeros(B, beam, S, dtype=torch.float64, device=device)
        self.beam = Beam(torch.empty(B, beam, 0, dtype=torch.long, device=device), parts)
        self.totals = torch.full((B, beam), -torch.inf, dtype=torch.float64, device=device)
        self.totals[:, 0] = 0.0  # one empty hypothesis; the others are none
        self.ended = Ended(B, nbest, S, device)
        self.rows = torch.arange(B, device=device)
        y = torch.full((B, beam), sos_eos, device=device)
        self.states = [scorer.step(y, scorer.start(beam)) for scorer in self.scorers]

    def step(self) -> None:
        """One more label for every hypothesis."""
        candidates, gains = self._candidates()  # (B, K, C + 1), (B, K, C + 1, S); the end symbol is the last
        parts = self.beam.parts.unsqueeze(2) + gains
        totals = self.totals.unsqueeze(2) + _weigh(gains, self.weights)  # (B, K, C + 1)
        self._end(totals, parts)
        self._go_on(candidates, totals, parts)
        self._leave()

    def _candidates(self) -> tuple[Tensor, Tensor]:
        """Labels to go on with, and what each scorer gives them."""
        full = sum(
            w * scorer.score(state, None).double()
            for scorer, w, state in zip(self.scorers, self.weights, self.states, strict=True)
            if scorer.full
        )  # (B, K, V)
        full = full.index_fill(2, torch.tensor([BLANK, self.sos_eos], device=full.device), -torch.inf)
        candidates = full.topk(min(self.C, full.size(2) - 2), dim=2).indices  # (B, K, C)
        end = torch.full_like(candidates[..., :1], self.sos_eos)
        candidates = torch.cat([candidates, end], dim=2)  # (B, K, C + 1)
        gains = [scorer.score(state, candidates).double() for scorer, state in zip(self.scorers, self.states, strict=True)]
        return candidates, torch.stack(gains, dim=3)  # (B, K, C + 1, S)

    def _end(self, totals: Tensor, parts: Tensor) -> None:
        """Accept ends among the K best candidates, or any where the length limit is reached."""
        worst = totals.flatten(1).topk(min(self.K, totals[0].numel()), dim=1).values[:, -1:]  # (B, 1)
        U = self.beam.Y.size(2)
        full = (self.limits[self.rows] <= U).unsqueeze(1)  # (B, 1)
        ends = totals[..., -1]  # (B, K)
        accepted = ends.masked_fill((ends < worst) & ~full, -torch.inf)
        for complete, mask in ((True, full), (False, ~full)):  # at the limit the end was not chosen but forced
            chosen = accepted.masked_fill(mask, -torch.inf)
            if bool(chosen.isfinite().any()):
                self.ended.add(self.rows, chosen, parts[:, :, -1], self.beam.Y, complete)

    def _go_on(self, candidates: Tensor, totals: Tensor, parts: Tensor) -> None:
        """Keep the K best living continuations."""
        labels, going = candidates[..., :-1].flatten(1), totals[..., :-1]  # (B, K·C), (B, K, C)
        C = going.size(2)
        going = torch.nn.functional.pad(going.flatten(1), (0, max(0, self.K - self.K * C)), value=-torch.inf)
        self.totals, best = going.topk(self.K, dim=1)  # (B, K)
        parents, y = best // C, labels.gather(1, best)  # (B, K)
        S = parts.size(3)
        chosen = parts[..., :-1, :].flatten(1, 2).gather(1, best.unsqueeze(2).expand(-1, -1, S))  # (B, K, S)
        self.beam = self.beam.take(parents, y, chosen)
        self.states = [
            scorer.step(y, scorer.reorder(state, parents))
            for scorer, state in zip(self.scorers, self.states, strict=True)
        ]

    def _leave(self) -> None:
        """Take the utterances that are done out of the batch."""
        reachable = self.totals[:, 0] > self.ended.totals[self.rows, -1]  # (B,), the best living against the N-th ended
        going = reachable & (self.limits[self.rows] >= self.beam.Y.size(2))
        if bool(going.all()):
            return
        keep = going.nonzero().squeeze(1)  # (B',)
        self.rows, self.totals = self.rows[keep], self.totals[keep]
        self.beam = Beam(self.beam.Y[keep], self.beam.parts[keep])
        if len(keep):
            self.states = [scorer.select(s, keep) for scorer, s in zip(self.scorers, self.states, strict=True)]


def _weigh(gains: Tensor, weights: Tensor) -> Tensor:
    """Weighted sum over scorers (…, S) → (…); a weight of 0 silences even -∞."""
    return torch.where(weights == 0, 0.0, gains * weights).sum(-1)
