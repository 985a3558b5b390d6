"""Units of error rates: words, and single characters of scripts that put no spaces between words."""

import re
from collections.abc import Iterable

HAN = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
KANA = "\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f"
# Bopomofo; Thai, Lao, Tibetan; Burmese; Khmer
SPACELESS = f"{HAN}{KANA}\u3105-\u312f\u0e01-\u0fff\u1000-\u109f\u1780-\u17ff"
SIGNS = "\u3001-\u3004\u3008-\u3020\u3030\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"  # 、。「」，！…

_CHARACTER = re.compile(f"[{SPACELESS}]")
_UNIT = re.compile(rf"[{SPACELESS}{SIGNS}]|[^{SPACELESS}{SIGNS}\s]+")


def units(text: str) -> list[str]:
    """Split a text into the units of the mixed error rate: characters of scripts without spaces, words of all others.

    A word ends at a space or before such a character. A text without such characters is split into
    its words. The units are those of WeNet's `compute-wer.py --char=1`, and of the "mixed error
    rate" of code-switching (ASRU 2019). These read texts without case and punctuation; here nothing
    is rewritten.

    >>> units("我用iPhone 16 打电话")
    ['我', '用', 'iPhone', '16', '打', '电', '话']
    >>> units("don't stop")
    ["don't", 'stop']
    """
    return _UNIT.findall(text)


def unit_spans(text: str) -> list[tuple[int, int]]:
    """Find where each unit begins and ends in the text."""
    return [found.span() for found in _UNIT.finditer(text)]


def has_spaceless(texts: Iterable[str]) -> bool:
    """Whether any text has a character of a script that puts no spaces between words."""
    return any(_CHARACTER.search(text) for text in texts)


def mostly_spaceless(texts: Iterable[str]) -> bool:
    """Whether more than half of the texts' units are characters of such scripts."""
    counts = [(len(_CHARACTER.findall(text)), len(units(text))) for text in texts]
    return 2 * sum(characters for characters, _ in counts) > sum(total for _, total in counts)
