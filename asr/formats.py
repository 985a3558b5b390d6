"""Write a transcript in the formats that other programs read: subtitles, tables of words, annotations.

Times come from the transcript's words. A cue of subtitles never crosses a segment, ends at a pause or
where its lines are full, and stays on the screen long enough to be read.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from asr.errors import UserError
from asr.files import make_folder, write_text
from asr.options import check, option
from asr.transcript import Event, Partial, Segment, Transcript, Word

PAUSE = 0.6  # seconds of silence that end a cue
LONGEST = 7.0  # seconds of a cue
READING = 17  # characters per second that a person reads
GAP = 0.04  # seconds between a cue that is prolonged and the next


@dataclass(frozen=True)
class FormatOptions:
    """How subtitles look."""

    max_line_width: int = option(42, "maximum characters per subtitle line", least=8)
    max_line_count: int = option(2, "maximum lines per subtitle", least=1)

    def __post_init__(self):
        check(self)


@dataclass(frozen=True)
class Cue:
    """Text that is on the screen at once; seconds."""

    start: float
    end: float
    lines: tuple[str, ...]


def cues(transcript: Transcript, options: FormatOptions = FormatOptions()) -> list[Cue]:  # noqa: B008
    """Divide a transcript into cues, in order; they don't overlap."""
    made = [cue for segment in _segments(transcript) for cue in _cues(segment, options)]
    limits = [*(cue.start - GAP for cue in made), transcript.start + transcript.duration][1:]
    return [
        Cue(cue.start, max(cue.end, min(limit, cue.start + _reading(cue))), cue.lines)
        for cue, limit in zip(made, limits, strict=True)
    ]


def _cues(segment: Segment, options: FormatOptions) -> Iterator[Cue]:
    width, count = options.max_line_width, options.max_line_count
    segment = segment if segment.words else _spread(segment)
    spans = [_Span(word, *at) for word, at in zip(segment.words, segment.spans(), strict=True)]
    first = 0
    for n in range(1, len(spans)):
        begun, previous, word = spans[first].word, spans[n - 1].word, spans[n].word
        full = len(_wrap(spans[first : n + 1], width)) > count or word.end - begun.start > LONGEST
        if full or word.start - previous.end >= PAUSE:
            yield _cue(segment, spans[first:n], width)
            first = n
    if spans:
        yield _cue(segment, spans[first:], width)


def _segments(transcript: Transcript) -> Sequence[Segment]:
    """The segments; a text without any, which CTC can't align, is one."""
    if transcript.segments or not transcript.text:
        return transcript.segments
    end = transcript.start + transcript.duration
    return [Segment(transcript.start, end, transcript.text)]


def _spread(segment: Segment) -> Segment:
    """Give each word of a segment whose words have no times its share of the whole, by letters."""
    words, at = [], segment.start
    each = (segment.end - segment.start) / max(1, sum(map(len, segment.text.split())))
    for text in segment.text.split() if each > 0 else ():
        words.append(Word(at, at + each * len(text), text))
        at = words[-1].end
    return replace(segment, words=tuple(words))


class _Span(NamedTuple):
    """A word, and where it begins and ends in its segment's text."""

    word: Word
    begin: int
    end: int


