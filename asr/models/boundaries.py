"""Where words begin and end, to the frame of features: a small acoustic model of letters beside CTC.

CTC emits a token somewhere within its sound, and in longer frames. This model knows how the
beginning, the middle and the end of each letter sound, and silence: Gaussians with a common
covariance over features and their slopes, as monophone systems have them (Young et al., "The HTK
Book", flat start). The best path through the letters of known words, each word near its place by CTC,
tells their boundaries.

B utterances, T frames of features, F mels, D = 3 F values of a frame, K states of the model, S states
of an utterance, W frames of the longest window.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from asr.errors import UserError
from asr.model_files import BOUNDARIES, DAMAGED
from asr.models import weights
from asr.models.weights import Weights
from asr.ops import length_mask

STATES = 3  # of a letter: its beginning, its middle and its end, each of a frame or more
NEAR = 25  # frames around a word's place by CTC, within which it is looked for
AROUND = 6  # frames that a word takes around that place, to begin with
ROUNDS = 3  # of alignment and estimation
PRIOR = 10.0  # frames of all speech that count among a state's own
RIDGE = 1e-3  # added to the covariance's diagonal, as a share of its mean
FEWEST = 30  # words to learn from
PAUSE_COST = 40.0  # nats of silence between words; without it the closure of a P or a K is silence
BATCH = 16  # utterances that are aligned together
LEAST = -1e6  # log probability of an impossible frame; finite, so that the rest of a path counts
SILENCE, SPEECH = 0, 1  # states: of no letter, and of a letter that was not learned


class WordSpan(NamedTuple):
    """A word, and its frames of features first ≤ t < end."""

    text: str
    first: int
    end: int


class Example(NamedTuple):
    """Features of an utterance, (T, F), and its words as CTC places them."""

    X: Tensor
    words: Sequence[WordSpan]


@dataclass(frozen=True)
class Boundaries:
    """A Gaussian of each state: log p(x) = x · weight + bias, but for a term that all states share.

    letters  upper case; STATES states of each, after those of silence and speech
    weight   (D, K)
    bias     (K,)
    """

    letters: str
    weight: Tensor
    bias: Tensor

    def states(self, word: str) -> list[int]:
        """List the states of a word."""
        return [
            2 + STATES * place + n if place >= 0 else SPEECH
            for place in map(self.letters.find, word.upper())
            for n in range(STATES)
        ]

    @torch.no_grad()
    def refine(
        self, X: Tensor, X_lens: Tensor, words: Sequence[Sequence[WordSpan]]
    ) -> list[list[WordSpan]]:
        """Place words anew.

        X        (B, T, F) features, X_lens (B,)
        words    of each utterance, in order, as CTC places them
        returns  the words with their boundaries; as they were in an utterance that leaves no path
                 through the windows of all its words
        """
        plan = _Plan.of([[(self.states(w.text), w) for w in row] for row in words], X_lens.tolist())
        emissions = slopes(X, X_lens) @ self.weight + self.bias  # (B, T, K)
        starts, ends, possible = _best_path(emissions, plan.to(X.device), PAUSE_COST)
        return [
            [w._replace(first=start[n], end=end[m]) for w, (n, m) in zip(row, spans, strict=True)]
            if ok
            else list(row)
            for row, spans, start, end, ok in zip(
                words, plan.spans, starts.tolist(), ends.tolist(), possible.tolist(), strict=True
            )
        ]

    def to(self, device: torch.device | str) -> "Boundaries":
        """Move the tensors to a device."""
        return Boundaries(self.letters, self.weight.to(device), self.bias.to(device))

    def save(self, folder: Path) -> None:
        """Write the file of a model folder."""
        tensors = {"weight": self.weight.contiguous(), "bias": self.bias.contiguous()}
        weights.write(Weights(tensors, {"letters": self.letters}), folder / BOUNDARIES)


def load(folder: str | Path, mels: int) -> Boundaries | None:
    """Load the model of a model folder, of features of so many mels; None if the folder has none.

    raises   UserError if the file is damaged, or of other features
    """
    path = Path(folder) / BOUNDARIES
    if not path.exists():
        return None
    read = weights.read(path)
    letters, (weight, bias) = (
        (read.bound or {}).get("letters", ""),
        (read.tensors.get(name, torch.empty(0)) for name in ("weight", "bias")),
    )
    shape = (3 * mels, 2 + STATES * len(letters))
    if weight.shape != shape or bias.shape != shape[1:]:
        got = f"{tuple(weight.shape)} and {tuple(bias.shape)}"
        raise UserError(f"{path}: has shapes {got}, expected {shape} and {shape[1:]}; {DAMAGED}")
    weights.check_finite(path, {"weight": weight, "bias": bias})
    return Boundaries(letters, weight, bias)


def slopes(X: Tensor, X_lens: Tensor) -> Tensor:
    """Take the utterance's mean off, and add differences over 2 and 4 frames: (B, T, F) → (B, T, 3 F)."""
    hidden = length_mask(X_lens, X.size(1)).unsqueeze(2)  # (B, T, 1)
    mean = X.masked_fill(hidden, 0.0).sum(1) / X_lens.unsqueeze(1)  # (B, F)
    X = X - mean.unsqueeze(1)
    frames, last = torch.arange(X.size(1), device=X.device), X_lens.unsqueeze(1) - 1

    def at(step: int) -> Tensor:
        """The frame `step` later, or the utterance's first or last one."""
        places = torch.minimum(frames + step, last).clamp(min=0).unsqueeze(2)  # (B, T, 1)
        return X.gather(1, places.expand_as(X))  # (B, T, F)

    return torch.cat([X, at(1) - at(-1), (at(2) - at(-2)) / 2], 2)


