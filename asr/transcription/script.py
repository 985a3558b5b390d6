"""A text to be aligned: its lines and words as written, and the labels that spell them.

Labels are those of the text as the model spells it. A word that can't be spelled has none: it
stands in a slot that takes in any speech. Signs alone, such as a dash, belong to the word before.
"""

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from asr.errors import UserError, shorten
from asr.logging import logger
from asr.search.loose_alignment import Skip
from asr.text.normalize import CONVENTIONS, SPOKEN, convention, normalize
from asr.text.tokenizer import Tokenizer, describe_character
from asr.text.units import units
from asr.transcription.times import words_of

Spelling = Callable[[str], str]
# how a model may spell what is written, the least changed first
SPELLINGS: dict[str, Spelling] = {
    "as written": normalize,
    "lower case": lambda text: normalize(text).lower(),
    **CONVENTIONS,
    **{f"{name}, lower case": lambda text, f=f: f(text).lower() for name, f in CONVENTIONS.items()},  # type: ignore[misc]
}
BLANK, WORD, LINE = range(3)  # what a slot may take in: see `Penalties`


@dataclass(frozen=True)
class Penalties:
    """What it costs that text and speech differ, in natural logarithms.

    word_star  each frame of speech between words that the text doesn't have
    line_star  as much between lines, and where a word stands that can't be spelled
    word_skip  a word that isn't spoken
    line_skip  a line that isn't spoken
    """

    word_star: float = 3.0
    line_star: float = 1.5
    word_skip: float = 12.0
    line_skip: float = 25.0


class ScriptWord(NamedTuple):
    """A word as it is written, and its labels first ≤ u < end; none if it can't be spelled."""

    text: str
    first: int
    end: int

    @property
    def is_spelled(self) -> bool:
        """Whether the model can spell it."""
        return self.first < self.end


class ScriptLine(NamedTuple):
    """A line of the text; where: its place, for messages."""

    text: str
    where: str
    words: list[ScriptWord]


@dataclass
class Script:
    """Lines, their labels, and what may happen between the labels.

    slots    kind of slot before each label, and of the last
    skips    stretches of labels that may be unspoken
    unknown  places and words that can't be spelled
    """

    lines: list[ScriptLine] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=lambda: [LINE])
    skips: list[Skip] = field(default_factory=list)
    unknown: list[tuple[str, str]] = field(default_factory=list)


def spelling_for(tokenizer: Tokenizer, lines: Iterable[str], name: str | None = None) -> Spelling:
    """Choose how to spell a text for a model: by a convention of `asr.text.normalize`, or by what its tokens can write.

    raises   UserError for an unknown convention
    """
    if name:
        return convention(name)
    text = "\n".join(lines)
    unknown = {name: len(tokenizer.unknown(spell(text))) for name, spell in SPELLINGS.items()}
    best = min(unknown, key=lambda name: unknown[name])
    logger.info(f"text is spelled for the model: {best}")
    return SPELLINGS[best]


def write_script(
    lines: Sequence[tuple[str, str]], tokenizer: Tokenizer, spell: Spelling, penalties: Penalties
) -> Script:
    """Spell lines, pairs of place and text, and warn of what can't be spelled.

    raises   UserError if no word can be spelled
    """
    script = Script()
    for where, text in lines:
        _add_line(script, where, normalize(text), tokenizer, spell, penalties)
    if not script.labels:
        where = f"{lines[0][0]}: " if lines else ""
        raise UserError(f"{where}the text has no word that the model can spell; give another text")
    if script.unknown:
        _warn_unknown(script, tokenizer, spell)
    return script


def _add_line(
    script: Script,
    where: str,
    text: str,
    tokenizer: Tokenizer,
    spell: Spelling,
    penalties: Penalties,
) -> None:
    begun, words = len(script.labels), list[ScriptWord]()
    for known, spans in _runs(_spans(text, tokenizer, spell), text, tokenizer, spell):
        parts = [text[begin:end] for begin, end in spans]
        if known:
            words += _add_words(script, text[spans[0][0] : spans[-1][1]], parts, tokenizer, spell)
        else:
            here = len(script.labels)
            script.slots[here] = LINE
            words += [ScriptWord(part, here, here) for part in parts]
            script.unknown += [(where, part) for part in parts]
    end = len(script.labels)
    for slot in {begun, end}:
        script.slots[slot] = max(script.slots[slot], LINE)
    if begun < end:
        script.skips += [Skip(*span, penalties.word_skip) for span in _apart(words, begun, end)]
        script.skips.append(Skip(begun, end, penalties.line_skip))
    script.lines.append(ScriptLine(text, where, words))


