"""Hotwords: phrases whose words a search is to prefer, as a scorer.

A hypothesis is the string of its tokens' characters, ▁ for the space. A phrase occurs in it wherever its characters
stand between two boundaries, however tokens spell them (so also as the tokenizer itself would). The edges of the
hypothesis are boundaries, and every place but between two characters of one word: letters, marks, digits and
apostrophes of a script that writes spaces. "art" doesn't occur in "party"; 北京 occurs anywhere.

The score of a complete hypothesis is the credit of all occurrences of all phrases, those that overlap or lie within
each other included; the credit of an occurrence is the phrase's weight times the number of its tokens as the
tokenizer spells it. So that a search sees it coming, credit is lent while a phrase is being read: with φ the share of
the credit that the longest unfinished phrase has reached, evenly by character,

    score(label) = φ(after) - φ(before) + credit of the occurrences that the label completes

and φ(end) = 0. What is lent is taken back as a match breaks, but for the share of a shorter one that goes on. A
phrase that ends in a word is unfinished until a boundary follows.

The automaton is that of Aho & Corasick (1975) over characters, its steps composed to tokens. A state is a string that
begins a phrase; there are two empty ones, after a boundary and within a word. A token that leads no phrase of the
state on, and completes none, does what it does after the state's longest shorter one, at last after an empty one:
only the others are stored.

B utterances, K hypotheses of each, V vocabulary, C candidate labels of a hypothesis, S states, A stored arcs.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from asr.search.automaton import look_up, merge, moved, reorder, select
from asr.search.phrases import INSIDE, OPEN, Phrase, States, empty, joins, read

ROUNDING = 1e-9


@dataclass(frozen=True)
class Hotwords:
    """The tables of the automaton.

    lent       (S,) float64, φ
    pending    (S,) float64, credit of the phrases that are complete if a boundary follows
    opens      (V,) float64, 1 for tokens that begin with a boundary, and for the end
    empty      (S,) int64, the empty state that a state falls back to: OPEN or INSIDE
    base       (2, V) float64, what tokens earn after the empty states: credit and φ behind
    base_next  (2, V) int64, the states behind
    first      (S + 1,) int64, where a state's arcs begin
    keys       (A + 1,) int64, sorted: state · V + label; the last is none's
    gains      (A + 1,) float64, instead of `base`
    nexts      (A + 1,) int64, instead of `base_next`
    ceiling    the most that a label can score
    width      the most arcs of a state
    """

    lent: Tensor
    pending: Tensor
    opens: Tensor
    empty: Tensor
    base: Tensor
    base_next: Tensor
    first: Tensor
    keys: Tensor
    gains: Tensor
    nexts: Tensor
    ceiling: float
    width: int

    def to(self, device: torch.device | str) -> "Hotwords":
        """The tables on a device."""
        return moved(self, device)


class HotwordScorer:
    """Credit for phrases, as above. The state is an automaton's a hypothesis, (B, K) int64."""

    full = True

    def __init__(self, hotwords: Hotwords):
        self.hotwords, self.ceiling = hotwords, hotwords.ceiling

    select, merge, reorder = map(staticmethod, (select, merge, reorder))

    def start(self, H: Tensor, H_lens: Tensor) -> Tensor:
        """One hypothesis an utterance, at a boundary."""
        return torch.full((len(H), 1), OPEN, device=H.device)

    def score(self, state: Tensor, candidates: Tensor | None) -> Tensor:
        """(B, K, V), or (B, K, C) of candidates"""
        tables = self.hotwords
        gains = self._all(state) if candidates is None else self._arcs(state, candidates, tables.gains, tables.base)
        opens = tables.opens if candidates is None else tables.opens[candidates]
        return gains + (tables.pending[state].unsqueeze(2) * opens - tables.lent[state].unsqueeze(2))

    def step(self, y: Tensor, state: Tensor) -> Tensor:
        """Read labels y (B, K)."""
        return self._arcs(state, y.unsqueeze(2), self.hotwords.nexts, self.hotwords.base_next).squeeze(2)

    def _arcs(self, state: Tensor, labels: Tensor, stored: Tensor, base: Tensor) -> Tensor:
        """Entries of labels (B, K, C): a stored arc's, else the empty state's."""
        states = state.unsqueeze(2)
        arcs, found = look_up(self.hotwords.keys, states * len(self.hotwords.opens) + labels)
        return torch.where(found, stored[arcs], base[self.hotwords.empty[states], labels])

    def _all(self, state: Tensor) -> Tensor:
        """Gains of all labels: the empty state's row, overwritten by the stored arcs; (B, K, V)."""
        tables, V = self.hotwords, len(self.hotwords.opens)
        arcs = tables.first[state].unsqueeze(2) + torch.arange(tables.width, device=state.device)
        none = arcs >= tables.first[state + 1].unsqueeze(2)  # (B, K, width)
        arcs = arcs.masked_fill(none, len(tables.keys) - 1)
        labels = (tables.keys[arcs] % V).masked_fill(none, 0)  # the blank is no label
        return tables.base[tables.empty[state]].scatter(2, labels, tables.gains[arcs])