class _Plan(NamedTuple):
    """What a path has to pass through, each (B, S) but for the last two.

    states   ids; 0 beyond an utterance's own
    first    frame with which the state's window begins: the window of its word
    frames   of that window
    begins   whether a word begins, before which may be silence
    counts   (B,) states of each utterance
    lens     (B,) frames of each utterance
    spans    by utterance: of each word its first and its last state
    """

    states: Tensor
    first: Tensor
    frames: Tensor
    begins: Tensor
    counts: Tensor
    lens: Tensor
    spans: list[list[tuple[int, int]]]

    @staticmethod
    def of(spelled: Sequence[Sequence[tuple[list[int], WordSpan]]], lens: Sequence[int]) -> "_Plan":
        """Lay out utterances: states and place of each word; a word with more states than frames loses the last."""
        rows, spans = [], []
        for words, T in zip(spelled, lens, strict=True):
            row, span = list[tuple[int, int, int, int]](), list[tuple[int, int]]()
            for states, word in words:
                first, end = max(0, word.first - NEAR), min(T, word.end + NEAR)
                span.append((len(row), len(row) + min(len(states), end - first) - 1))
                row += [(s, first, end - first, not n) for n, s in enumerate(states[: end - first])]
            rows.append(torch.tensor(row or [(0, 0, 1, 1)]))
            spans.append(span)
        columns = pad_sequence(rows, batch_first=True).unbind(2)
        ids, firsts, frames, begins = columns
        counts = torch.tensor([*map(len, rows)])
        return _Plan(ids, firsts, frames, begins.bool(), counts, torch.tensor(lens), spans)

    def to(self, device: torch.device) -> "_Plan":
        """Move the tensors to a device."""
        tensors = {name: x.to(device) for name, x in self._asdict().items() if name != "spans"}
        return self._replace(**tensors)


