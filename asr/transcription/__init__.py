"""Recordings in, transcripts out. Names are imported when they are first used."""

from typing import Any

from asr.imports import lazily

_HOMES = {
    "Clock": "pipeline",
    "Recording": "recordings",
    "SearchOptions": "options",
    "Searcher": "searcher",
    "find": "recordings",
    "transcribe": "pipeline",
    "tune": "tuning",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    return lazily(__name__, name, _HOMES)
