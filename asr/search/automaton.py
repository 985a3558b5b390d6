"""The automaton that finds hotwords in a hypothesis, as a scorer; hotwords.py says what it computes.

The automaton is that of Aho & Corasick (1975) over characters, its steps composed to tokens. A
state is a string that begins a phrase; two states are empty, one after a boundary and one within a
word. A token that neither continues nor completes a phrase of the state does what it does after the
state's longest suffix state, and finally after an empty one; only the other tokens' arcs are
stored.

B utterances, K hypotheses of each, V vocabulary, C candidate labels of a hypothesis, S states, A
stored arcs.
"""

import functools
import unicodedata
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from asr.search.hotwords import SPACE, Phrase
from asr.search.tables import Tables, TensorState, look_up

ROUNDING = 1e-9
OPEN, INSIDE = 0, 1  # the empty states: after a boundary, within a word
UNSPACED = (
    "CJK",
    "IDEOGRAPHIC",
    "HIRAGANA",
    "KATAKANA",
    "THAI",
    "LAO",
    "KHMER",
    "MYANMAR",
    "TIBETAN",
)


@functools.cache
def joins(character: str) -> bool:
    """Whether a character and a neighbor of its kind belong to one word."""
    word = character in "'’" or unicodedata.category(character)[0] in "LMN"
    return word and not unicodedata.name(character, "").startswith(UNSPACED)


class States:
    """The automaton of Aho & Corasick (1975) over characters: a state is the longest string that begins a phrase and
    ends what has been read. Each list has one entry per state.

    children        its longer states, by their last character
    last            its last character
    own             credit of the phrase that it equals, else 0
    partial_credit  the share of the credit of an unfinished phrase that it has reached, or else the
                    shorter state's
    shorter         the longest other state that it ends in
    complete        credit of all phrases that it ends in
    """

    def __init__(self, phrases: Sequence[Phrase]):
        self.children: list[dict[str, int]] = [{}, {}]
        self.last, self.own, self.partial_credit = [SPACE, "'"], [0.0, 0.0], [0.0, 0.0]
        for phrase in phrases:
            self._add(phrase)
        self.children[INSIDE] = {
            c: state for c, state in self.children[OPEN].items() if not joins(c)
        }
        self.shorter, self.complete = [OPEN, INSIDE] + [OPEN] * (len(self.last) - 2), list(self.own)
        self.order = [OPEN]  # shorter ones first
        for state in self.order:
            for character, child in self.children[state].items():
                self._link(state, character, child)
                self.order.append(child)

    def _add(self, phrase: Phrase) -> None:
        """Grow the states that begin a phrase."""
        state = OPEN
        for n, character in enumerate(phrase.text, 1):
            if character not in self.children[state]:
                self.children[state][character] = len(self.last)
                self.children.append({})
                self.last.append(character)
                self.own.append(0.0)
                self.partial_credit.append(0.0)
            state = self.children[state][character]
            if n < len(phrase.text) or joins(character):
                self.partial_credit[state] = max(
                    self.partial_credit[state], phrase.credit * n / len(phrase.text)
                )
        self.own[state] = phrase.credit

    def _link(self, state: int, character: str, child: int) -> None:
        """Find the shorter state of a child."""
        self.shorter[child] = (
            empty(character) if state == OPEN else self.next(self.shorter[state], character)
        )
        self.complete[child] += self.complete[self.shorter[child]]
        self.partial_credit[child] = (
            self.partial_credit[child] or self.partial_credit[self.shorter[child]]
        )

    def next(self, state: int, character: str) -> int:
        """Return the state after one more character."""
        while character not in self.children[state] and state > INSIDE:
            state = self.shorter[state]
        return self.children[state].get(character, empty(character))

    def pending(self, state: int) -> float:
        """Return the credit of phrases that are complete if a boundary follows."""
        return self.complete[state] if joins(self.last[state]) else 0.0

    def read(self, state: int, token: str) -> tuple[float, int]:
        """Return a token's gain (credit and φ after it, no pending phrases) and the next state."""
        credit = 0.0
        for n, character in enumerate(token):
            credit += self.pending(state) if n and not joins(character) else 0.0
            state = self.next(state, character)
            credit += 0.0 if joins(character) else self.complete[state]
        return credit + self.partial_credit[state], state

    def ways(self, state: int, known: Container[str]) -> Iterator[tuple[str, bool]]:
        """Yield known strings that continue a phrase of the state, and whether they complete it."""
        ways = [(state, "")]
        for at, before in ways:
            for character, child in self.children[at].items():
                if before + character in known:
                    yield before + character, self.own[child] > 0
                    ways.append((child, before + character))


def empty(character: str) -> int:
    """Return the empty state after a character."""
    return INSIDE if joins(character) else OPEN


