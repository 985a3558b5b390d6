"""A transcript in the formats of OpenAI's answers."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from asr.formats import FormatOptions, srt, vtt
from asr.text.normalize import join_han
from asr.transcript import Alternative, Segment, Transcript

LOWEST = -100.0  # log probability in place of -∞, which JSON can't write
TYPES = {"text": "text/plain", "srt": "application/x-subrip", "vtt": "text/vtt"}
Symbols = Sequence[str]


def plain(transcript: Transcript, kind: str) -> str:
    """Write a transcript as text, srt or vtt."""
    if kind == "text":
        return transcript.text + "\n"
    return {"srt": srt, "vtt": vtt}[kind](transcript, FormatOptions())


def brief(transcript: Transcript, model: str, symbols: Symbols | None = None) -> dict[str, Any]:
    """Return the object of `json`; symbols: of the tokens, to add their log probabilities."""
    found = {"text": transcript.text, "model": model, "usage": usage(transcript)}
    return found | ({"logprobs": logprobs(transcript, symbols)} if symbols else {})


def verbose(
    transcript: Transcript,
    model: str,
    language: str | None,
    words: bool,
    segments: bool,
    nbest: int,
) -> dict[str, Any]:
    """Return the object of `verbose_json`; what OpenAI's hasn't is the confidences, `nbest` and `model`."""
    found: dict[str, Any] = {
        "task": "transcribe",
        "language": language or "unknown",
        "duration": round(transcript.duration, 3),
        "text": transcript.text,
        "model": model,
        "usage": usage(transcript),
    }
    if segments:
        found["segments"] = [
            _segment(n, part, nbest) for n, part in enumerate(_segments(transcript))
        ]
    if words:
        spoken = (word for part in transcript.segments for word in part.words)
        all_words = [replace(word, tokens=()).as_json() for word in spoken]
        found["words"] = [{"word": word.pop("text"), **word} for word in all_words]
    return found


def usage(transcript: Transcript) -> dict[str, Any]:
    """Return what was used, in OpenAI's words."""
    return {"type": "duration", "seconds": math.ceil(transcript.duration)}


def logprobs(transcript: Transcript, symbols: Symbols) -> list[dict[str, Any]]:
    """Return each token of the best text with its log probability."""
    best = [part.nbest[0] for part in _segments(transcript) if part.nbest]
    return [
        {"token": text, "bytes": list(text.encode()), "logprob": _log(confidence)}
        for one in best
        for text, confidence in zip(_texts(one, symbols), one.confidences, strict=True)
    ]


class Deltas:
    """What each new segment adds to the text of the whole."""

    def __init__(self) -> None:
        self.sent, self._texts = "", list[str]()

    def add(self, segments: Sequence[Segment]) -> str:
        """Return what these add."""
        self._texts += [segment.text for segment in segments if segment.text]
        return self.rest(join_han(" ".join(self._texts)))

    def rest(self, text: str) -> str:
        """Return what isn't sent yet of the text."""
        delta = text[len(self.sent) :] if text.startswith(self.sent) else ""
        self.sent += delta
        return delta


def event(kind: str, **facts: Any) -> bytes:
    """Write a server-sent event."""
    return f"data: {json.dumps({'type': kind, **facts}, ensure_ascii=False)}\n\n".encode()


def _segments(transcript: Transcript) -> Sequence[Segment]:
    """The segments, or the whole where times are unknown."""
    if transcript.segments or not transcript.text:
        return transcript.segments
    best = transcript.nbest[0]
    end = transcript.start + transcript.duration
    whole = Segment(transcript.start, end, transcript.text, best.confidence, (), transcript.nbest)
    return [whole]


def _segment(n: int, part: Segment, nbest: int) -> dict[str, Any]:
    best, encoded = part.nbest[:1], part.text.encode()
    found = {
        "id": n,
        "seek": 0,
        "start": round(part.start, 3),
        "end": round(part.end, 3),
        "text": part.text,
        "tokens": best[0].tokens if best else [],
        "temperature": 0.0,
        "avg_logprob": _log(part.confidence),
        "compression_ratio": round(len(encoded) / len(zlib.compress(encoded)), 3),
        "no_speech_prob": 0.0,
        "confidence": part.as_json()["confidence"],
    }
    if nbest > 1:
        found["nbest"] = [
            {"text": one.text, "confidence": one.as_json()["confidence"]} for one in part.nbest
        ]
    return found


def _log(probability: float) -> float:
    return max(LOWEST, math.log(probability)) if probability > 0 else LOWEST


def _texts(one: Alternative, symbols: Symbols) -> list[str]:
    return [symbols[token].replace("▁", " ") for token in one.tokens]
