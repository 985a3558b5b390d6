"""What espeak-ng makes of a text before it becomes sound."""

import ctypes
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "recipes"))

from synthesis.espeak import espeak  # noqa: E402


def phonemes(texts, voice):
    """Return the phonemes of each text in espeak-ng's notation; (en) and (cmn) say where the language changes."""
    with espeak() as (library, _):
        assert library.espeak_SetVoiceByName(voice.encode()) == 0
        library.espeak_TextToPhonemes.restype = ctypes.c_char_p
        return [" ".join(clauses(library, text)) for text in texts]


def clauses(library, text):
    """Yield the phonemes of a text, clause by clause."""
    pointer = ctypes.pointer(ctypes.cast(ctypes.c_char_p(text.encode()), ctypes.c_void_p))
    while pointer.contents.value:
        yield library.espeak_TextToPhonemes(pointer, 1, 0).decode()
