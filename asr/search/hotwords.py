"""Hotwords: a scorer that makes a search prefer the words of given phrases.

A hypothesis is the string of its tokens' characters, with ▁ for the space. A phrase occurs in it
where its characters stand between two boundaries, whichever tokens spell them (including the
tokenizer's own spelling). Boundaries are the edges of the hypothesis and every position except
those between two characters of one word: letters, marks, digits and apostrophes of a script that
writes spaces. "art" doesn't occur in "party"; 北京 occurs anywhere.

The score of a complete hypothesis is the credit of all occurrences of all phrases, overlapping and
nested ones included. The credit of an occurrence is the phrase's weight times the number of its
tokens as the tokenizer spells it. To let a search see it coming, partial credit is given while a
phrase is being read: with φ the share of the credit that the longest unfinished phrase has reached,
evenly by character,

    score(label) = φ(after) - φ(before) + credit of the occurrences that the label completes

and φ(end) = 0. When a match breaks, the partial credit is taken back, except that of a shorter
match that continues. A phrase that ends in a word is unfinished until a boundary follows.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from asr.errors import UserError
from asr.options import option
from asr.search.scorer import HEAVIEST, Scorer, ScorerContext, ScorerKind, ScorerOptions

SPACE = "▁"
MOST = 1e6  # weight of a token


def load(options: HotwordOptions, context: ScorerContext) -> Scorer:
    """Load phrases, and make their automaton.

    raises   UserError if the file can't be read, or a line can't be written in the tokenizer's
             labels
    """
    from asr.search.automaton import HotwordScorer, build

    symbols = context.tokenizer.symbols()
    given, encode = options.hotwords, context.tokenizer.encode
    phrases = (
        parse_phrases(given, "hotwords", encode, symbols, 1.0)
        if isinstance(given, tuple)
        else read_phrases(str(given), encode, symbols, 1.0)
    )
    return HotwordScorer(build(phrases, symbols).to(context.device))


@dataclass(frozen=True, kw_only=True)
class HotwordOptions(ScorerOptions):
    """Options of the hotwords: a file, or in Python also a tuple of its lines."""

    scorer = ScorerKind("hotwords", switch="hotwords", weight="hotword_weight", load=load)
    hotwords: str | tuple[str, ...] | None = option(
        None,
        "words or phrases to favor, one per line, optionally followed by a tab and a factor",
        path="FILE",
    )
    hotword_weight: float = option(2.0, "nats per token of a hotword", least=0, most=HEAVIEST)


@dataclass(frozen=True)
class Phrase:
    """Characters, ▁ for spaces; what an occurrence earns."""

    text: str
    credit: float


def read_phrases(
    path: str | os.PathLike,
    encode: Callable[[str, str], list[int]],
    symbols: Sequence[str],
    weight: float,
) -> list[Phrase]:
    """Read phrases, one per line; a line may end in a tab and a weight.

    encode:   the tokenizer's, (text, where) → ids
    symbols:  the tokenizer's, by id
    weight:   of each token of a phrase without a weight of its own
    raises    UserError, with file and line, if the file is absent or has no phrase, or a line is
              malformed
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = (
            "is not UTF-8 text"
            if isinstance(error, ValueError)
            else f"can't be read ({error.strerror})"
        )
        raise UserError(
            f"{path}: {reason}; expected hotwords: one phrase per line, optionally a tab and a weight"
        ) from None
    return parse_phrases(lines, path, encode, symbols, weight)


def parse_phrases(
    lines: Sequence[str],
    source: str | os.PathLike,
    encode: Callable[[str, str], list[int]],
    symbols: Sequence[str],
    weight: float,
) -> list[Phrase]:
    """Read the lines of a source, which errors name; see `read_phrases`."""
    phrases: list[Phrase] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        where, (words, *weights) = f"{source}:{number}", line.split("\t", 1)
        if not line.strip():
            continue
        ids = _encode(words, where, encode)
        text = "".join(symbols[n] for n in ids).strip(SPACE)
        if not text:
            raise UserError(f"{where}: got {line!r}, expected a phrase before the tab")
        if seen.setdefault(text, number) != number:
            raise UserError(
                f"{where}: {words.strip()!r} is in line {seen[text]} already; remove one of them"
            )
        phrases.append(Phrase(text, len(ids) * (_weight(weights[0], where) if weights else weight)))
    if not phrases:
        raise UserError(
            f"{source}: no phrase in it; expected one phrase per line, optionally a tab and a weight"
        )
    return phrases


def _encode(words: str, where: str, encode: Callable[[str, str], list[int]]) -> list[int]:
    """Encode a phrase; the error says whether the tokenizer knows it in the other case."""
    try:
        return encode(words, where)
    except UserError as error:
        known = [(name, other) for name, other in _cases(words) if _encodes(other, encode)]
        for name, other in known[:1]:
            fault = (
                f"got {words.strip()!r}, but the model knows {name} only; write {other.strip()!r}"
            )
            raise UserError(f"{where}: {fault}") from None
        raise error


def _cases(words: str) -> list[tuple[str, str]]:
    return [("capitals", words.upper()), ("small letters", words.lower())]


def _encodes(words: str, encode: Callable[[str, str], list[int]]) -> bool:
    with contextlib.suppress(UserError):
        return bool(encode(words, ""))
    return False


def _weight(text: str, where: str) -> float:
    """Read a weight."""
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 < weight <= MOST:
        raise UserError(
            f"{where}: got weight {text.strip()[:40]!r}, expected a factor above 0, such as 1.5, of at most {MOST:g}"
        )
    return weight
