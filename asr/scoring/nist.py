"""NIST's files of sclite: transcripts (trn), segments with times (stm) and words with times (ctm).

What sclite compares in more than one spelling is refused: alternatives in braces, and words in
parentheses, which may be left out. Lines that begin with `;;` are comments.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from asr.data.corpora.corpus import read_lines
from asr.data.manifest import fault_of_text
from asr.errors import UserError
from asr.text.normalize import normalize

IGNORED = "ignore_time_segment_in_scoring"  # the text of a segment that isn't scored
SEVERAL = re.compile(r"\(\S*\)|\S*[{}]\S*|@|<alt(_begin|_end)?>", re.IGNORECASE)

Channel = tuple[str, str]  # file, channel


@dataclass(frozen=True)
class Stretch:
    """A segment of an stm, or a word of a ctm.

    channel      file and channel of the recording
    start, end   seconds
    id           of a segment: file, channel, start and end as they are written, and a number from
                 the second of the same times on
    """

    channel: Channel
    start: float
    end: float
    text: str
    id: str = ""

    @property
    def scored(self) -> bool:
        """Whether a segment counts."""
        return self.text.lower() != IGNORED


def read_trn(path: Path) -> list[tuple[str, str]]:
    """Read lines of `text (id)`.

    raises   UserError for a line of another form; names file and line
    """
    return [_transcript(where, line) for where, line in _lines(path)]


def _transcript(where: str, line: str) -> tuple[str, str]:
    found = re.fullmatch(r"(?:(.*)\s)?\s*\(([^()\s]+)\)\s*", line)
    if not found:
        raise UserError(f"{where}: got {line[:60]!r}, expected `text (id)`")
    return found[2], _words(where, found[1] or "")


def read_stm(path: Path) -> list[Stretch]:
    """Read segments, `file channel speaker start end [<labels>] text`, sorted by channel and start.

    Segments may overlap, as those of two speakers do; of equal starts, the order is the file's.
    raises   UserError for a line of another form; names file and line
    """
    segments, seen = [], Counter[str]()
    for where, line in _lines(path):
        segment = _segment(where, line)
        seen[segment.id] += 1
        number = f"-{seen[segment.id]}" if seen[segment.id] > 1 else ""
        segments.append(replace(segment, id=segment.id + number))
    return sorted(segments, key=lambda segment: (segment.channel, segment.start))


def _segment(where: str, line: str) -> Stretch:
    form = "file channel speaker start end [<labels>] text"
    file, channel, _, start, end, *rest = _fields(where, line, 5, form)
    text = re.sub(r"^<[^>\s]*>(\s|$)", "", rest[0] if rest else "")
    times = _seconds(where, start), _seconds(where, end)
    if times[1] < times[0]:
        raise UserError(f"{where}: got a segment from {start} to {end} s, expected its start first")
    return Stretch((file, channel), *times, _words(where, text), f"{file}-{channel}-{start}-{end}")


def read_ctm(path: Path) -> list[Stretch]:
    """Read words, `file channel start duration word [confidence]`, sorted by channel and start.

    raises   UserError for a line of another form; names file and line
    """
    words = [_timed(where, line) for where, line in _lines(path)]
    return sorted(words, key=lambda word: (word.channel, word.start))


def _timed(where: str, line: str) -> Stretch:
    form = "file channel start duration word [confidence]"
    file, channel, start, duration, rest = _fields(where, line, 4, form, 5)
    text = _words(where, rest.split()[0])
    begin, seconds = _seconds(where, start), _seconds(where, duration)
    return Stretch((file, channel), begin, begin + seconds, text)


def whole_channels(words: Iterable[Stretch]) -> list[tuple[str, str]]:
    """Join the words of each file; where a file has several channels, those of each `file-channel`.

    >>> whole_channels([Stretch(("a", "1"), 0, 1, "GO"), Stretch(("a", "1"), 1, 2, "ON")])
    [('a', 'GO ON')]
    """
    texts = _by_channel(words)
    channels = Counter(file for file, _ in texts)
    return [
        (file if channels[file] == 1 else f"{file}-{channel}", _joined(texts[file, channel]))
        for file, channel in texts
    ]


def divided(words: Sequence[Stretch], segments: Sequence[Stretch]) -> list[tuple[str, str]]:
    """Give the words of each channel to its segments, as sclite does.

    A word belongs to the first segment that ends after its middle, and to the last one if none
    does; a segment takes no word before one of an earlier segment. So words between two segments
    belong to the second, and of two that overlap, most belong to the first: speakers aren't
    compared. Words of segments that aren't scored are left out.

    words, segments  sorted by channel and start
    returns          pairs of segment id and text. Segments of a channel without any word aren't
                     among them; the words of a channel without a segment are, by its name
    """
    texts, spans = _by_channel(words), _by_channel(segments)
    pairs = []
    for channel, spoken in texts.items():
        own = spans.get(channel)
        if not own:
            pairs.append(("-".join(channel), _joined(spoken)))
            continue
        taken: list[list[Stretch]] = [[] for _ in own]
        current = 0
        for word in spoken:
            middle = (word.start + word.end) / 2
            while current < len(own) - 1 and middle >= own[current].end:
                current += 1
            taken[current].append(word)
        given = zip(own, taken, strict=True)
        pairs += [(segment.id, _joined(part)) for segment, part in given if segment.scored]
    return pairs


def _by_channel(stretches: Iterable[Stretch]) -> dict[Channel, list[Stretch]]:
    found = defaultdict(list)
    for stretch in stretches:
        found[stretch.channel].append(stretch)
    return found


def _joined(words: Iterable[Stretch]) -> str:
    return " ".join(word.text for word in words)


def _lines(path: Path) -> list[tuple[str, str]]:
    return [(where, line) for where, line in read_lines(path) if not line.startswith(";;")]


def _fields(where: str, line: str, least: int, form: str, exactly: int = 0) -> list[str]:
    """Split a line into its fields and the rest."""
    parts = line.split(maxsplit=least)
    if len(parts) < (exactly or least):
        raise UserError(f"{where}: got {line[:60]!r}, expected `{form}`")
    return parts


def _seconds(where: str, field: str) -> float:
    try:
        seconds = float(field)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise UserError(f"{where}: got {field[:40]!r}, expected a time in seconds")
    return seconds


def _words(where: str, text: str) -> str:
    """Check a text for what sclite would read as several."""
    if fault := fault_of_text(text):
        raise UserError(f"{where}: the text {fault}; take that out")
    if found := next((w for w in text.split() if SEVERAL.fullmatch(w)), ""):
        raise UserError(
            f"{where}: got {found[:40]!r}: a word that may be left out, or an alternative, is no plain "
            "text; write what was said"
        )
    return normalize(text)
