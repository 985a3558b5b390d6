"""Which family a source is of, and what transformers makes its encoder of."""

from typing import Annotated, Any

from pydantic import Field

from asr import imports
from asr.errors import UserError
from asr.nn.encoders import pretrained_source as sources
from asr.nn.encoders.families.family import FamilySettings
from asr.nn.encoders.families.parakeet import ParakeetSettings
from asr.nn.encoders.families.w2v_bert import W2vBertSettings
from asr.nn.encoders.families.waveform import SampleReaderSettings
from asr.nn.encoders.families.whisper import WhisperSettings
from asr.nn.encoders.pretrained_source import PretrainedSource

AnyFamily = Annotated[
    SampleReaderSettings | W2vBertSettings | WhisperSettings | ParakeetSettings,
    Field(discriminator="model_type"),
]
FAMILIES: dict[str, type[FamilySettings]] = {  # by model_type
    **dict.fromkeys(("wav2vec2", "hubert", "wavlm", "data2vec-audio"), SampleReaderSettings),
    "wav2vec2-bert": W2vBertSettings,
    "whisper": WhisperSettings,
    **dict.fromkeys(
        ("parakeet_encoder", "parakeet_ctc", "parakeet_rnnt", "parakeet_tdt"), ParakeetSettings
    ),
}


def read(source: PretrainedSource) -> Any:
    """Read what transformers makes the encoder of a source of; nothing is expected of it yet.

    raises   UserError if it is none that is supported, with the reason
    """
    tree, where = source.description(), source.folder / sources.DESCRIPTION
    kind = tree.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise UserError(f"{where}: model_type {kind!r} isn't supported; expected {known}")
    family = FAMILIES[kind]
    library = imports.transformers("transformers")
    try:
        facts = {"transformers": library.__version__, "expected": []}
        return family.model_validate(family.described(tree) | facts)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    except Exception as error:  # noqa: BLE001 - pydantic's, and transformers' own
        raise UserError(f"{where}: doesn't describe an encoder ({brief(error)})") from None


def brief(error: Exception) -> str:
    """Put an error into one line."""
    return "; ".join(str(error).split("\n")[:3])
