"""End-to-end speech recognition: recordings in, a trained Transformer and its transcripts out.

    import asr

    recognizer = asr.load("exp/mini/model")
    print(recognizer.transcribe("a.wav").text)

Every name is imported when it is first used, so `import asr` alone loads nothing.
"""

from typing import TYPE_CHECKING, Any

from asr.imports import lazily

__version__ = "0.2.0"

_HOMES = {  # public name: the module within the package that defines it
    "load": "api",
    "transcribe": "api",
    "transcribe_all": "api",
    "stream": "api",
    "align": "api",
    "train": "api",
    "translate": "api",
    "score": "scoring.report",
    "EndpointOptions": "transcription.endpoints",
    "Engine": "serving.engine",
    "Final": "transcript",
    "LanguageModel": "models.lm",
    "Partial": "transcript",
    "Recognizer": "models.recognizer",
    "SearchOptions": "transcription.options",
    "Segment": "transcript",
    "Streams": "transcription.streams",
    "Transcript": "transcript",
    "Translator": "models.translator",
    "UserError": "errors",
    "Word": "transcript",
}
__all__ = ["__version__", *_HOMES]

if TYPE_CHECKING:
    # ruff: noqa: F401 - all of these are in __all__
    from asr.api import align, load, stream, train, transcribe, transcribe_all, translate
    from asr.errors import UserError
    from asr.models.lm import LanguageModel
    from asr.models.recognizer import Recognizer
    from asr.models.translator import Translator
    from asr.scoring.report import score
    from asr.serving.engine import Engine
    from asr.transcript import Final, Partial, Segment, Transcript, Word
    from asr.transcription.endpoints import EndpointOptions
    from asr.transcription.options import SearchOptions
    from asr.transcription.streams import Streams


def __getattr__(name: str) -> Any:
    return lazily("asr", name, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
