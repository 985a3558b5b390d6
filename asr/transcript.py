"""What a transcription returns: text with its segments, words and alternatives. Times are in seconds."""

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any

from asr.errors import UserError

VERSION = 1  # of the JSON, described in docs/guide.md; a change that breaks a reader raises it


@dataclass(frozen=True, slots=True)
class Alternative:
    """One entry of an n-best list.

    text          the decoded tokens
    tokens        label ids, without blank, start and end symbols
    score         weighted sum of the scorers' scores, natural logarithm; -∞ where nothing could be
                  recognized
    scores        by scorer, before weighting
    reason        what ended the hypothesis: "end", "limit" or "loop", as in `asr.search.Hypothesis`
    confidence    of the whole text, 0 to 1; NaN if unknown
    confidences   by token, 0 to 1
    uncalibrated  the confidence of the search itself; not in the JSON
    """

    text: str
    tokens: list[int]
    score: float
    scores: dict[str, float] = field(default_factory=dict)
    reason: str = "end"
    confidence: float = math.nan
    confidences: list[float] = field(default_factory=list)
    uncalibrated: float = math.nan

    @classmethod
    def of_json(cls, values: dict[str, Any]) -> "Alternative":
        """Read plain values; a score of None is -∞."""
        numbers = {"score": values["score"], **values.get("scores", {})}
        scores = {name: -math.inf if x is None else x for name, x in numbers.items()}
        return cls(**_known(cls, values) | {"score": scores.pop("score"), "scores": scores})

    def as_json(self) -> dict[str, Any]:
        """Return plain values; None for numbers that JSON can't write."""
        return {
            "text": self.text,
            "score": _finite(self.score),
            "scores": {name: _finite(score) for name, score in self.scores.items()},
            "tokens": self.tokens,
            "reason": self.reason,
            "confidence": _finite(self.confidence),
            "confidences": self.confidences,
        }


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a word; from where CTC emits it to where it emits the next, within the word."""

    start: float
    end: float
    text: str
    confidence: float = math.nan

    def as_json(self) -> dict[str, Any]:
        """Return plain values, times to the millisecond."""
        return _timed(self)


@dataclass(frozen=True, slots=True)
class Word:
    """One word; start and end count from the beginning of the recording.

    tokens  in order, empty where their times are unknown
    """

    start: float
    end: float
    text: str
    confidence: float = math.nan
    tokens: tuple[Token, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return plain values, times to the millisecond."""
        tokens = [token.as_json() for token in self.tokens]
        return _timed(self) | ({"tokens": tokens} if tokens else {})

    def moved(self, start: float, duration: float) -> "Word":
        """Count its times from another beginning, `start` seconds earlier; none beyond `duration`."""

        def at(seconds: float) -> float:
            return start + min(seconds, duration)

        tokens = tuple(replace(x, start=at(x.start), end=at(x.end)) for x in self.tokens)
        return replace(self, start=at(self.start), end=at(self.end), tokens=tokens)


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of speech within a recording; start and end count from the beginning of the recording.

    words   in order, empty where their times are unknown
    nbest   best first
    """

    start: float
    end: float
    text: str
    confidence: float = math.nan
    words: tuple[Word, ...] = ()
    nbest: tuple[Alternative, ...] = ()

    @classmethod
    def of_json(cls, values: dict[str, Any]) -> "Segment":
        """Read plain values; fields that aren't known are ignored."""
        words = tuple(
            Word(**_known(Word, word) | {"tokens": _tokens(word)}) for word in values["words"]
        )
        return cls(**_known(cls, values) | {"words": words})

    def as_json(self) -> dict[str, Any]:
        """Return plain values, times to the millisecond."""
        return _timed(self) | {"words": [word.as_json() for word in self.words]}

    def spans(self) -> list[tuple[int, int]]:
        """Find where each word begins and ends in the text."""
        found, end = [], 0
        for word in self.words:
            begin = self.text.index(word.text, end)
            end = begin + len(word.text)
            found.append((begin, end))
        return found

    def part(self, first: int, end: int) -> "Segment":
        """Keep the words first ≤ n < end; without any, its text is empty."""
        words = self.words[first:end]
        if not words:
            return replace(self, text="", words=())
        spans = self.spans()[first:end]
        text = self.text[spans[0][0] : spans[-1][1]]
        return replace(self, start=words[0].start, end=words[-1].end, text=text, words=words)


