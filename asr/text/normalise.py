"""The one spelling of a text: Unicode NFC, single spaces, none at the ends; and conventions that rewrite more.

NFC and spaces are what tokenizers do to all texts. A convention is what the user asks for by name, so that texts of
several sources are written alike (`asr-prepare --normalise`), or so that a score looks over case and punctuation
(`asr-score --normalise`).
"""

import re
import unicodedata

from asr.errors import UserError, did_you_mean
from asr.text.units import HAN, KANA

APOSTROPHES = str.maketrans("‘’ʼ`´＇", "''''''")
SPOKEN = "#%&@"  # punctuation to Unicode, but read aloud
_EAST_ASIAN = f"[{HAN}{KANA}]"


def normalise(text: str) -> str:
    """Compose characters (NFC) and squeeze white space; case, punctuation and scripts stay as they are."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def join_han(text: str) -> str:
    """Remove the spaces that separate Han characters and kana from each other; others are kept.

    >>> join_han("我 用  IPHONE 六 打 电话")
    '我用 IPHONE 六打电话'
    """
    return re.sub(f"(?<={_EAST_ASIAN}) (?={_EAST_ASIAN})", "", " ".join(text.split()))


def plain(text: str) -> str:
    """Write a text as speech recognition does, in any language: no case, no punctuation.

    Full-width and other compatibility forms become the usual ones (NFKC), letters upper case, punctuation a space,
    except apostrophes between letters, all written ', and # % & @. Digits and symbols stay: how they are read, only
    the writer knows. Han characters and kana have no spaces between them.

    >>> plain("“Don’t stop – it's 5 o'clock,” he said...")
    "DON'T STOP IT'S 5 O'CLOCK HE SAID"
    >>> plain("我用ｉＰｈｏｎｅ，打·电话。")
    '我用IPHONE 打电话'
    """
    text = unicodedata.normalize("NFKC", text.translate(APOSTROPHES)).upper()
    text = unicodedata.normalize("NFKC", text).translate(APOSTROPHES)  # either may make what the other rewrites
    text = re.sub(r"(?<![^\W\d_])'|'(?![^\W\d_])", " ", text)
    silent = {c for c in set(text) if unicodedata.category(c)[0] == "P" and c not in SPOKEN + "'"}
    return join_han(normalise("".join(" " if c in silent else c for c in text)))


def english(text: str) -> str:
    """Write a text as `plain` does, and letters without their accents.

    >>> english("Café Müller’s")
    "CAFE MULLER'S"
    """
    apart = unicodedata.normalize("NFKD", plain(text))
    return plain("".join(c for c in apart if unicodedata.category(c) != "Mn"))


CONVENTIONS = {"plain": plain, "english": english}


def convention(name: str):
    """The function of a convention's name.

    raises   UserError if there is none of that name
    """
    if name not in CONVENTIONS:
        known = ", ".join(CONVENTIONS)
        raise UserError(f"--normalise {name}: no such convention{did_you_mean(name, CONVENTIONS)}; known are {known}")
    return CONVENTIONS[name]
