"""The one spelling of a text: Unicode NFC, single spaces, none at the ends."""

import unicodedata


def normalise(text: str) -> str:
    """Compose characters (NFC) and squeeze white space; case, punctuation and scripts stay as they are."""
    return " ".join(unicodedata.normalize("NFC", text).split())