def _best_path(emissions: Tensor, plan: _Plan, pause_cost: float) -> tuple[Tensor, Tensor, Tensor]:
    """Find the best path, state by state (Viterbi): each takes a frame or more of its window.

    A path that enters a state at frame t and leaves it before frame s gains sums(s) − sums(t), with
    the sums of the state's emissions before each frame. So a running maximum over t tells the best
    entry for every s.

    emissions   (B, T, K)
    pause_cost  of silence between two words
    returns     starts, ends (B, S): the state's frames; possible (B,): whether a path stays within
                the windows
    """
    B, T, K = emissions.shape
    W, S = int(plan.frames.max()), plan.states.size(1)
    within = torch.arange(W + 1, device=emissions.device)  # place in a window
    quiet = F.pad(emissions[..., SILENCE].double().cumsum(1), (1, 0))  # (B, T + 1)
    sums = _sums(emissions, plan, within)  # (B, S, W + 1)
    score = torch.full((B, W + 1), -torch.inf, dtype=torch.float64, device=emissions.device)
    score[:, 0], before, trace = 0.0, torch.zeros_like(plan.lens), []
    for s in range(S):
        first, active = plan.first[:, s], (s < plan.counts).unsqueeze(1)
        shift = (first - before).unsqueeze(1) + within[:-1]  # (B, W), in the window before
        direct = score.gather(1, shift.clamp(0, W)).masked_fill(shift > W, -torch.inf)
        paused, since = (score - _at(quiet, before, within)).cummax(1)  # (B, W + 1)
        paused = paused.gather(1, (shift - 1).clamp(0, W)) + _at(quiet, first, within[:-1])
        paused = paused - pause_cost if s else paused
        paused = paused.masked_fill((shift < 1) | ~plan.begins[:, s, None], -torch.inf)
        gain, entry = (torch.maximum(direct, paused) - sums[:, s, :-1]).cummax(1)  # (B, W)
        left = F.pad(sums[:, s, 1:] + gain, (1, 0), value=-torch.inf)  # (B, W + 1)
        trace.append((before, entry, paused > direct, since))
        score = torch.where(active, left, score)
        before = torch.where(active.squeeze(1), first, before)
    # the end: directly, or through silence
    last = (plan.lens - before).unsqueeze(1)  # (B, 1)
    direct = score.gather(1, last.clamp(max=W)).masked_fill(last > W, -torch.inf).squeeze(1)
    paused, since = (score - _at(quiet, before, within)).cummax(1)
    place = (last - 1).clamp(0, W)
    rested = (paused.gather(1, place) + quiet.gather(1, last + before.unsqueeze(1))).squeeze(1)
    end = torch.where(rested > direct, before + since.gather(1, place).squeeze(1), plan.lens)
    starts, ends = _trace(trace, plan, end)
    return starts, ends, torch.maximum(direct, rested) > LEAST / 2


def _sums(emissions: Tensor, plan: _Plan, within: Tensor) -> Tensor:
    """Sum each state's emissions before each frame of its window, (B, S, W + 1) float64."""
    B, T, K = emissions.shape
    frames = (plan.first.unsqueeze(2) + within[:-1]).clamp(max=T - 1)  # (B, S, W)
    places = (frames * K + plan.states.unsqueeze(2)).flatten(1)  # (B, S · W)
    own = emissions.flatten(1).gather(1, places).view_as(frames).double()
    own = own.masked_fill(within[:-1] >= plan.frames.unsqueeze(2), LEAST)
    return F.pad(own.cumsum(2), (1, 0))


def _at(quiet: Tensor, first: Tensor, within: Tensor) -> Tensor:
    """Silence's sums (B, T + 1) at the frames of windows, (B, len(within))."""
    return quiet.gather(1, (first.unsqueeze(1) + within).clamp(max=quiet.size(1) - 1))


def _trace(trace: Sequence[tuple[Tensor, ...]], plan: _Plan, end: Tensor) -> tuple[Tensor, Tensor]:
    """Follow the best path back from its end, (B,): frames first ≤ t < end of each state, (B, S) each."""

    def pick(values: Tensor, place: Tensor) -> Tensor:
        return values.gather(1, place.clamp(0, values.size(1) - 1).unsqueeze(1)).squeeze(1)

    starts, ends = torch.zeros_like(plan.states), torch.zeros_like(plan.states)
    for s in range(len(trace) - 1, -1, -1):
        before, entry, rested, since = trace[s]
        first, active = plan.first[:, s], s < plan.counts
        place = pick(entry, end - first - 1)
        start = first + place
        starts[:, s], ends[:, s] = start, end
        rest = before + pick(since, start - before - 1)
        end = torch.where(active, torch.where(pick(rested, place), rest, start), end)
    return starts, ends


