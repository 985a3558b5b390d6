"""Recordings written as FLAC (RFC 9639), in memory."""

from io import BytesIO

import numpy as np
import soundfile

from asr.audio.faults import truncated
from asr.audio.sound import Sound
from asr.errors import UserError

LOSSY = {"MP3", "MPEG", "OGG"}  # formats


def fits_flac(sound: Sound) -> bool:
    """Whether FLAC can hold a recording of this rate and number of channels."""
    rate = sound.rate
    return sound.channels <= 8 and (rate <= 65535 or rate <= 655350 and rate % 10 == 0)


def as_flac(sound: Sound) -> bytes:
    """Write a recording as FLAC, rounded where FLAC can't be exact: codecs' samples to 16 bits, floats to 24.

    raises   UserError if a part of it can't be read, or FLAC can't hold it
    """
    if not fits_flac(sound):
        has = f"{sound.channels} channels at {sound.rate:,} Hz"
        raise UserError(f"{sound.path}: has {has}, which FLAC can't hold; convert it to wav")
    subtype, dtype = flac_kind(sound)
    content, count = BytesIO(), 0
    with soundfile.SoundFile(
        content, "w", sound.rate, sound.channels, subtype, format="FLAC"
    ) as file:
        for block in sound.blocks(0, sound.frames, dtype):
            count += len(block)
            file.write(rounded(block, subtype) if dtype == "float32" else block)
    if count < sound.frames:
        raise truncated(sound.path, count, sound.frames)
    return content.getvalue()


def flac_kind(sound: Sound) -> tuple[str, str]:
    """The subtype of the FLAC that a recording becomes, and the type of number to read it as."""
    if sound.subtype in ("FLOAT", "DOUBLE"):
        return "PCM_24", "float32"
    if sound.format in LOSSY:
        return "PCM_16", "float32"
    return ("PCM_24", "int32") if sound.subtype in ("PCM_24", "PCM_32") else ("PCM_16", "int16")


def rounded(samples: np.ndarray, subtype: str) -> np.ndarray:
    """Clip float samples to [-1, 1] and round them to integers, in the upper bits of int16 or int32."""
    top = 2.0**15 if subtype == "PCM_16" else 2.0**23
    whole = np.clip(np.rint(samples * top), -top, top - 1)
    return whole.astype(np.int16) if subtype == "PCM_16" else whole.astype(np.int32) << 8
