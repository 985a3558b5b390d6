"""Phrases of hotwords: their file, where words begin and end, and the automaton that finds them in a string."""

import functools
import math
import os
import unicodedata
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from asr.errors import UserError

SPACE = "▁"
OPEN, INSIDE = 0, 1  # the empty states: after a boundary, within a word
UNSPACED = ("CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")


@dataclass(frozen=True)
class Phrase:
    """Characters, ▁ for spaces; what an occurrence earns."""

    text: str
    credit: float


def read(
    path: str | os.PathLike, encode: Callable[[str, str], list[int]], symbols: Sequence[str], weight: float
) -> list[Phrase]:
    """Read phrases, a line each, perhaps with a tab and a weight behind.

    encode:   the tokenizer's, (text, where) → ids
    symbols:  the tokenizer's, by id
    weight:   of a token of phrases without one
    raises    UserError, with file and line, if the file is absent or has no phrase, or a line is amiss
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = "is not UTF-8 text" if isinstance(error, ValueError) else f"can't be read ({error.strerror})"
        raise UserError(f"{path}: {reason}; expected hotwords, a phrase a line, perhaps a tab and a weight") from None
    phrases, seen = [], {}
    for number, line in enumerate(lines, 1):
        where, (words, *weights) = f"{path}:{number}", line.split("\t", 1)
        if not line.strip():
            continue
        ids = encode(words, where)
        text = "".join(symbols[n] for n in ids).strip(SPACE)
        if not text:
            raise UserError(f"{where}: got {line!r}, expected a phrase before the tab")
        if seen.setdefault(text, number) != number:
            raise UserError(f"{where}: {words.strip()!r} stands in line {seen[text]} already; take one of them out")
        phrases.append(Phrase(text, len(ids) * (_weight(weights[0], where) if weights else weight)))
    if not phrases:
        raise UserError(f"{path}: no phrase in it; expected a phrase a line, perhaps a tab and a weight behind")
    return phrases


def _weight(text: str, where: str) -> float:
    """Read a weight."""
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 < weight < math.inf:
        raise UserError(f"{where}: got weight {text.strip()!r}, expected a factor above 0, as 1.5")
    return weight


@functools.cache
def joins(character: str) -> bool:
    """Whether a character makes one word with others of its kind beside it."""
    word = character in "'’" or unicodedata.category(character)[0] in "LMN"
    return word and not unicodedata.name(character, "").startswith(UNSPACED)


class States:
    """The automaton of Aho & Corasick (1975) over characters: a state is the longest string that begins a phrase and
    ends what has been read. Each list has an entry a state.

    children  its longer states, by their last character
    last      its last character
    own       credit of the phrase that it is, else 0
    lent      the share of the credit of an unfinished phrase that it has reached, or else the shorter state's
    shorter   the longest other state that it ends in
    complete  credit of all phrases that it ends in
    """

    def __init__(self, phrases: Sequence[Phrase]):
        self.children, self.last, self.own, self.lent = [{}, {}], [SPACE, "'"], [0.0, 0.0], [0.0, 0.0]
        for phrase in phrases:
            self._add(phrase)
        self.children[INSIDE] = {c: state for c, state in self.children[OPEN].items() if not joins(c)}
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
                self.lent.append(0.0)
            state = self.children[state][character]
            if n < len(phrase.text) or joins(character):
                self.lent[state] = max(self.lent[state], phrase.credit * n / len(phrase.text))
        self.own[state] = phrase.credit

    def _link(self, state: int, character: str, child: int) -> None:
        """Find the shorter state of a child."""
        self.shorter[child] = empty(character) if state == OPEN else self.next(self.shorter[state], character)
        self.complete[child] += self.complete[self.shorter[child]]
        self.lent[child] = self.lent[child] or self.lent[self.shorter[child]]

    def next(self, state: int, character: str) -> int:
        """The state after one more character."""
        while character not in self.children[state] and state > INSIDE:
            state = self.shorter[state]
        return self.children[state].get(character, empty(character))

    def pending(self, state: int) -> float:
        """Credit of phrases that are complete if a boundary follows."""
        return self.complete[state] if joins(self.last[state]) else 0.0

    def read(self, state: int, token: str) -> tuple[float, int]:
        """What a token earns after a state, but for the phrases pending there: credit and φ; and the state behind."""
        credit = 0.0
        for n, character in enumerate(token):
            credit += self.pending(state) if n and not joins(character) else 0.0
            state = self.next(state, character)
            credit += 0.0 if joins(character) else self.complete[state]
        return credit + self.lent[state], state

    def ways(self, state: int, known: Container[str]) -> Iterator[tuple[str, bool]]:
        """Strings of a collection that lead a phrase of the state on, and whether they complete it."""
        ways = [(state, "")]
        for at, before in ways:
            for character, child in self.children[at].items():
                if before + character in known:
                    yield before + character, self.own[child] > 0
                    ways.append((child, before + character))


def empty(character: str) -> int:
    """The empty state after a character."""
    return INSIDE if joins(character) else OPEN
