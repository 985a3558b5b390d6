"""Speech by espeak-ng (the wheel espeakng-loader): a text in a voice → samples, the same each time."""

import _ctypes
import ctypes
from contextlib import contextmanager

import numpy as np
import soxr

RATE = 16000  # Hz

unload = getattr(_ctypes, "dlclose", None) or _ctypes.FreeLibrary  # the latter on Windows


@contextmanager
def espeak():
    """Load espeak-ng → the library, ready to speak, and its sampling rate; unload it in the end.

    espeak keeps the phase of its flutter and more from one call to the next, even through espeak_Terminate.
    Only unloading makes it forget; loading takes half a millisecond. It must not be loaded twice at a time.

    raises  RuntimeError with the remedy
    """
    try:
        import espeakng_loader

        library = ctypes.CDLL(espeakng_loader.get_library_path())
        # 2: retrieve, at once; 1: with events of phonemes
        rate = library.espeak_Initialize(2, 0, espeakng_loader.get_data_path().encode(), 1)
    except (ImportError, OSError, RuntimeError) as error:
        raise RuntimeError(
            f"espeak-ng can't be loaded ({error}): pip install espeakng-loader"
        ) from error
    try:
        if rate <= 0:
            raise RuntimeError(
                "espeak-ng doesn't find its data: pip install --force-reinstall espeakng-loader"
            )
        library.espeak_ng_SetRandSeed(
            1
        )  # espeak_Initialize has set it by the clock: the breath of f2, Alicia, ...
        library.srand(1)  # C's own, for the breath of Reed
        yield library, rate
    finally:
        library.espeak_Terminate()
        unload(library._handle)


class _Name(ctypes.Union):
    _fields_ = [
        ("number", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("string", ctypes.c_char * 8),
    ]


class _Event(ctypes.Structure):
    """speak_lib.h's espeak_EVENT."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),  # ms
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", _Name),
    ]


WORD, PHONEME = 1, 7  # types of events


def pronounce(text, voice, pace, pitch, melody):
    """Let espeak-ng say a text: the same samples for the same arguments, whatever was said before.

    returns  (N,) float at 16 kHz
    """
    return speak(text, voice, pace, pitch, melody)[0]


def speak(text, voice, pace, pitch, melody):
    """Say a text as `pronounce` does, and tell when.

    returns  (N,) float at 16 kHz; events in order, (WORD or PHONEME, seconds, phoneme)
    """
    samples, events = [], []

    @ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
    )
    def collect(wave, count, told):
        if wave and count:
            samples.append(np.ctypeslib.as_array(wave, (count,)).copy())
        n = 0
        while told[n].type:  # 0 ends the list
            if told[n].type in (WORD, PHONEME):
                name = told[n].id.string.decode() if told[n].type == PHONEME else ""
                events.append((told[n].type, told[n].audio_position / 1000, name))
            n += 1
        return 0

    with espeak() as (library, rate):
        library.espeak_SetSynthCallback(collect)
        if library.espeak_SetVoiceByName(voice.encode()) != 0:
            raise RuntimeError(
                f"espeak-ng has no voice {voice}: pip install --upgrade espeakng-loader"
            )
        # 2: volume, without clipping
        for parameter, value in {1: pace, 2: 40, 3: pitch, 4: melody}.items():
            library.espeak_SetParameter(parameter, round(value), 0)
        data = text.encode()
        library.espeak_Synth(data, ctypes.c_size_t(len(data) + 1), 0, 1, 0, 1, None, None)
    return soxr.resample(np.concatenate(samples) / 32768, rate, RATE), events
