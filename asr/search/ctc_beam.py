"""Time-synchronous CTC prefix beam search: it goes on from frame to frame, for many streams in one batch.

B streams, T frames, K prefixes of each, C candidate labels of a frame, U labels so far, V
vocabulary, S scorers; id 0 is the blank.

For a prefix g, r_n and r_b are the log-probabilities that the frames read so far read g and end in
a label or in a blank. With emissions x and blank b of the next frame (Hannun et al. 2014, "First-
Pass Large Vocabulary Continuous Speech Recognition", algorithm 1; ⊕ is log-add):

    φ(g, c)   = r_b(g) ⊕ r_n(g), without r_n(g) where c repeats g's last label
    r_b'(g)   = b + (r_b(g) ⊕ r_n(g))
    r_n'(g·c) = x[c] + (r_n(g·c) ⊕ φ(g, c))

The K best by r_b' ⊕ r_n' + the weighted scores of their labels go on. A new prefix that stands in
the beam already isn't made again: it is part of that one's sum. For this the search knows exactly
which prefixes continue which (`nested`), whatever left the beam and came back in between.

A label below `threshold` isn't appended in that frame; all sums among the prefixes of the beam stay
complete. A frame without any candidate is *quiet*: it moves no prefix, and costs a fifth.

A stream's slots change in its own busy frames only, and nothing is summed across slots. So its
result depends neither on its company nor on how its frames are cut.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from asr.ops import BLANK, batch_rows, gather_beams, length_mask
from asr.search.ctc_prefix import FLOOR
from asr.search.scorer import Hypothesis, Scorer

# nats behind the best prefix, with the scorers or by CTC alone, within which another one may still win
RIVAL = 7.0
LABEL, FRAME, EMISSION = range(3)  # columns of `history`


@dataclass(frozen=True)
class Prefixes:
    """The beams of B streams, between two frames.

    r_n, r_b  (B, K) float64, both -∞ in an empty slot
    scores    (B, K, S) float64, of the other scorers, before weighting
    last      (B, K) the last label, the start symbol at first
    lens      (B, K) labels
    nested    (B, K, K) bool, whether prefix k begins prefix j
    origin    (B, K) where `_entering` finds φ of the prefix without its last label
    peak      (B, K) float64, the most probability that entered the prefix in one frame
    history   (B, K, 1 + U, 3) float64, of each label: itself, its frame, its ln p there; from 1
    read      (B,) frames
    states    of the scorers
    """

    r_n: Tensor
    r_b: Tensor
    scores: Tensor
    last: Tensor
    lens: Tensor
    nested: Tensor
    origin: Tensor
    peak: Tensor
    history: Tensor
    read: Tensor
    states: list[Any]

    def __len__(self) -> int:
        return len(self.read)

    def tensors(self) -> dict[str, Tensor]:
        """Map names to all but the scorers' states."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "states"}


@dataclass(frozen=True)
class BestPrefix:
    """What a stream reads so far, by its best prefix.

    tokens   label ids
    frames   of each token, counted from the stream's start: where most probability entered it
    stable   the number of tokens that it has in common with all its rivals, which `RIVAL` tells
    """

    tokens: list[int]
    frames: list[int]
    stable: int


@dataclass(frozen=True)
class _Frame:
    """One frame of each stream.

    x           (B, V) float32
    candidates  (B, C) the likeliest labels
    emissions   (B, C) float64, x of the candidates, -∞ below the threshold
    valid       (B, 1) bool, whether the stream has this frame
    busy        (B, 1) bool, whether it has a candidate
    number      (B, 1) of the frame, from the stream's start
    """

    x: Tensor
    candidates: Tensor
    emissions: Tensor
    valid: Tensor
    busy: Tensor
    number: Tensor


