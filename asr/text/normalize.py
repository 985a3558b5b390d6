"""Normalize texts: Unicode NFC and single spaces for all of them, and conventions that rewrite more.

Tokenizers apply NFC and spaces to all texts. The user chooses a convention by name, to unify the
texts of several sources (`asr-prepare --normalize`), or to ignore case and punctuation in a score
(`asr-score --normalize`). A file of rules replaces words, such as spellings and numbers.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from asr.errors import UserError, did_you_mean
from asr.text.units import HAN, KANA, unit_spans, units

APOSTROPHES = str.maketrans("‘’ʼ`´＇", "''''''")
SPOKEN = "#%&@"  # punctuation in Unicode, but spoken
_EAST_ASIAN = f"[{HAN}{KANA}]"


def normalize(text: str) -> str:
    """Compose characters (NFC) and collapse white space; keep case, punctuation and scripts."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def join_han(text: str) -> str:
    """Remove spaces between Han characters and kana; keep all others.

    >>> join_han("我 用  IPHONE 六 打 电话")
    '我用 IPHONE 六打电话'
    """
    return re.sub(f"(?<={_EAST_ASIAN}) (?={_EAST_ASIAN})", "", " ".join(text.split()))


def plain(text: str) -> str:
    """Remove case and punctuation, as is usual in speech recognition, in any language.

    Full-width and other compatibility forms become ordinary ones (NFKC), and letters upper case.
    Punctuation becomes a space, except apostrophes between letters, which become ', and # % & @.
    Digits and symbols stay, because only the writer knows how they are read. Spaces between Han
    characters and kana are removed.

    >>> plain("“Don’t stop – it's 5 o'clock,” he said...")
    "DON'T STOP IT'S 5 O'CLOCK HE SAID"
    >>> plain("我用ｉＰｈｏｎｅ，打·电话。")
    '我用IPHONE 打电话'
    """
    text = unicodedata.normalize("NFKC", text.translate(APOSTROPHES)).upper()
    # each step can produce what the other rewrites
    text = unicodedata.normalize("NFKC", text).translate(APOSTROPHES)
    text = re.sub(r"(?<![^\W\d_])'|'(?![^\W\d_])", " ", text)
    silent = {c for c in set(text) if unicodedata.category(c)[0] == "P" and c not in SPOKEN + "'"}
    return join_han(normalize("".join(" " if c in silent else c for c in text)))


def english(text: str) -> str:
    """Apply `plain`, and remove the accents of letters.

    >>> english("Café Müller’s")
    "CAFE MULLER'S"
    """
    apart = unicodedata.normalize("NFKD", plain(text))
    return plain("".join(c for c in apart if unicodedata.category(c) != "Mn"))


CONVENTIONS = {"none": normalize, "plain": plain, "english": english}
MOST_WORDS = 16  # of a rule's left side


@dataclass(frozen=True)
class Convention:
    """A way to rewrite texts; call it with a text.

    name   what a result says of it, such as "english" or "rules.yaml (english, 12 rules)"
    """

    name: str
    rewrite: Callable[[str], str]

    def __call__(self, text: str) -> str:
        return self.rewrite(text)


def convention(name: str) -> Convention:
    """Return a convention by its name, or from a YAML file of rules.

    raises   UserError for an unknown name; of a file as `read_rules`
    """
    if name.endswith((".yaml", ".yml")):
        return read_rules(name)
    if name not in CONVENTIONS:
        known = ", ".join(CONVENTIONS)
        near = did_you_mean(name, CONVENTIONS)
        raise UserError(
            f"got {name!r}, no such convention{near}; known are {known}, and files of rules (.yaml)",
            argument="normalize",
        )
    return Convention(name, CONVENTIONS[name])


def read_rules(path: str) -> Convention:
    """Read rules: `base:` none, plain or english, and `rules:` words → words, which replace them.

    Both sides of a rule are rewritten by the base, as texts are before the rules apply. So case needs
    no rules of its own where the base ignores it. There are no regular expressions: Python's can
    take forever, and the file may be a stranger's.
    raises   UserError with file, key path, what was got and expected
    """
    from asr.config import Settings, load

    class Rules(Settings):
        base: Literal["none", "plain", "english"] = "none"
        rules: dict[str, str]

    found, table = load(Rules, path), dict[tuple[str, ...], str]()
    base = CONVENTIONS[found.base]
    for given, replacement in found.rules.items():
        where, words = f"{path}: rules.{given[:60]}", tuple(units(base(given)))
        if not words or len(words) > MOST_WORDS:
            raise UserError(f"{where}: got {len(words)} words, expected 1 to {MOST_WORDS}")
        if words in table:
            raise UserError(f"{where}: a second rule for {' '.join(words)!r}; keep one of the two")
        table[words] = base(replacement)
    name = f"{path} ({found.base}, {len(table)} rule{'s' * (len(table) != 1)})"
    return Convention(name, lambda text: replaced(base(text), table))


def replaced(text: str, table: Mapping[tuple[str, ...], str]) -> str:
    """Replace words of a text, once, from left to right, the longest match first.

    table    words, as `units` splits them → what replaces them, perhaps nothing. What was replaced
             isn't matched again, so no rules can go in circles

    >>> replaced("IT IS UH OK", {("OK",): "OKAY", ("UH",): "", ("IT", "IS"): "IT'S"})
    "IT'S OKAY"
    """
    spans, longest = unit_spans(text), max(map(len, table), default=0)
    words = [text[begin:end] for begin, end in spans]
    out, done, n = [], 0, 0  # characters that are written, words that are done
    while n < len(words):
        lengths = range(min(longest, len(words) - n), 0, -1)
        length = next((k for k in lengths if tuple(words[n : n + k]) in table), 0)
        if length:
            out += [text[done : spans[n][0]], table[tuple(words[n : n + length])]]
            done = spans[n + length - 1][1]
        n += length or 1
    return normalize("".join([*out, text[done:]]))
