"""Beam search over a batch of utterances, with any weighted sum of scorers.

For every utterance:

    live = [the empty hypothesis]; ended = []
    while a live hypothesis can still reach the n-best list:
        candidates = the full scorers' best C labels for each live        _candidates
                     hypothesis, and the end symbol
        totals     = each hypothesis's scores so far + its candidates',   _weigh
                     weighted
        ended      = the N best of ended and of the ends among the K      _accept_ends
                     best candidates
        live       = the K best continuations; the scorers' states        _extend
                     follow their parents
        every scorer reads the chosen labels                              step

Utterances enter while others are being searched (`add`), and leave when they are done
(`_remove_done`).

B utterances in the batch, K hypotheses of each, V vocabulary, C candidate labels of a hypothesis, U
labels so far, S scorers, N length of the n-best list.

`looping` detects the loops of attention decoders on silence, noise and unusual speech.
"""

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from asr.ops import BLANK, batch_rows, gather_beams
from asr.search.scorer import Hypothesis, Reason, Scorer

PERIOD, TIMES = 8, 10  # a loop: up to 8 labels, repeated 10 times in a row


def looping(Y: Tensor) -> Tensor:
    """Tell which hypotheses end in a loop: Y (B, K, U), blanks on the left → (B, K) bool."""
    periods = min(PERIOD, Y.size(2) // TIMES)
    if not periods:
        return torch.zeros_like(Y[..., :1], dtype=torch.bool).any(2)
    now, before = _pairs(periods, Y.device)  # (periods, PERIOD · (TIMES - 1))
    y = Y[..., now]  # (B, K, periods, pairs)
    return ((y == Y[..., before]) & (y != BLANK)).all(3).any(2)


@functools.cache
def _pairs(periods: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Index pairs of labels, from the end, that are equal in a loop; shorter rows repeat pairs."""
    with torch.inference_mode(False):  # the next caller may be outside of it
        p = torch.arange(1, periods + 1, device=device).unsqueeze(1)  # (periods, 1)
        now = -1 - torch.arange(periods * (TIMES - 1), device=device) % (p * (TIMES - 1))
        return now, now - p


REMOVAL_SHARE = 1 / 8  # of the batch must be done before it is removed: removing copies the rest
END, LIMIT, LOOP = REASONS = get_args(Reason)


@dataclass(frozen=True)
class Beam:
    """Hypotheses of each utterance.

    Y                   (B, K, U) labels, shorter ones padded with blanks on the left
    log_confidence      (B, K, U) float32, of each label
    end_log_confidence  (B, K) float32, of the end symbol
    scores              (B, K, S) float64, by scorer
    totals              (B, K) float64, weighted sums of the scores; -∞ marks an empty slot
    reasons             (B, K) int, why the hypothesis ended: index into REASONS
    """

    Y: Tensor
    log_confidence: Tensor
    end_log_confidence: Tensor
    scores: Tensor
    totals: Tensor
    reasons: Tensor

    @classmethod
    def empty(cls, B: int, K: int, S: int, total: float, device: torch.device) -> "Beam":
        """Make hypotheses without labels."""
        Y = torch.empty(B, K, 0, dtype=torch.long, device=device)
        scores = torch.zeros(B, K, S, dtype=torch.float64, device=device)
        totals = torch.full((B, K), total, dtype=torch.float64, device=device)
        reasons = torch.zeros_like(totals, dtype=torch.long)
        return cls(Y, Y.float(), totals.float(), scores, totals, reasons)

    def columns(self, U: int) -> "Beam":
        """Pad the labels to U columns, or remove columns of blanks."""
        if self.Y.size(2) == U:
            return self
        padding = (U - self.Y.size(2), 0)
        Y, log_confidence = F.pad(self.Y, padding, value=BLANK), F.pad(self.log_confidence, padding)
        return replace(self, Y=Y, log_confidence=log_confidence)

    def best_of(self, other: "Beam") -> "Beam":
        """Keep the K best hypotheses of both beams, best first."""
        both = self.cat(other, 1)
        return both.gather(both.totals.topk(self.totals.size(1)).indices)

    def cat(self, other: "Beam", dim: int) -> "Beam":
        """Concatenate utterances (dim 0) or hypotheses (dim 1)."""
        U = max(self.Y.size(2), other.Y.size(2))
        pairs = zip(self.columns(U)._tensors(), other.columns(U)._tensors(), strict=True)
        return Beam(*(torch.cat(pair, dim) for pair in pairs))

    def gather(self, parents: Tensor) -> "Beam":
        """Take hypothesis parents[b, k] for every k; parents (B, K')."""
        return Beam(*(gather_beams(x, parents) for x in self._tensors()))

    def select(self, utterances: Tensor) -> "Beam":
        """Keep some utterances, (B',)."""
        return Beam(*(x[utterances] for x in self._tensors()))

    def clear(self, utterances: Tensor) -> "Beam":
        """Empty all slots of some utterances; utterances (B,) bool."""
        empty = utterances.unsqueeze(1)
        scores = self.scores.masked_fill(empty.unsqueeze(2), -torch.inf)
        return replace(self, scores=scores, totals=self.totals.masked_fill(empty, -torch.inf))

    def hypotheses(self, names: Sequence[str]) -> list[list[Hypothesis]]:
        """List the ended hypotheses of each utterance; names: of the S scorers."""
        length = (self.Y != BLANK).sum(2) + 1  # (B, K)
        mean = (self.log_confidence.sum(2) + self.end_log_confidence) / length  # (B, K)
        numbers = [self.totals, mean.exp(), self.reasons]  # (B, K) each
        wide = [self.Y, self.log_confidence.exp(), self.scores]
        packed = torch.cat([*(x.unsqueeze(2) for x in numbers), *wide], 2)  # float64: exact
        return [
            [_hypothesis(names, *one) for one in utterance if one[0] > -torch.inf]
            for utterance in packed.tolist()  # the one wait for the device
        ]

    def _tensors(self) -> list[Tensor]:
        return [getattr(self, f.name) for f in fields(self)]


def _hypothesis(
    names: Sequence[str], total: float, mean: float, reason: float, *wide: float
) -> Hypothesis:
    U = (len(wide) - len(names)) // 2
    Y, confidences, scores = wide[:U], wide[U : 2 * U], wide[2 * U :]
    kept = [n for n, y in enumerate(Y) if y != BLANK]
    by_name = dict(zip(names, scores, strict=True))
    tokens = [int(Y[n]) for n in kept]
    reached = [confidences[n] for n in kept]
    return Hypothesis(tokens, total, by_name, REASONS[int(reason)], reached, mean)


def _sum(tensors: Sequence[Tensor]) -> Tensor:
    return functools.reduce(torch.add, tensors)


@dataclass(frozen=True)
class _Candidates:
    """Next labels of every hypothesis; the end symbol is the last.

    labels          (B, K, C + 1)
    scores          (B, K, C + 1, S) float64, of the hypothesis with the label, by scorer
    totals          (B, K, C + 1) float64, their weighted sums
    log_confidence  (B, K, C + 1) float32, of the label among the hypothesis's candidates
    looping         (B, K) bool, whether the hypothesis is caught in a loop; None where loops may go on
    """

    labels: Tensor
    scores: Tensor
    totals: Tensor
    log_confidence: Tensor
    looping: Tensor | None


@dataclass(frozen=True)
class _Batch:
    """Utterances searched together.

    numbers  B, in the order in which they were added
    limits   (B,) int, labels at most
    lens     (B,) int, labels of the live hypotheses
    states   of the scorers, which haven't read the last labels of the live hypotheses yet
    """

    numbers: list[int]
    limits: Tensor
    lens: Tensor
    live: Beam
    ended: Beam
    states: list[Any]


class BeamSearch:
    """A search that utterances enter and leave.

    scorers:      by name, each with its weight, at least 0; one or more are full scorers
    sos_eos:      id of the start/end symbol
    beam:         K
    nbest:        N, the most hypotheses returned of each utterance
    pre_beam:     C / K. The full scorers choose the C labels that the other scorers see; all labels
                  are seen if no full scorer has a weight
    patience:     the n-best list is complete once all live hypotheses are this many nats behind the
                  best ended one
    allow_loops:  whether a hypothesis that repeats itself may go on
    length_norm:  α: totals of ended hypotheses are divided by ((5 + labels) / 6)^α, the end counting
                  as a label (Wu et al. 2016, equation 14)
    removal_share:  of a batch that must be done before any of it leaves; 0: each leaves at once
    raises        ValueError if weights or scorers can't be searched

    An end is accepted if it is among the K best candidates of its utterance, or at the length
    limit. An utterance is done when the scorers' ceilings show that no live hypothesis can reach
    its n-best list, or when patience runs out. A looping hypothesis may end, but not go on, unless
    `allow_loops`.
    """

    def __init__(
        self,
        scorers: Mapping[str, tuple[Scorer, float]],
        sos_eos: int,
        beam: int = 10,
        nbest: int = 1,
        pre_beam: float = 1.5,
        patience: float = 20.0,
        allow_loops: bool = False,
        length_norm: float = 0.0,
        removal_share: float = REMOVAL_SHARE,
    ):
        if not any(scorer.full for scorer, _ in scorers.values()):
            raise ValueError(
                f"scorers: got {', '.join(scorers) or 'none'}, expected one or more that score all labels"
            )
        weights = {name: weight for name, (_, weight) in scorers.items()}
        if min(weights.values()) < 0 or not any(weights.values()):
            raise ValueError(f"weights: got {weights}, expected none below 0 and one or more above")
        self.names = list(scorers)
        self.scorers, self.weights = zip(*scorers.values(), strict=True)
        self.sos_eos, self.K, self.N, self.C = sos_eos, beam, nbest, max(1, round(beam * pre_beam))
        self.patience, self.allow_loops = patience, allow_loops
        self.length_norm, self.removal_share = length_norm, removal_share
        self.ceiling = sum(w * s.ceiling for s, w in scorers.values())  # of one label, weighted
        self.batch: _Batch | None = None
        self.added = 0  # utterances so far
        self.finished: list[tuple[int, list[Hypothesis]]] = []

    def __len__(self) -> int:
        """Count the utterances that are still searched."""
        return len(self.batch.numbers) if self.batch else 0

    def take(self) -> list[tuple[int, list[Hypothesis]]]:
        """Take what has been finished: numbers of utterances, from 0 as added, and their n-best lists, best first.

        A list is empty if every label sequence scores -∞.
        """
        taken, self.finished = self.finished, []
        return taken

    @torch.no_grad()
    def add(self, H: Tensor, H_lens: Tensor, limits: Tensor) -> None:
        """Let utterances enter: H (B, T, D), H_lens (B,), limits (B,) labels at most."""
        B, S, device = len(H), len(self.scorers), H.device
        numbers = list(range(self.added, self.added + B))
        live = Beam.empty(B, 1, S, 0.0, device)
        ended = Beam.empty(B, self.N, S, -torch.inf, device)
        states = [scorer.start(H, H_lens) for scorer in self.scorers]
        new = self._advance(_Batch(numbers, limits, torch.zeros_like(limits), live, ended, states))
        self.batch = self._merge(self.batch, new) if self.batch else new
        self.added += B

    @torch.no_grad()
    def step(self) -> None:
        """Add one more label to every hypothesis."""
        self.batch = self._remove_done(self.batch) if self.batch else None
        if self.batch:
            y, states = self.batch.live.Y[..., -1], self.batch.states
            states = [scorer.step(y, x) for scorer, x in zip(self.scorers, states, strict=True)]
            self.batch = self._advance(replace(self.batch, states=states))

    def _advance(self, batch: _Batch) -> _Batch:
        candidates = self._candidates(batch)
        return self._extend(replace(batch, ended=self._accept_ends(batch, candidates)), candidates)

    def _candidates(self, batch: _Batch) -> _Candidates:
        """Choose labels to go on with, and score them."""
        best, labels = self._pre_select(batch)  # (B, K, C)
        labels = F.pad(labels, (0, 1), value=self.sos_eos)  # (B, K, C + 1)
        pairs = zip(self.scorers, batch.states, strict=True)
        gains = torch.stack([scorer.score(x, labels) for scorer, x in pairs], 3).double()
        # (B, K, C + 1, S)
        impossible = F.pad(best.isneginf(), (0, 1)).unsqueeze(
            3
        )  # topk may have chosen the blank among them
        gains = gains.masked_fill(impossible, -torch.inf)
        scores = batch.live.scores.unsqueeze(2) + gains  # (B, K, C + 1, S)
        log_confidence = self._weigh(gains).float().log_softmax(-1).nan_to_num(0.0)  # (B, K, C + 1)
        loops = None if self.allow_loops else looping(batch.live.Y)  # (B, K)
        return _Candidates(labels, scores, self._weigh(scores), log_confidence, loops)

    def _pre_select(self, batch: _Batch) -> tuple[Tensor, Tensor]:
        """Choose the full scorers' best C labels, all if none has a weight: scores, ids (B, K, C)."""
        triples = zip(self.scorers, batch.states, self.weights, strict=True)
        full = [(scorer.score(x, None), w) for scorer, x, w in triples if scorer.full]  # (B, K, V)
        weighted = [scores * w for scores, w in full if w > 0]
        scores = _sum(weighted) if weighted else torch.zeros_like(full[0][0])
        scores[..., BLANK] = scores[..., self.sos_eos] = -torch.inf
        V = scores.size(2) - 2
        return scores.topk(min(self.C, V) if weighted else V)

    def _weigh(self, scores: Tensor) -> Tensor:
        """Sum over scorers by weight, (…, S) → (…); a weight of 0 silences even -∞."""
        return _sum([scores[..., n] * w for n, w in enumerate(self.weights) if w > 0])

    def _accept_ends(self, batch: _Batch, candidates: _Candidates) -> Beam:
        """Accept ends among the K best candidates; any end at the length limit and in a loop."""
        totals = candidates.totals
        worst = totals.flatten(1).topk(min(self.K, totals[0].numel())).values[:, -1:]  # (B, 1)
        full = (batch.limits <= batch.lens).unsqueeze(1)  # (B, 1)
        ends, chosen = totals[..., -1], totals[..., -1] >= worst  # (B, K)
        reasons = torch.where(chosen, REASONS.index(END), REASONS.index(LIMIT))
        acceptable, loops = chosen | full, candidates.looping
        if loops is not None:
            reasons = reasons.masked_fill(loops & ~chosen, REASONS.index(LOOP))
            acceptable = acceptable | loops
        if self.length_norm:
            ends = ends / self._divisor(batch.lens).unsqueeze(1)
        accepted = ends.where(acceptable, -torch.inf)
        live, log_confidence = batch.live, candidates.log_confidence[..., -1]
        new = Beam(
            live.Y,
            live.log_confidence,
            log_confidence,
            candidates.scores[:, :, -1],
            accepted,
            reasons,
        )
        return batch.ended.best_of(new)

    def _extend(self, batch: _Batch, candidates: _Candidates) -> _Batch:
        """Go on with the K best continuations; beam and states follow their parents."""
        _, K, C = candidates.labels[..., :-1].shape
        totals = candidates.totals[..., :-1]
        if candidates.looping is not None:
            totals = totals.masked_fill(candidates.looping.unsqueeze(2), -torch.inf)
        totals = totals.flatten(1)
        if self.K > K * C:
            totals = F.pad(totals, (0, self.K - K * C), value=-torch.inf)  # (B, K·C or more)
        best = totals.topk(self.K)  # (B, K)
        chosen = best.indices
        if self.K > K * C:
            chosen = chosen.clamp(max=K * C - 1)  # empty slots (-∞) need some valid index
        parents, columns = chosen // C, chosen % C  # (B, K)
        rows = batch_rows(len(chosen), chosen.device)
        y, log_confidence, scores = (
            x[rows, parents, columns]
            for x in (candidates.labels, candidates.log_confidence, candidates.scores)
        )  # (B, K), (B, K), (B, K, S)
        scores = scores.masked_fill(best.values.isneginf().unsqueeze(2), -torch.inf)
        live = batch.live
        live = Beam(
            torch.cat([gather_beams(live.Y, parents), y.unsqueeze(2)], 2),  # (B, K, U + 1)
            torch.cat([gather_beams(live.log_confidence, parents), log_confidence.unsqueeze(2)], 2),
            torch.zeros_like(log_confidence),
            scores,
            best.values,
            torch.zeros_like(parents),
        )
        states = [
            scorer.reorder(x, parents) for scorer, x in zip(self.scorers, batch.states, strict=True)
        ]
        return replace(batch, live=live, lens=batch.lens + 1, states=states)

    def _remove_done(self, batch: _Batch) -> _Batch | None:
        """Finish the utterances that are done, unless they are too few."""
        best, ended = batch.live.totals[:, 0], batch.ended.totals
        if self.ceiling:  # the gain of more labels and the end, at most
            best = best + self.ceiling * (batch.limits - batch.lens + 1)
        front = batch.live.totals[:, 0]
        if self.length_norm:  # as if it ended now
            by = self._divisor(batch.lens)
            hopeless = (best / by <= ended[:, -1]) | (front / by < ended[:, 0] - self.patience / by)
        else:
            hopeless = (best <= ended[:, -1]) | (front < ended[:, 0] - self.patience)
        done = hopeless | (batch.lens > batch.limits)
        is_done = done.tolist()  # a step's one wait for the device
        number = sum(is_done)
        if number < max(1, len(is_done) * self.removal_share):
            return replace(batch, live=batch.live.clear(done)) if number else batch
        order = done.to(torch.uint8).argsort(stable=True)  # unlike nonzero, waits for nothing
        stay, leave = order.split([len(is_done) - number, number])
        lists = batch.ended.select(leave).hypotheses(self.names)
        pairs = list(zip(batch.numbers, is_done, strict=True))
        self.finished += zip([n for n, gone in pairs if gone], lists, strict=True)
        return self._keep(batch, stay, [n for n, gone in pairs if not gone])

    def _divisor(self, lens: Tensor) -> Tensor:
        """What totals of hypotheses that end after `lens` labels are divided by, (B,)."""
        return ((lens.double() + 6) / 6) ** self.length_norm

    def drop(self, unwanted: Collection[int]) -> None:
        """Forget utterances that are being searched, by number."""
        if not self.batch:
            return
        kept = [(row, n) for row, n in enumerate(self.batch.numbers) if n not in unwanted]
        rows = torch.tensor([row for row, _ in kept], device=self.batch.lens.device)
        self.batch = self._keep(self.batch, rows, [n for _, n in kept])

    def _keep(self, batch: _Batch, stay: Tensor, numbers: list[int]) -> _Batch | None:
        """Keep some utterances; stay (B',): their places."""
        if not numbers:
            return None
        states = [
            scorer.select(x, stay) for scorer, x in zip(self.scorers, batch.states, strict=True)
        ]
        beams = batch.live.select(stay), batch.ended.select(stay)
        return _Batch(numbers, batch.limits[stay], batch.lens[stay], *beams, states)

    def _merge(self, batch: _Batch, new: _Batch) -> _Batch:
        """Put the utterances of both into one batch."""
        U = int(batch.lens.max())  # removed utterances may have had more labels
        triples = zip(self.scorers, batch.states, new.states, strict=True)
        return _Batch(
            batch.numbers + new.numbers,
            torch.cat([batch.limits, new.limits]),
            torch.cat([batch.lens, new.lens]),
            batch.live.columns(U).cat(new.live, 0),
            batch.ended.columns(U).cat(new.ended, 0),
            [scorer.merge(x, y) for scorer, x, y in triples],
        )


def beam_search(
    scorers: Mapping[str, tuple[Scorer, float]],
    H: Tensor,
    H_lens: Tensor,
    limits: Tensor,
    sos_eos: int,
    **options,
) -> list[list[Hypothesis]]:
    """Return the n-best lists of H (B, T, D), H_lens (B,); options are those of BeamSearch."""
    search = BeamSearch(scorers, sos_eos, **options)
    search.add(H, H_lens, limits)
    while len(search):
        search.step()
    return [nbest for _, nbest in sorted(search.take())]