class CTCBeamSearch:
    """A search that streams enter and leave, and that reads their frames in any portions.

    scorers:     by name, each with its weight, added to CTC's score (of weight 1); one of weight 0
                 is left out. Their state is a tensor (B, K), or None
    sos_eos:     id of the start/end symbol
    beam:        K
    candidates:  C, the likeliest labels of a frame, by CTC alone; None: all
    threshold:   probability below which a label isn't appended
    raises       ValueError if a weight is below 0
    """

    def __init__(
        self,
        scorers: Mapping[str, tuple[Scorer, float]],
        sos_eos: int,
        beam: int = 10,
        candidates: int | None = 20,
        threshold: float = 1e-4,
    ):
        weights = {name: weight for name, (_, weight) in scorers.items()}
        if min(weights.values(), default=0.0) < 0:
            raise ValueError(f"weights: got {weights}, expected none below 0")
        self.scorers = {name: scorer for name, (scorer, _) in scorers.items() if weights[name]}
        self.weights = [weights[name] for name in self.scorers]
        self.sos_eos, self.K, self.C = sos_eos, beam, candidates
        self.threshold = torch.tensor(threshold).log().item()

    @torch.no_grad()
    def start(self, B: int, device: torch.device | str = "cpu") -> Prefixes:
        """Begin B streams: each reads nothing, with certainty."""
        K, rows = self.K, torch.zeros(B, dtype=torch.long, device=device)
        slots = rows.unsqueeze(1).repeat(1, K)  # (B, K) int64
        none = torch.full((B, K), -torch.inf, dtype=torch.float64, device=device)
        r_b = none.clone()
        r_b[:, 0] = 0.0
        H = torch.zeros(B, 1, 1, device=device)
        states = [s.reorder(s.start(H, rows + 1), slots) for s in self.scorers.values()]
        return Prefixes(
            r_n=none,
            r_b=r_b,
            scores=none.new_zeros(B, K, len(states)),
            last=slots + self.sos_eos,
            lens=slots,
            nested=torch.ones(B, K, K, dtype=torch.bool, device=device),
            origin=slots + K,
            peak=none,
            history=none.new_zeros(B, K, 1, 3),
            read=rows,
            states=states,
        )

    def select(self, state: Prefixes, streams: Tensor) -> Prefixes:
        """Keep some streams, (B',) int."""
        pairs = zip(self.scorers.values(), state.states, strict=True)
        kept = {name: x[streams] for name, x in state.tensors().items()}
        return Prefixes(**kept, states=[scorer.select(x, streams) for scorer, x in pairs])

    def stack(self, states: Sequence[Prefixes]) -> Prefixes:
        """Put the streams of several states side by side, in order."""
        U = max(x.history.size(2) for x in states)
        parts = [_columns(x, U).tensors() for x in states]
        pairs = zip(
            self.scorers.values(), zip(*(x.states for x in states), strict=True), strict=True
        )
        own = [functools.reduce(scorer.merge, its) for scorer, its in pairs]
        return Prefixes(**{n: torch.cat([x[n] for x in parts]) for n in parts[0]}, states=own)

    def unstack(self, state: Prefixes) -> list[Prefixes]:
        """Return the state of each stream."""
        rows = torch.arange(len(state), device=state.read.device)
        return [self.select(state, row) for row in rows.split(1)]

    @torch.no_grad()
    def step(self, log_probs: Tensor, lens: Tensor, state: Prefixes) -> Prefixes:
        """Read frames.

        log_probs:  (B, T, V) float, ln posteriors of blank and labels; what stands beyond `lens`
                    isn't read
        lens:       (B,) frames of each stream, 0 or more
        """
        T, V = log_probs.shape[1:]
        padding = length_mask(lens, T)  # (B, T)
        x = log_probs.float().clamp(min=FLOOR).masked_fill_(padding.unsqueeze(2), FLOOR)
        labels = x.clone()
        labels[..., BLANK] = labels[..., self.sos_eos] = -torch.inf
        emissions, candidates = labels.topk(min(self.C or V, V - 2))  # (B, T, C)
        emissions = emissions.double().masked_fill_(emissions < self.threshold, -torch.inf)
        busy = ~(padding | emissions[..., 0].isneginf())  # (B, T)
        counts = torch.cat([state.lens.max().view(1), lens.max().view(1), busy.any(0)])
        U, last, *is_busy = counts.tolist()  # the one wait for the device
        state = _columns(state, 1 + U + sum(is_busy))
        numbers = state.read.unsqueeze(1) + torch.arange(T, device=lens.device)  # (B, T)
        for t, found in enumerate(is_busy[:last]):
            one = (y[:, t : t + 1] for y in (~padding, busy, numbers))
            frame = _Frame(x[:, t], candidates[:, t], emissions[:, t], *one)
            state = self._busy(state, frame) if found else _quiet(state, frame)
        return replace(state, read=state.read + lens)

    def _busy(self, state: Prefixes, frame: _Frame) -> Prefixes:
        """Let the K best of all prefixes and their continuations go on."""
        K, C, device = self.K, frame.candidates.size(1), frame.x.device
        stays, entering = _stay(state, frame)
        entering = entering.masked_fill(~frame.busy, -torch.inf)  # (B, K)
        new_n = _continue(state, frame)  # (B, K, C)
        gains = self._gains(state, frame.candidates.unsqueeze(1).expand(new_n.shape))
        given = self._weigh(state.scores)  # (B, K)
        new = new_n + (given.unsqueeze(2) + self._weigh(gains))  # (B, K, C)
        totals = _cat(torch.logaddexp(stays.r_n, stays.r_b) + given, new)  # (B, K + K·C)
        slots = _slots(K, device)  # (1, K)
        chosen = torch.where(frame.busy, totals.topk(K).indices, slots)  # (B, K)
        is_new, which = chosen >= K, (chosen - K).clamp(min=0)
        k = torch.where(is_new, which // C, chosen)
        y = torch.where(is_new, frame.candidates.gather(1, which % C), state.last.gather(1, k))
        gained = gather_beams(gains.flatten(1, 2), which).masked_fill(~is_new.unsqueeze(2), 0.0)
        better = entering > state.peak  # (B, K), of the old slots
        source = torch.where(better, state.origin % (K + 1), slots).gather(1, k)
        lens = state.lens.gather(1, k) + is_new
        history = gather_beams(state.history, torch.where(is_new, k, source))
        at = lens * (is_new | better.gather(1, k))  # column 0 takes what isn't to be written
        entry = [y.double(), frame.number.expand_as(y).double(), frame.x.gather(1, y).double()]
        history[batch_rows(len(y), device), slots, at] = torch.stack(entry, 2)
        r_n = _cat(stays.r_n, new_n).gather(1, chosen)
        r_b = stays.r_b.gather(1, k).masked_fill(is_new, -torch.inf)
        nested = _nested(state.nested, k, is_new, y, lens, history[..., LABEL])
        return Prefixes(
            r_n=r_n,
            r_b=r_b,
            scores=gather_beams(state.scores, k) + gained,
            last=y,
            lens=lens,
            nested=nested,
            origin=_origin(nested, lens, y, totals.gather(1, chosen) > -torch.inf),
            peak=_cat(torch.maximum(state.peak, entering), new_n).gather(1, chosen),
            history=history,
            read=state.read,
            states=self._follow(state.states, k, y, is_new),
        )

    def _gains(self, state: Prefixes, labels: Tensor) -> Tensor:
        """Score labels (B, K, C) → (B, K, C, S)."""
        if not self.scorers:
            return state.scores.new_zeros(*labels.shape, 0)
        pairs = zip(self.scorers.values(), state.states, strict=True)
        return torch.stack([scorer.score(x, labels) for scorer, x in pairs], 3).double()

    def _weigh(self, scores: Tensor) -> Tensor:
        """Sum over scorers by weight, (…, S) → (…)."""
        weighted = [scores[..., n] * weight for n, weight in enumerate(self.weights)]
        return functools.reduce(torch.add, weighted, scores.new_zeros(()).expand(scores.shape[:-1]))

    def _follow(self, states: Sequence[Any], k: Tensor, y: Tensor, is_new: Tensor) -> list[Any]:
        """Let the scorers' states go on from slots k, and read y where it is new."""
        followed = []
        for scorer, state in zip(self.scorers.values(), states, strict=True):
            state = scorer.reorder(state, k)
            read = scorer.step(y, state)
            followed.append(None if read is None else torch.where(is_new, read, state))
        return followed

    @torch.no_grad()
    def hypotheses(self, state: Prefixes, ended: bool = True) -> list[list[Hypothesis]]:
        """List each stream's prefixes, best first, as if nothing followed.

        ended     whether the scorers' scores of the end are added
        returns   hypotheses whose confidences are p(token) at its frame, and the geometric mean per
                  frame of the sum over alignments
        """
        scores, ctc = state.scores, torch.logaddexp(state.r_n, state.r_b)  # (B, K, S), (B, K)
        if ended:
            ends = torch.full_like(state.last, self.sos_eos).unsqueeze(2)
            scores = scores + self._gains(state, ends).squeeze(2)
        mean = (ctc / state.read.clamp(min=1).unsqueeze(1)).exp()
        facts = [ctc + self._weigh(scores), mean, state.lens, ctc]
        wide = torch.stack(facts, 2), scores, state.history.flatten(2)
        packed = torch.cat(wide, 2).tolist()  # float64: exact; one wait
        made = [[self._hypothesis(*row) for row in rows if row[0] > -torch.inf] for rows in packed]
        return [sorted(nbest, key=lambda h: -h.score) for nbest in made]

    def _hypothesis(self, total: float, mean: float, lens: float, *rest: float) -> Hypothesis:
        by_name = dict(zip(("ctc", *self.scorers), rest, strict=False))
        past = torch.tensor(rest[len(by_name) :], dtype=torch.float64).view(-1, 3)
        past = past[1 : 1 + int(lens)]
        tokens, confidences = past[:, LABEL].long().tolist(), past[:, EMISSION].exp().tolist()
        return Hypothesis(tokens, total, by_name, "end", confidences, mean)

    @torch.no_grad()
    def best(self, state: Prefixes) -> list[BestPrefix]:
        """Return what each stream reads so far."""
        ctc = torch.logaddexp(state.r_n, state.r_b)  # (B, K)
        totals = ctc + self._weigh(state.scores)
        best = totals.argmax(1, keepdim=True)  # (B, 1)
        history, lens = gather_beams(state.history, best)[:, 0], state.lens.gather(1, best)
        labels = history[..., LABEL].unsqueeze(1)  # (B, 1, 1 + U)
        end = 1 + torch.minimum(state.lens, lens).unsqueeze(2)  # (B, K, 1)
        columns = torch.arange(labels.size(2), device=best.device)
        differ = (state.history[..., LABEL] != labels) & (columns > 0) | (columns >= end)
        alike = (~differ).cumprod(2).sum(2) - 1  # (B, K), without column 0
        # credit may be taken back, as that of a hotword is: CTC's own rivals count, too
        near = [x > x.gather(1, best) - RIVAL for x in (totals, ctc)]
        stable = alike.where(near[0] | near[1], lens).amin(1, keepdim=True)  # (B, 1)
        packed = torch.cat([stable, lens, history[..., LABEL], history[..., FRAME]], 1)
        return [_partial(*row) for row in packed.long().tolist()]


def _partial(stable: int, lens: int, *rest: int) -> BestPrefix:
    half = len(rest) // 2
    return BestPrefix(list(rest[1 : 1 + lens]), list(rest[half + 1 : half + 1 + lens]), stable)


def _stay(state: Prefixes, frame: _Frame) -> tuple[Prefixes, Tensor]:
    """Let each prefix read the frame without a new label: r_n, r_b, and what enters it, (B, K)."""
    total = torch.logaddexp(state.r_n, state.r_b)
    x = frame.x.gather(1, state.last).double()  # (B, K)
    phi = F.pad(torch.stack([total, state.r_b], 1), (0, 1), value=-torch.inf)  # (B, 2, K + 1)
    entering = x + phi.flatten(1).gather(1, state.origin)
    r_n = torch.where(frame.valid, torch.logaddexp(state.r_n + x, entering), state.r_n)
    r_b = torch.where(frame.valid, total + frame.x[:, BLANK : BLANK + 1], state.r_b)
    return replace(state, r_n=r_n, r_b=r_b), entering


def _quiet(state: Prefixes, frame: _Frame) -> Prefixes:
    return _stay(state, frame)[0]


def _continue(state: Prefixes, frame: _Frame) -> Tensor:
    """Return r_n of every prefix with each candidate, (B, K, C); -∞ where it stands in the beam already."""
    total = torch.logaddexp(state.r_n, state.r_b).unsqueeze(2)
    same = state.last.unsqueeze(2) == frame.candidates.unsqueeze(1)  # (B, K, C)
    new_n = torch.where(same, state.r_b.unsqueeze(2), total) + frame.emissions.unsqueeze(1)
    K = same.size(1)
    parents = (state.origin % (K + 1)).unsqueeze(1)  # (B, 1, K)
    child = parents == _slots(K, same.device).unsqueeze(2)  # (B, K, K)
    there = (child.unsqueeze(3) & same.unsqueeze(1)).any(2)  # (B, K, C)
    return new_n.masked_fill(there, -torch.inf)


def _nested(
    nested: Tensor, k: Tensor, is_new: Tensor, y: Tensor, lens: Tensor, labels: Tensor
) -> Tensor:
    """Which prefix begins which (B, K, K), after slots k went on: a new one must share its last label, too.

    labels:  (B, K, 1 + U), with the new ones
    """
    rows, own = batch_rows(len(k), k.device).unsqueeze(2), lens.unsqueeze(2)  # (B, 1, 1), (B, K, 1)
    nested = nested[rows, k.unsqueeze(2), k.unsqueeze(1)]
    at = labels[rows, _slots(k.size(1), k.device).unsqueeze(1), own]  # (B, K, K)
    shared = (lens.unsqueeze(1) >= own) & (at == y.unsqueeze(2))
    return nested & (shared | ~is_new.unsqueeze(2))


def _origin(nested: Tensor, lens: Tensor, y: Tensor, alive: Tensor) -> Tensor:
    """Where φ of a prefix without its last label stands: in slot j, or j + K + 1 if the label repeats; K if nowhere."""
    child = nested & (lens.unsqueeze(1) == lens.unsqueeze(2) + 1)  # (B, K, K)
    child &= alive.unsqueeze(1) & alive.unsqueeze(2)
    K = lens.size(1)
    found, j = child.to(torch.uint8).max(1)  # (B, K)
    return torch.where(found > 0, j + (y == y.gather(1, j)) * (K + 1), K)


def _cat(stay: Tensor, new: Tensor) -> Tensor:
    """(B, K), (B, K, C) → (B, K + K·C)"""
    return torch.cat([stay, new.flatten(1)], 1)


def _columns(state: Prefixes, U: int) -> Prefixes:
    """Pad the history to U columns, or cut it."""
    more = U - state.history.size(2)
    return replace(state, history=F.pad(state.history, (0, 0, 0, more))) if more else state


@functools.lru_cache(maxsize=16)
def _slots(K: int, device: torch.device) -> Tensor:
    """0 … K - 1 as (1, K), made once."""
    with torch.inference_mode(False):
        return torch.arange(K, device=device).unsqueeze(0)
