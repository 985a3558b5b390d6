"""Subtitles (SubRip, WebVTT) as lines of text, and the same file with other times.

A cue is a block of lines with a line of its times; everything else of the file stays as it is.
"""

import html
import re
from collections.abc import Sequence
from pathlib import Path

from asr.errors import UserError
from asr.files import read_bytes
from asr.formats import clock
from asr.transcript import Segment

MARKS = {"srt": ",", "vtt": "."}  # before the milliseconds
MOST = 100_000_000  # bytes of a file
TIMES = re.compile(r"^[ \t]*(?:\d+:)?\d+:\d+[.,]\d+ *--> *(?:\d+:)?\d+:\d+[.,]\d+", re.M)
TAG = re.compile(r"<[^<>]*>|\{\\[^{}]*\}")  # HTML's, WebVTT's times of words, SubStation Alpha's


def kind_of(path: str | Path) -> str:
    """Return the kind of subtitles that a file's name tells, "srt" or "vtt"; empty if none."""
    suffix = Path(path).suffix.lower().removeprefix(".")
    return suffix if suffix in MARKS else ""


class Subtitles:
    """A file of subtitles.

    kind     "srt" or "vtt"
    lines    pairs of place and text, without tags, of the cues that have any text

    raises   UserError if the file can't be read, or has no cue with text
    """

    def __init__(self, path: str | Path):
        self.kind = kind_of(path)
        content = read_bytes(path, "no such file; expected subtitles", MOST)
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content[: error.start].count(b"\n") + 1
            raise UserError(f"{path}:{line}: not UTF-8; convert it, with iconv -t UTF-8") from None
        text = "\n".join(text.splitlines())
        self._blocks = re.split(r"(\n[ \t]*(?:\n|$))", text)  # and what parts them
        self.lines: list[tuple[str, str]] = []
        self._cues: list[int] = []
        line = 1
        for n, block in enumerate(self._blocks):
            if (times := TIMES.search(block)) and (words := _plain(block[times.end() :])):
                self.lines.append((f"{path}:{line + block.count(chr(10), 0, times.end())}", words))
                self._cues.append(n)
            line += block.count("\n")
        if not self.lines:
            raise UserError(f"{path}: has no cue with text; expected subtitles ({self.kind})")

    def retimed(self, segments: Sequence[Segment]) -> str:
        """Write the file with the times of its cues' segments; cues that aren't heard are left out."""
        blocks, mark = list(self._blocks), MARKS[self.kind]
        for n, segment in zip(self._cues, segments, strict=True):
            times = f"{clock(segment.start, mark)} --> {clock(segment.end, mark)}"
            if segment.end > segment.start:
                blocks[n] = TIMES.sub(times, blocks[n], count=1)
            else:  # with the blank line after it
                blocks[n : n + 2] = [""] * len(blocks[n : n + 2])
        return "".join(blocks).rstrip("\n") + "\n"


def _plain(text: str) -> str:
    """Text of a cue without the settings after its times, and without tags, in one line."""
    _, _, words = text.partition("\n")
    return " ".join(html.unescape(TAG.sub("", words)).split())