@dataclass(frozen=True)
class Hotwords(Tables):
    """The tables of the automaton.

    partial_credit  (S,) float64, φ
    pending         (S,) float64, credit of the phrases that are complete if a boundary follows
    opens           (V,) float64, 1 for tokens that begin with a boundary, and for the end
    empty           (S,) int64, the empty state that a state falls back to: OPEN or INSIDE
    base            (2, V) float64, what tokens earn after the empty states: credit, and φ after the
                    token
    base_next       (2, V) int64, the states after them
    first           (S + 1,) int64, where a state's arcs begin
    keys            (A + 1,) int64, sorted: state · V + label; the last belongs to no arc
    gains           (A + 1,) float64, in place of `base`
    nexts           (A + 1,) int64, in place of `base_next`
    ceiling         the most that a label can score
    width           the most arcs of a state
    """

    partial_credit: Tensor
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


class HotwordScorer(TensorState):
    """Score by the credit for phrases. The state is the automaton's, (B, K) int64."""

    full = True

    def __init__(self, hotwords: Hotwords):
        self.hotwords, self.ceiling = hotwords, hotwords.ceiling

    def start(self, H: Tensor, H_lens: Tensor) -> Tensor:
        """Begin one hypothesis of each utterance, at a boundary."""
        return torch.full((len(H), 1), OPEN, device=H.device)

    def score(self, state: Tensor, candidates: Tensor | None) -> Tensor:
        """(B, K, V), or (B, K, C) of candidates"""
        tables = self.hotwords
        gains = (
            self._all(state)
            if candidates is None
            else self._arcs(state, candidates, tables.gains, tables.base)
        )
        opens = tables.opens if candidates is None else tables.opens[candidates]
        return gains + (
            tables.pending[state].unsqueeze(2) * opens - tables.partial_credit[state].unsqueeze(2)
        )

    def step(self, y: Tensor, state: Tensor) -> Tensor:
        """Read labels y (B, K)."""
        return self._arcs(
            state, y.unsqueeze(2), self.hotwords.nexts, self.hotwords.base_next
        ).squeeze(2)

    def _arcs(self, state: Tensor, labels: Tensor, stored: Tensor, base: Tensor) -> Tensor:
        """Look labels (B, K, C) up: a stored arc's entry, else the empty state's."""
        states = state.unsqueeze(2)
        arcs, found = look_up(self.hotwords.keys, states * len(self.hotwords.opens) + labels)
        return torch.where(found, stored[arcs], base[self.hotwords.empty[states], labels])

    def _all(self, state: Tensor) -> Tensor:
        """Return the gains of all labels, (B, K, V): the empty state's, overwritten by stored arcs."""
        tables, V = self.hotwords, len(self.hotwords.opens)
        arcs = tables.first[state].unsqueeze(2) + torch.arange(tables.width, device=state.device)
        none = arcs >= tables.first[state + 1].unsqueeze(2)  # (B, K, width)
        arcs = arcs.masked_fill(none, len(tables.keys) - 1)
        labels = (tables.keys[arcs] % V).masked_fill(none, 0)  # the blank is no label
        return tables.base[tables.empty[state]].scatter(2, labels, tables.gains[arcs])


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
        partial_credit=_numbers(states.partial_credit),
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
    """Bound what a label can score."""
    V, keys = len(x.opens), x.keys[:-1]
    stored = x.gains[:-1] + x.pending[keys // V] * x.opens[keys % V] - x.partial_credit[keys // V]
    best = torch.zeros(2, 2, dtype=torch.float64)  # by empty state, and by whether the label opens
    for opens in (0, 1):
        best[:, opens].scatter_reduce_(0, x.empty, x.pending * opens - x.partial_credit, "amax")
    fallen = x.base + best[:, x.opens.long()]
    return max(float(part.max()) for part in (stored, fallen) if part.numel()) + ROUNDING


def _arcs(states: States, tokens: Sequence[str]) -> list[dict[int, tuple[float, int]]]:
    """For each state, map labels to gain and next state, unless the empty states' are the same."""
    full: dict[str, list[int]] = defaultdict(list)
    longer: dict[str, list[int]] = {}  # labels that equal a string, and labels that begin with it
    for label, token in enumerate(tokens):
        full[token].append(label)
        for n in range(1, len(token) + 1):
            longer.setdefault(token[:n], []).extend([label] * (n < len(token)))
    arcs: list[dict[int, tuple[float, int]]] = [{} for _ in states.last]
    for state in states.order[1:]:
        labels: set[int] = set()
        for string, complete in states.ways(state, longer):
            labels.update(full.get(string, ()))
            if complete:
                both = joins(string[-1])
                labels.update(
                    x for x in longer[string] if not (both and joins(tokens[x][len(string)]))
                )
        arcs[state] = arcs[states.shorter[state]] | {
            label: states.read(state, tokens[label]) for label in labels
        }
    return arcs