def load(
    path: str | os.PathLike, encode: Callable[[str, str], list[int]], symbols: Sequence[str], weight: float
) -> Hotwords:
    """Read phrases, a line each, perhaps with a tab and a weight behind, and make the automaton.

    encode:   the tokenizer's, (text, where) → ids
    symbols:  the tokenizer's, V of them, blank first, start/end symbol last
    weight:   of a token of phrases without one
    raises    UserError, with file and line, if the file is absent or has no phrase, or a line is amiss
    """
    return build(read(path, encode, symbols, weight), symbols)


def build(phrases: Sequence[Phrase], symbols: Sequence[str]) -> Hotwords:
    """Make the automaton of phrases, over V tokens, blank first, start/end symbol last."""
    tokens, V = ["", *symbols[1:-1], ""], len(symbols)
    states = States(phrases)
    arcs = _arcs(states, tokens)
    base = [[states.read(state, token) for token in tokens] for state in (OPEN, INSIDE)]
    keys = [state * V + label for state, row in enumerate(arcs) for label in sorted(row)]
    ends = [arcs[key // V][key % V] for key in keys] + [(0.0, OPEN)]
    widths = torch.tensor([0, *map(len, arcs)])
    hotwords = Hotwords(
        lent=_numbers(states.lent),
        pending=_numbers(states.pending(state) for state in range(len(arcs))),
        opens=_numbers([0, *(not joins(token[0]) for token in tokens[1:-1]), 1]),
        empty=torch.tensor([empty(character) for character in states.last]),
        base=_numbers(gain for row in base for gain, _ in row).view(2, V),
        base_next=torch.tensor([[state for _, state in row] for row in base]),
        first=widths.cumsum(0),
        keys=torch.tensor([*keys, len(arcs) * V]),
        gains=_numbers(gain for gain, _ in ends),
        nexts=torch.tensor([state for _, state in ends]),
        ceiling=0.0,
        width=int(widths.max()),
    )
    return replace(hotwords, ceiling=_ceiling(hotwords))


def _numbers(x: Iterable[float]) -> Tensor:
    return torch.tensor(list(x), dtype=torch.float64)


def _ceiling(x: Hotwords) -> float:
    """The most that a label can score, or little more: after an empty state, with the best that falls back to it."""
    V, keys = len(x.opens), x.keys[:-1]
    stored = x.gains[:-1] + x.pending[keys // V] * x.opens[keys % V] - x.lent[keys // V]
    best = torch.zeros(2, 2, dtype=torch.float64)  # by empty state, and by whether the label opens
    for opens in (0, 1):
        best[:, opens].scatter_reduce_(0, x.empty, x.pending * opens - x.lent, "amax")
    fallen = x.base + best[:, x.opens.long()]
    return max(float(part.max()) for part in (stored, fallen) if part.numel()) + ROUNDING


def _arcs(states: States, tokens: Sequence[str]) -> list[dict[int, tuple[float, int]]]:
    """Of each state: label → what it earns, and the state behind; but where the empty states' are the same."""
    whole, longer = defaultdict(list), {}  # labels that are a string, and that begin with it
    for label, token in enumerate(tokens):
        whole[token].append(label)
        for n in range(1, len(token) + 1):
            longer.setdefault(token[:n], []).extend([label] * (n < len(token)))
    arcs = [{} for _ in states.last]
    for state in states.order[1:]:
        labels = set()
        for string, complete in states.ways(state, longer):
            labels.update(whole.get(string, ()))
            if complete:
                both = joins(string[-1])
                labels.update(x for x in longer[string] if not (both and joins(tokens[x][len(string)])))
        arcs[state] = arcs[states.shorter[state]] | {label: states.read(state, tokens[label]) for label in labels}
    return arcs