def _spans(text: str, tokenizer: Tokenizer, spell: Spelling) -> list[tuple[int, int]]:
    """Find where the words of a line begin and end; signs alone are joined to the word before, or to the first."""
    spans: list[tuple[int, int]] = []
    end, waiting = 0, -1
    for unit in units(text):
        begin = text.index(unit, end)
        end = begin + len(unit)
        if _is_silent(spell(unit), tokenizer):
            if spans:
                spans[-1] = spans[-1][0], end
            elif waiting < 0:
                waiting = begin
            continue
        spans.append((begin if waiting < 0 else waiting, end))
        waiting = -1
    return spans


def _is_silent(spelled: str, tokenizer: Tokenizer) -> bool:
    """Whether nothing is left to speak, or signs alone, such as a dash or a note, that the model doesn't write."""
    kinds = [unicodedata.category(c) for c in spelled if c not in SPOKEN]
    signs = len(kinds) == len(spelled) and all(kind[0] == "P" or kind == "So" for kind in kinds)
    return not units(spelled) or (signs and bool(tokenizer.unknown(spelled)))


def _runs(
    spans: Sequence[tuple[int, int]], text: str, tokenizer: Tokenizer, spell: Spelling
) -> list[tuple[bool, list[tuple[int, int]]]]:
    """Group words into stretches that can be spelled, and that can't."""
    runs: list[tuple[bool, list[tuple[int, int]]]] = []
    for begin, end in spans:
        known = not tokenizer.unknown(spell(text[begin:end]))
        if not runs or runs[-1][0] != known:
            runs.append((known, []))
        runs[-1][1].append((begin, end))
    return runs


def _add_words(
    script: Script, text: str, parts: Sequence[str], tokenizer: Tokenizer, spell: Spelling
) -> list[ScriptWord]:
    """Add the labels of a stretch of text, whose words are `parts`."""
    first, tokens = len(script.labels), tokenizer.encode(spell(text))
    spelled, counts = words_of(tokens, tokenizer), [len(units(spell(part))) for part in parts]
    if len(spelled) != sum(counts):  # its words are others than those of its parts
        if len(parts) == 1:
            spans = [(0, len(tokens))]
        else:
            return [
                word
                for part in parts
                for word in _add_words(script, part, [part], tokenizer, spell)
            ]
    else:
        spans = [
            (spelled[end - count].first, spelled[end - 1].end)
            for end, count in zip(accumulate(counts), counts, strict=True)
        ]
    script.labels += tokens
    script.slots += [BLANK] * len(tokens)
    for begin, end in spans:  # also beside a token for the space
        for slot in (first + begin, first + end):
            script.slots[slot] = max(script.slots[slot], WORD)
    return [
        ScriptWord(part, first + begin, first + end)
        for part, (begin, end) in zip(parts, spans, strict=True)
    ]


def _apart(words: Sequence[ScriptWord], begun: int, end: int) -> list[tuple[int, int]]:
    """Find the labels of each word that can be left out, with a space's; words that share a token go together."""
    spelled = [word for word in words if word.first < word.end]
    firsts: list[int] = []
    farthest = begun
    for word in spelled:
        if word.first >= farthest:
            firsts.append(word.first)
        farthest = max(farthest, word.end)
    if not firsts:
        return []
    spans = list(zip(firsts, [*firsts[1:], end], strict=True))
    if len(firsts) > 1:  # the last takes the space before it
        before = max(word.end for word in spelled if word.first < firsts[-1])
        spans[-1] = min(before, firsts[-1]), end
    return spans


def _warn_unknown(script: Script, tokenizer: Tokenizer, spell: Spelling) -> None:
    counts = Counter(c for _, word in script.unknown for c in tokenizer.unknown(spell(word)))
    characters = shorten([f"{describe_character(c)} × {n}" for c, n in counts.most_common()])
    places = shorten([f"{where} {word}" for where, word in script.unknown])
    logger.warning(
        f"words that the model can't spell: {len(script.unknown)} ({characters}), which take any speech: {places}"
    )
