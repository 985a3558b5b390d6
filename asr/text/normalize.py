"""Normalize texts: Unicode NFC and single spaces for all of them, and conventions that rewrite more.

Tokenizers apply NFC and spaces to all texts. The user chooses a convention by name, to unify the
texts of several sources (`asr-prepare --normalize`), or to ignore case and punctuation in a score
(`asr-score --normalize`).
"""

import re
import unicodedata

from asr.errors import UserError, did_you_mean
from asr.text.units import HAN, KANA

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


CONVENTIONS = {"plain": plain, "english": english}


def convention(name: str):
    """Return the function of a convention by its name.

    raises   UserError for an unknown name
    """
    if name not in CONVENTIONS:
        known = ", ".join(CONVENTIONS)
        near = did_you_mean(name, CONVENTIONS)
        raise UserError(
            f"got {name!r}, no such convention{near}; known are {known}", argument="normalize"
        )
    return CONVENTIONS[name]
