"""Recordings within the page, as MP3 in base64, or beside it, as relative links."""

import base64
import io
import os
from urllib.parse import quote

from asr.audio import archive
from asr.data.manifest import Utterance

RATE = 16_000
LEVEL = 0.9  # of libsndfile's compression: some 24 kbit/s of speech


def embedded(utterance: Utterance) -> str:
    """Write an utterance's sound as a data: address.

    MP3 is the smallest kind that every browser plays; Safari learned Opus in Ogg late, and FLAC takes
    six times as much.
    raises   UserError as `asr.audio.load`
    """
    import soundfile

    from asr.audio.load import load

    u = utterance
    waveform = load(u.path, RATE, u.start, u.duration, u.channel)
    file = io.BytesIO()
    soundfile.write(
        file, waveform, RATE, format="MP3", subtype="MPEG_LAYER_III", compression_level=LEVEL
    )
    return "data:audio/mpeg;base64," + base64.b64encode(file.getvalue()).decode("ascii")


def linked(utterance: Utterance, folder: str | os.PathLike) -> str:
    """Write the address of an utterance's recording, relative to a folder; empty if a browser can't open it.

    >>> made = Utterance("a", "/data/a b.wav", 16000, 9, 1, 0.0, 1.0, "")
    >>> linked(made, "/data/exp")
    '../a%20b.wav'
    """
    if not utterance.path or archive.place(utterance.path):
        return ""
    try:
        relative = os.path.relpath(utterance.path, folder)
    except ValueError:  # another drive of Windows
        return ""
    return quote(relative.replace(os.sep, "/"), errors="surrogateescape")