def learn(examples: Sequence[Example]) -> Boundaries | None:
    """Learn from examples, in turns: align them, then take each state's mean, and the covariance.

    None if they have too few words.
    """
    examples = sorted((e for e in examples if e.words), key=lambda e: len(e.X))
    if sum(len(e.words) for e in examples) < FEWEST:
        return None
    letters = Counter(letter for e in examples for w in e.words for letter in w.text.upper())
    model = Boundaries("".join(sorted(letters)), torch.empty(0), torch.empty(0))
    features = [slopes(e.X[None], torch.tensor([len(e.X)]))[0] for e in examples]  # (T, D) each
    labels = [_evenly(model, e) for e in examples]  # (T,) each
    for _ in range(ROUNDS):
        model = _estimate(model.letters, torch.cat(features), torch.cat(labels))
        labels = [
            row
            for n in range(0, len(examples), BATCH)
            for row in _aligned(model, examples[n : n + BATCH])
        ]
    return _estimate(model.letters, torch.cat(features), torch.cat(labels))


def _evenly(model: Boundaries, example: Example) -> Tensor:
    """The state of each frame, (T,), if letters of a word are of like length."""
    words, labels = example.words, torch.full((len(example.X),), SILENCE)
    for n, word in enumerate(words):
        first, end = max(0, word.first - AROUND), min(len(labels), word.end + AROUND)
        if n:
            first = max(first, (words[n - 1].end + word.first) // 2)
        if n + 1 < len(words):
            end = min(end, (word.end + words[n + 1].first) // 2)
        states = torch.tensor(model.states(word.text))
        labels[first:end] = states[torch.arange(end - first) * len(states) // max(1, end - first)]
    return labels


def _aligned(model: Boundaries, examples: Sequence[Example]) -> list[Tensor]:
    """The state of each frame on the best path, (T,) each.

    Pauses cost nothing: words that are too long in the beginning would stay so.
    """
    X, X_lens = (
        pad_sequence([e.X for e in examples], batch_first=True),
        [len(e.X) for e in examples],
    )
    plan = _Plan.of([[(model.states(w.text), w) for w in e.words] for e in examples], X_lens)
    emissions = slopes(X, plan.lens) @ model.weight + model.bias
    starts, ends, _ = _best_path(emissions, plan, pause_cost=0.0)
    labels = []
    for T, states, start, end, count in zip(
        X_lens, plan.states, starts, ends, plan.counts, strict=True
    ):
        row = torch.full((T,), SILENCE)
        for state, t, until in zip(
            *(x[:count].tolist() for x in (states, start, end)), strict=True
        ):
            row[t:until] = state
        labels.append(row)
    return labels


def _estimate(letters: str, features: Tensor, labels: Tensor) -> Boundaries:
    """Fit the Gaussians to frames, (N, D), and their states, (N,)."""
    X, K = features.double(), 2 + STATES * len(letters)
    speech = X[labels != SILENCE].mean(0)  # (D,)
    counts = torch.zeros(K, 1, dtype=X.dtype).index_add(
        0, labels, torch.ones(len(X), 1, dtype=X.dtype)
    )
    sums = torch.zeros(K, X.size(1), dtype=X.dtype).index_add(0, labels, X)  # (K, D)
    means = (sums + PRIOR * speech) / (counts + PRIOR)
    rest = X - means[labels]
    covariance = rest.T @ rest / len(X)  # (D, D)
    covariance += RIDGE * covariance.diagonal().mean() * torch.eye(X.size(1), dtype=X.dtype)
    weight = torch.linalg.solve(covariance, means.T)  # (D, K)
    bias = -0.5 * (means.T * weight).sum(0)  # (K,)
    return Boundaries(letters, weight.float(), bias.float())