@dataclass(frozen=True)
class Transcript:
    """The transcript of a recording, or of a part of one.

    id         of the utterance; a file's path as given
    text       the best one
    segments   in order, empty where their times are unknown
    path       of the sound file
    start      of the part, from the beginning of the recording
    duration   of the part
    nbest      alternatives for the whole text, best first
    nonspeech  from, to: what was left out of a long recording as silence, noise or music
    """

    id: str
    text: str
    segments: tuple[Segment, ...] = ()
    path: str = ""
    start: float = 0.0
    duration: float = 0.0
    nbest: tuple[Alternative, ...] = ()
    nonspeech: tuple[tuple[float, float], ...] = ()

    @classmethod
    def of_json(cls, values: dict[str, Any]) -> "Transcript":
        """Read plain values, as of one line of `asr-decode --json`; fields that aren't known are ignored.

        raises   UserError if a later version of the toolkit has written them
        """
        version = values.get("version", VERSION)
        if version != VERSION:
            raise UserError(
                f"{values.get('id')}: a transcript of version {version!r}, this toolkit reads {VERSION}; "
                "use the toolkit that wrote it, or transcribe again"
            )
        return cls(
            values["id"],
            values["text"],
            tuple(Segment.of_json(part) for part in values.get("segments", ())),
            start=values.get("start", 0.0),
            duration=values.get("duration", 0.0),
            nbest=tuple(Alternative.of_json(one) for one in values.get("nbest") or ()),
            nonspeech=tuple((start, end) for start, end in values.get("nonspeech") or ()),
        )

    def as_json(self) -> dict[str, Any]:
        """Return plain values, as in one line of `asr-decode --json`."""
        nbest = [alternative.as_json() for alternative in self.nbest]
        return {
            "version": VERSION,
            "id": self.id,
            "text": self.text,
            "start": self.start,
            "duration": self.duration,
            "segments": [segment.as_json() for segment in self.segments],
            "nbest": nbest,
        } | ({"nonspeech": [list(span) for span in self.nonspeech]} if self.nonspeech else {})


@dataclass(frozen=True)
class Partial:
    """What a stream has recognized so far of a segment that isn't final.

    number      of the segment, from 0
    start, end  of what has been read of it, seconds from the beginning of the stream
    text        may change
    stable      the beginning of the text that all likely hypotheses of the search agree on
    """

    number: int
    start: float
    end: float
    text: str
    stable: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return plain values, times to the millisecond."""
        times = {"start": round(self.start, 3), "end": round(self.end, 3)}
        return {
            "type": "partial",
            "number": self.number,
            **times,
            "text": self.text,
            "stable": self.stable,
        }


@dataclass(frozen=True)
class Final:
    """A segment of a stream, which doesn't change any more.

    number    of the segment, from 0
    segment   its text is empty if the partial results were wrong
    position  where the next segment begins, in seconds: a stream can be resumed from there
    """

    number: int
    segment: Segment
    position: float

    @classmethod
    def of_json(cls, values: dict[str, Any]) -> "Final":
        """Read plain values."""
        return cls(values["number"], Segment.of_json(values), values["position"])

    def as_json(self) -> dict[str, Any]:
        """Return plain values, times to the millisecond but for the position."""
        return {
            "type": "final",
            "number": self.number,
            **self.segment.as_json(),
            "position": self.position,
        }


Event = Partial | Final


def _known(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    """Take the fields of a dataclass, with NaN where JSON has null."""
    names = {one.name for one in fields(kind)} & values.keys()
    return {name: math.nan if values[name] is None else values[name] for name in names}


def _tokens(word: dict[str, Any]) -> tuple[Token, ...]:
    return tuple(Token(**_known(Token, token)) for token in word.get("tokens") or ())


def _timed(part: Token | Word | Segment) -> dict[str, Any]:
    return {
        "start": round(part.start, 3),
        "end": round(part.end, 3),
        "text": part.text,
        "confidence": _finite(round(part.confidence, 4)),
    }


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
