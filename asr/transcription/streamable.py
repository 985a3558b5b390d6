"""Which recognizers can read streams, and in which chunks."""

from asr.errors import UserError
from asr.models.recognizer import Recognizer
from asr.nn.encoder import WHOLE


def can_stream(recognizer: Recognizer) -> bool:
    """Whether a recognizer can read streams."""
    try:
        check(recognizer)
    except UserError:
        return False
    return True


def check(recognizer: Recognizer) -> None:
    """Refuse a recognizer that can't read streams."""
    if not recognizer.has_times:
        raise UserError("the model can't transcribe streams: its CTC was not trained")
    if recognizer.model.encoder.chunk is None:
        raise UserError(
            "the model can't transcribe streams: it has no chunks; train one with encoder.chunk"
        )
    cmvn = recognizer.frontend.cmvn
    if (kind := cmvn.kind if cmvn else "of the waveform") != "global":
        raise UserError(
            f"the model can't transcribe streams: its features.cmvn is {kind}, of whole utterances; "
            "train one with global"
        )


def chunk_of(recognizer: Recognizer, chosen: int | None) -> int:
    """Return the encoder frames of a chunk."""
    if chosen == WHOLE:
        raise UserError("got whole, expected seconds: a stream is read in chunks", argument="chunk")
    chunks = recognizer.model.encoder.chunk
    assert chunks is not None  # `check` has seen to it
    return chosen or max(size for size in chunks.sizes if size != WHOLE)


def check_finals(recognizer: Recognizer, finals: str) -> None:
    """Refuse to read segments as wholes if the encoder wasn't trained to."""
    chunks = recognizer.model.encoder.chunk
    if finals == "whole" and chunks and WHOLE not in chunks.sizes:
        raise UserError(
            "got whole, but the model was trained with chunks alone (model.encoder.chunk); "
            "expected chunks",
            argument="finals",
        )
