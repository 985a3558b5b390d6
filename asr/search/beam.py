"""Beam search over many utterances at once, with any weighted sum of scorers.

B utterances searched now, K hypotheses of each, V vocabulary, C candidate labels of a hypothesis, U labels so far,
S scorers, N the length of the n-best list.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from asr.nn.gather import follow
from asr.search.hypothesis import Hypothesis
from asr.search.loops import looping
from asr.search.scorer import Scorer

BLANK = 0
LEAVING = 1 / 8  # share of the batch that is done before it leaves: leaving copies what stays
REASONS = END, LIMIT, LOOP = "end", "limit", "loop"


@dataclass(frozen=True)
class Beam:
    """Hypotheses of each utterance.

    Y        (B, K, U) labels, shorter ones padded with blanks on the left
    surety   (B, K, U) float32, ln of each label's confidence
    ending   (B, K) float32, of the end symbol's
    parts    (B, K, S) float64, scores by scorer
    totals   (B, K) float64, weighted sums; -∞ = no hypothesis
    reasons  (B, K) int, what ended it: index into REASONS
    """

    Y: Tensor
    surety: Tensor
    ending: Tensor
    parts: Tensor
    totals: Tensor
    reasons: Tensor

    @classmethod
    def empty(cls, B: int, K: int, S: int, total: float, device: torch.device) -> "Beam":
        """Hypotheses without labels."""
        Y = torch.empty(B, K, 0, dtype=torch.long, device=device)
        parts = torch.zeros(B, K, S, dtype=torch.float64, device=device)
        totals = torch.full((B, K), total, dtype=torch.float64, device=device)
        return cls(Y, Y.float(), totals.float(), parts, totals, torch.zeros_like(totals, dtype=torch.long))

    def columns(self, U: int) -> "Beam":
        """The same, in U columns: padded, or without columns of blanks."""
        padding = (U - self.Y.size(2), 0)
        return replace(self, Y=F.pad(self.Y, padding, value=BLANK), surety=F.pad(self.surety, padding))

    def best_of(self, other: "Beam") -> "Beam":
        """As many as before, best first, out of both."""
        both = self.cat(other, 1)
        return both.follow(both.totals.topk(self.totals.size(1)).indices)

    def cat(self, other: "Beam", dim: int) -> "Beam":
        """Both, utterances (dim 0) or hypotheses (1) behind each other."""
        U = max(self.Y.size(2), other.Y.size(2))
        pairs = zip(self.columns(U)._tensors(), other.columns(U)._tensors(), strict=True)
        return Beam(*(torch.cat(pair, dim) for pair in pairs))

    def follow(self, parents: Tensor) -> "Beam":
        """Hypothesis parents[b, k] for every k; parents (B, K')."""
        return Beam(*(follow(x, parents) for x in self._tensors()))

    def select(self, utterances: Tensor) -> "Beam":
        """Keep some utterances, (B',)."""
        return Beam(*(x[utterances] for x in self._tensors()))

    def without(self, utterances: Tensor) -> "Beam":
        """Let all hypotheses of some utterances die; utterances (B,) bool."""
        dead = utterances.unsqueeze(1)
        parts = self.parts.masked_fill(dead.unsqueeze(2), -torch.inf)
        return replace(self, parts=parts, totals=self.totals.masked_fill(dead, -torch.inf))

    def hypotheses(self, names: Sequence[str]) -> list[list[Hypothesis]]:
        """The list of each utterance, without those that are none; of the ended."""
        mean = (self.surety.sum(2) + self.ending) / ((self.Y != BLANK).sum(2) + 1)  # (B, K)
        tensors = (self.Y, self.surety.exp(), self.totals, self.parts, self.reasons, mean.exp())
        return [
            [_hypothesis(names, *one) for one in zip(*utterance, strict=True) if one[2] > -torch.inf]
            for utterance in zip(*(x.tolist() for x in tensors), strict=True)
        ]

    def _tensors(self) -> list[Tensor]:
        return [getattr(self, f.name) for f in fields(self)]


def _hypothesis(names, Y, confidences, total, parts, reason, mean) -> Hypothesis:
    real = [n for n, y in enumerate(Y) if y != BLANK]
    scores = dict(zip(names, parts, strict=True))
    return Hypothesis([Y[n] for n in real], total, scores, REASONS[reason], [confidences[n] for n in real], mean)


@dataclass(frozen=True)
class _Group:
    """Utterances searched together.

    numbers  (B,) int, in the order in which they came; limits (B,) labels at most; lens (B,) labels of the living
    states   of the scorers; the living hypotheses' last labels are still to be read
    """

    numbers: Tensor
    limits: Tensor
    lens: Tensor
    living: Beam
    ended: Beam
    states: list


class BeamSearch:
    """A search that utterances enter and leave.

    scorers:   by name, each with its weight, at least 0; one or more are full scorers
    sos_eos:   id of the start/end symbol
    beam:      K
    nbest:     N, hypotheses returned of each utterance, at most
    pre_beam:  C / K: the full scorers' best C labels of a hypothesis are shown to the other scorers; all labels are,
               where no full scorer has a weight
    patience:  how far, in nats, living hypotheses may fall behind the best that has ended, before the n-best list is
               left as it is
    loops:     whether a hypothesis that goes round in a loop may go on
    raises     ValueError if weights or scorers can't be searched

    An end is accepted where it is among the K best candidates of its utterance, and at the length limit. An utterance
    is done when no living hypothesis can reach its n-best list, as far as the scorers' ceilings tell, or out of
    patience. A hypothesis that goes round in a loop may end, but not go on, unless `loops`.
    """

    def __init__(
        self,
        scorers: Mapping[str, tuple[Scorer, float]],
        sos_eos: int,
        beam: int = 10,
        nbest: int = 1,
        pre_beam: float = 1.5,
        patience: float = 20.0,
        loops: bool = False,
    ):
        if not any(scorer.full for scorer, _ in scorers.values()):
            raise ValueError(f"scorers: got {', '.join(scorers) or 'none'}, expected one or more that score all labels")
        weights = {name: weight for name, (_, weight) in scorers.items()}
        if min(weights.values()) < 0 or not any(weights.values()):
            raise ValueError(f"weights: got {weights}, expected none below 0 and one or more above")
        self.names = list(scorers)
        self.scorers, self.weights = zip(*scorers.values(), strict=True)
        self.sos_eos, self.K, self.N, self.C = sos_eos, beam, nbest, max(1, round(beam * pre_beam))
        self.patience, self.loops = patience, loops
        self.ceiling = sum(w * s.ceiling for s, w in scorers.values())  # of one label, weighted
        self.group: _Group | None = None
        self.came, self.finished = 0, []

    def __len__(self) -> int:
        """Count the utterances that are still searched."""
        return len(self.group.numbers) if self.group else 0

    def take(self) -> list[tuple[int, list[Hypothesis]]]:
        """Take what has been finished: numbers of utterances, from 0 as they came, and their n-best lists, best first.

        A list is empty where every label sequence scores -∞.
        """
        taken, self.finished = self.finished, []
        return taken

    @torch.no_grad()
    def add(self, H: Tensor, H_lens: Tensor, limits: Tensor) -> None:
        """Let utterances enter: H (B, T, D), H_lens (B,), limits (B,) labels at most."""
        B, S, device = len(H), len(self.scorers), H.device
        numbers = torch.arange(self.came, self.came + B, device=device)
        living, ended = (Beam.empty(B, K, S, total, device) for K, total in ((1, 0.0), (self.N, -torch.inf)))
        states = [scorer.start(H, H_lens) for scorer in self.scorers]
        new = self._advance(_Group(numbers, limits, torch.zeros_like(numbers), living, ended, states))
        self.group = self._merge(self.group, new) if self.group else new
        self.came += B

    @torch.no_grad()
    def step(self) -> None:
        """One more label for every hypothesis."""
        self.group = self._leave(self.group)
        if self.group:
            y, states = self.group.living.Y[..., -1], self.group.states
            states = [scorer.step(y, x) for scorer, x in zip(self.scorers, states, strict=True)]
            self.group = self._advance(replace(self.group, states=states))

    def _advance(self, group: _Group) -> _Group:
        """Score candidates, accept ends, choose the living."""
        candidates, gains = self._candidates(group)  # (B, K, C + 1), (B, K, C + 1, S); the end symbol is the last
        parts = group.living.parts.unsqueeze(2) + gains  # (B, K, C + 1, S)
        totals = self._weigh(parts)  # (B, K, C + 1)
        surety = self._weigh(gains).float().log_softmax(-1).nan_to_num(0.0)  # (B, K, C + 1)
        Y = group.living.Y
        loop = looping(Y[..., :0] if self.loops else Y)  # (B, K)
        ended = self._end(group, parts, totals, surety, loop)
        return self._go_on(replace(group, ended=ended), candidates, parts, totals, surety, loop)

    def _candidates(self, group: _Group) -> tuple[Tensor, Tensor]:
        """Labels to go on with, the end symbol last, and what each scorer adds for them."""
        best, labels = self._pre_select(group)  # (B, K, C)
        candidates = F.pad(labels, (0, 1), value=self.sos_eos)  # (B, K, C + 1)
        each = zip(self.scorers, group.states, strict=True)
        gains = torch.stack([scorer.score(x, candidates).double() for scorer, x in each], 3)  # (B, K, C + 1, S)
        none = F.pad(best.isneginf(), (0, 1)).unsqueeze(3)  # the blank must not pass for a label that scores -∞
        return candidates, gains.masked_fill(none, -torch.inf)

    def _pre_select(self, group: _Group) -> tuple[Tensor, Tensor]:
        """The full scorers' best C labels, or all if they have no weight: their scores, and these, (B, K, C)."""
        each = zip(self.scorers, group.states, self.weights, strict=True)
        full = [(scorer.score(x, None), w) for scorer, x, w in each if scorer.full]  # (B, K, V)
        weighed = [scores * w for scores, w in full if w > 0]
        scores = sum(weighed) if weighed else torch.zeros_like(full[0][0])
        scores[..., BLANK] = scores[..., self.sos_eos] = -torch.inf
        V = scores.size(2) - 2
        return scores.topk(min(self.C, V) if weighed else V)

    def _weigh(self, parts: Tensor) -> Tensor:
        """Weighted sum over scorers (…, S) → (…); a weight of 0 silences even -∞."""
        return sum(parts[..., n] * w for n, w in enumerate(self.weights) if w > 0)

    def _end(self, group: _Group, parts: Tensor, totals: Tensor, surety: Tensor, loop: Tensor) -> Beam:
        """Accept ends among the K best candidates of their utterance; any at the length limit and in a loop."""
        worst = totals.flatten(1).topk(min(self.K, totals[0].numel())).values[:, -1:]  # (B, 1)
        full = (group.limits <= group.lens).unsqueeze(1)  # (B, 1)
        ends, chosen = totals[..., -1], totals[..., -1] >= worst  # (B, K)
        reasons = torch.where(loop, REASONS.index(LOOP), REASONS.index(LIMIT)).masked_fill(chosen, REASONS.index(END))
        accepted = ends.masked_fill(~(chosen | full | loop), -torch.inf)
        living = group.living
        return group.ended.best_of(Beam(living.Y, living.surety, surety[..., -1], parts[:, :, -1], accepted, reasons))

    def _go_on(self, group: _Group, candidates, parts, totals, surety, loop) -> _Group:
        """Let the K best continuations live, and follow their parents."""
        C = totals.size(2) - 1
        going = totals[..., :-1].masked_fill(loop.unsqueeze(2), -torch.inf).flatten(1)  # (B, K·C)
        going = F.pad(going, (0, max(0, self.K - going.size(1))), value=-torch.inf)
        best = going.topk(self.K)  # (B, K)
        places = best.indices.clamp(max=totals.size(1) * C - 1)  # those that are none may be anybody
        parents = places // C  # (B, K)
        chosen = (x[:, :, :-1].flatten(1, 2) for x in (candidates, surety, parts))
        y, sure, parts = (follow(x, places) for x in chosen)  # (B, K), (B, K), (B, K, S)
        parts = parts.masked_fill(best.values.isneginf().unsqueeze(2), -torch.inf)
        Y = torch.cat([follow(group.living.Y, parents), y.unsqueeze(2)], 2)  # (B, K, U + 1)
        surety = torch.cat([follow(group.living.surety, parents), sure.unsqueeze(2)], 2)
        states = [scorer.reorder(x, parents) for scorer, x in zip(self.scorers, group.states, strict=True)]
        living = Beam(Y, surety, torch.zeros_like(sure), parts, best.values, torch.zeros_like(parents))
        return replace(group, living=living, lens=group.lens + 1, states=states)

    def _leave(self, group: _Group) -> _Group | None:
        """Finish the utterances that are done, unless too few are."""
        best, ended = group.living.totals[:, 0], group.ended.totals
        hope = self.ceiling * (group.limits - group.lens + 1)  # of what labels and end may add
        done = (best + hope <= ended[:, -1]) | (best < ended[:, 0] - self.patience) | (group.lens > group.limits)
        number = int(done.sum())
        if number < len(done) * LEAVING:
            return replace(group, living=group.living.without(done)) if number else group
        leave, stay = done.nonzero().squeeze(1), (~done).nonzero().squeeze(1)
        lists = group.ended.select(leave).hypotheses(self.names)
        self.finished += zip(group.numbers[leave].tolist(), lists, strict=True)
        if not len(stay):
            return None
        beams = (beam.select(stay) for beam in (group.living, group.ended))
        states = [scorer.select(x, stay) for scorer, x in zip(self.scorers, group.states, strict=True)]
        return _Group(group.numbers[stay], group.limits[stay], group.lens[stay], *beams, states)

    def _merge(self, group: _Group, new: _Group) -> _Group:
        """The utterances of both."""
        longest = int(group.lens.max())  # labels of those that have left need columns no more
        numbers, limits, lens = (
            torch.cat([getattr(group, name), getattr(new, name)]) for name in ("numbers", "limits", "lens")
        )
        living, ended = (
            x.columns(longest).cat(y, 0) for x, y in ((group.living, new.living), (group.ended, new.ended))
        )
        each = zip(self.scorers, group.states, new.states, strict=True)
        return _Group(numbers, limits, lens, living, ended, [scorer.merge(x, y) for scorer, x, y in each])


def beam_search(
    scorers: Mapping[str, tuple[Scorer, float]], H: Tensor, H_lens: Tensor, limits: Tensor, sos_eos: int, **options
) -> list[list[Hypothesis]]:
    """Search one batch: n-best lists of H (B, T, D), H_lens (B,); the rest as in BeamSearch."""
    search = BeamSearch(scorers, sos_eos, **options)
    search.add(H, H_lens, limits)
    while len(search):
        search.step()
    return [nbest for _, nbest in sorted(search.take())]