def _cue(segment: Segment, spans: Sequence[_Span], width: int) -> Cue:
    """Make a cue of words, in as few lines as fit, of similar lengths."""
    count, length = len(_wrap(spans, width)), spans[-1].end - spans[0].begin
    widths = range(-(-length // count), width + 1)
    lines = next(
        (made for w in widths if len(made := _wrap(spans, w)) <= count), _wrap(spans, width)
    )
    text = tuple(segment.text[line[0].begin : line[-1].end] for line in lines)
    return Cue(spans[0].word.start, spans[-1].word.end, text)


def _wrap(spans: Sequence[_Span], width: int) -> list[list[_Span]]:
    """Fill lines with words; one that is wider than a line has its own."""
    lines = [[spans[0]]]
    for span in spans[1:]:
        if span.end - lines[-1][0].begin <= width:
            lines[-1].append(span)
        else:
            lines.append([span])
    return lines


def _reading(cue: Cue) -> float:
    """Seconds that a person takes to read it."""
    return sum(map(len, cue.lines)) / READING


def clock(seconds: float, mark: str) -> str:
    """Format a time as hours, minutes, seconds and milliseconds.

    >>> clock(3661.5, ",")
    '01:01:01,500'
    """
    whole = max(0, round(seconds * 1000))
    return f"{whole // 3_600_000:02}:{whole // 60_000 % 60:02}:{whole // 1000 % 60:02}{mark}{whole % 1000:03}"


def txt(transcript: Transcript, options: FormatOptions) -> str:
    """One line per segment, or the whole text where there are no segments."""
    lines = [segment.text for segment in transcript.segments] or [transcript.text]
    return "".join(f"{line}\n" for line in lines)


def as_json(transcript: Transcript, options: FormatOptions) -> str:
    """Everything, as JSON."""
    return json.dumps(transcript.as_json(), ensure_ascii=False, indent=1) + "\n"


def srt(transcript: Transcript, options: FormatOptions) -> str:
    """SubRip subtitles."""
    return _srt(cues(transcript, options), 1)


def _srt(made: Sequence[Cue], first: int) -> str:
    return "\n".join(
        f"{n}\n{clock(cue.start, ',')} --> {clock(cue.end, ',')}\n" + _lines(cue)
        for n, cue in enumerate(made, first)
    )


def vtt(transcript: Transcript, options: FormatOptions) -> str:
    """WebVTT subtitles (W3C)."""
    made = (
        f"\n{clock(cue.start, '.')} --> {clock(cue.end, '.')}\n"
        + _lines(cue).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        for cue in cues(transcript, options)
    )
    return HEADS["vtt"] + "".join(made)


def lrc(transcript: Transcript, options: FormatOptions) -> str:
    """Lyrics: the start of each line."""
    lines = ((round(cue.start * 100), " ".join(cue.lines)) for cue in cues(transcript, options))
    return "".join(f"[{at // 6000:02}:{at % 6000 / 100:05.2f}]{line}\n" for at, line in lines)


def tsv(transcript: Transcript, options: FormatOptions) -> str:
    """A table of segments: start and end in milliseconds, text."""
    rows = [f"{s.start * 1000:.0f}\t{s.end * 1000:.0f}\t{s.text}\n" for s in _segments(transcript)]
    return HEADS["tsv"] + "".join(rows)


def ctm(transcript: Transcript, options: FormatOptions) -> str:
    """NIST's time-marked conversation: recording, channel, start, duration, word, confidence if it is known."""
    name = "_".join(transcript.id.split()) or "-"
    return "".join(
        f"{name} 1 {w.start:.3f} {w.end - w.start:.3f} {'_'.join(w.text.split())}{_confidence(w)}\n"
        for segment in transcript.segments
        for w in segment.words
    )


def _confidence(word: Word) -> str:
    return f" {word.confidence:.4f}" if math.isfinite(word.confidence) else ""


def textgrid(transcript: Transcript, options: FormatOptions) -> str:
    """Praat's annotation, with a tier of segments and one of words."""
    words = [word for segment in transcript.segments for word in segment.words]
    begin, end = transcript.start, transcript.start + transcript.duration
    tiers = [
        _tier(name, parts, begin, end)
        for name, parts in (("segments", _segments(transcript)), ("words", words))
    ]
    head = [
        'File type = "ooTextFile"',
        'Object class = "TextGrid"',
        "",
        f"xmin = {begin:.3f}",
        f"xmax = {end:.3f}",
    ]
    head += ["tiers? <exists>", f"size = {len(tiers)}", "item []:"]
    for n, tier in enumerate(tiers, 1):
        head += [f"    item [{n}]:", *tier]
    return "\n".join(head) + "\n"


def _tier(name: str, parts: Sequence[Segment | Word], begin: float, end: float) -> list[str]:
    """List the lines of an interval tier; what lies between the parts is empty."""
    rows, at = [], begin
    for part in parts:
        if part.start > at:
            rows.append((at, part.start, ""))
        if part.end > max(at, part.start):
            rows.append((max(at, part.start), part.end, part.text))
        at = max(at, part.end)
    if end > at:
        rows.append((at, end, ""))
    lines = [
        '        class = "IntervalTier"',
        f'        name = "{name}"',
        f"        xmin = {begin:.3f}",
        f"        xmax = {end:.3f}",
    ]
    lines.append(f"        intervals: size = {len(rows)}")
    for n, (start, stop, text) in enumerate(rows, 1):
        quoted = text.replace('"', '""')
        lines += [
            f"        intervals [{n}]:",
            f"            xmin = {start:.3f}",
            f"            xmax = {stop:.3f}",
            f'            text = "{quoted}"',
        ]
    return lines


def _lines(cue: Cue) -> str:
    return "".join(f"{line}\n" for line in cue.lines)


FORMATS: dict[str, Callable[[Transcript, FormatOptions], str]] = {
    "txt": txt,
    "json": as_json,
    "srt": srt,
    "vtt": vtt,
    "ctm": ctm,
    "tsv": tsv,
    "textgrid": textgrid,
    "lrc": lrc,
}


SUBTITLES = {"srt", "vtt", "lrc"}  # have lines of a width
HEADS = {"vtt": "WEBVTT\n", "tsv": "start\tend\ttext\n"}  # with which a file begins
LIVE = ("txt", "json", "srt", "vtt", "ctm", "tsv", "lrc")  # can be written segment by segment


class Growing:
    """A file of a stream in one format: what each final segment adds to it.

    kind   one of LIVE; of json an event a line
    """

    def __init__(self, kind: str, id: str, options: FormatOptions):
        self.kind, self.id, self.options = kind, id, options
        self.cues = 0  # so far

    @property
    def head(self) -> str:
        """What the file begins with."""
        return HEADS.get(self.kind, "")

    def add(self, event: Event) -> str:
        """Return what an event adds; partial results are in json alone."""
        if self.kind == "json":
            return json.dumps({"id": self.id, **event.as_json()}, ensure_ascii=False) + "\n"
        if isinstance(event, Partial) or not event.segment.text:
            return ""
        segment = event.segment
        length = event.position - segment.start  # the next segment can't begin before
        one = Transcript(self.id, segment.text, (segment,), "", segment.start, length)
        if self.kind != "srt":
            return FORMATS[self.kind](one, self.options).removeprefix(self.head)
        made, first = cues(one, self.options), self.cues + 1
        self.cues += len(made)
        return ("\n" if made and first > 1 else "") + _srt(made, first)


SUFFIXES = {"textgrid": "TextGrid"}  # of formats whose files aren't named by them


def files_of(name: str, folder: Path, kinds: Sequence[str]) -> list[Path]:
    """Name the files of a recording in a folder of outputs, one per format; its id keeps its folders."""
    parts = [part for part in Path(name).parts if part not in ("..", Path(name).anchor)]
    base = folder.joinpath(*parts)
    return [base.with_name(f"{base.name}.{SUFFIXES.get(kind, kind)}") for kind in kinds]


def check_names(names: Iterable[str], folder: Path, kinds: Sequence[str]) -> list[Path]:
    """List the files of all recordings.

    raises   UserError that names two recordings whose files would have one name
    """
    first: dict[Path, str] = {}
    for name in names:
        for path in files_of(name, folder, kinds):
            if (other := first.setdefault(path, name)) != name:
                raise UserError(f"{other} and {name}: both would be {path}; rename one")
    return list(first)


def write(
    transcript: Transcript, folder: Path, kinds: Sequence[str], options: FormatOptions
) -> None:
    """Write a transcript in several formats, each file whole or not at all."""
    for path, kind in zip(files_of(transcript.id, folder, kinds), kinds, strict=True):
        make_folder(path.parent)
        write_text(path, FORMATS[kind](transcript, options))
