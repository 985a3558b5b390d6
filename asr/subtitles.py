"""Subtitles as lines of text, and the same subtitles with other times; pysubs2 reads and writes the files."""

import html
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asr.errors import UserError
from asr.files import read_bytes
from asr.imports import pysubs2
from asr.transcript import Segment

if TYPE_CHECKING:
    from pysubs2 import SSAFile

KINDS = ("srt", "vtt")
MOST = 100_000_000  # bytes of a file
TAG = re.compile(r"<[^<>]*>|\{\\[^{}]*\}")  # of HTML, WebVTT's times of words, or SubStation Alpha


def is_subtitles(path: str | Path) -> bool:
    """Whether a file is named as subtitles."""
    return Path(path).suffix.lower().removeprefix(".") in KINDS


class Subtitles:
    """A file of subtitles.

    lines    pairs of place and text, without tags, of the cues that have any text

    raises   UserError if the file can't be read, or holds no cue; or pysubs2 isn't installed
    """

    def __init__(self, path: str | Path):
        content = read_bytes(path, "no such file; expected subtitles", MOST)
        kind = Path(path).suffix.lower().removeprefix(".")
        self._file = self._parsed(path, content, kind)
        texts = [(f"{path}: cue {n}", _plain(cue.text)) for n, cue in enumerate(self._file, 1)]
        self._cues = [cue for cue, (_, text) in zip(self._file, texts, strict=True) if text]
        self.lines = [(where, text) for where, text in texts if text]
        if not self.lines:
            raise UserError(f"{path}: holds no cue with text; expected subtitles ({kind})")

    @staticmethod
    def _parsed(path: str | Path, content: bytes, kind: str) -> "SSAFile":
        library: Any = pysubs2()
        try:
            return library.SSAFile.from_string(content.decode("utf-8-sig"), format_=kind)
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: not UTF-8 (byte {error.start}); convert it") from None
        except (library.Pysubs2Error, ValueError) as error:
            raise UserError(f"{path}: damaged, not subtitles ({kind}): {error}") from None

    def retimed(self, segments: Sequence[Segment], kind: str) -> str:
        """Write the cues with the times of their segments, in a format; those that aren't heard are left out."""
        for cue, segment in zip(self._cues, segments, strict=True):
            cue.start, cue.end = round(1000 * segment.start), round(1000 * segment.end)
        heard = [cue for cue, own in zip(self._cues, segments, strict=True) if own.end > own.start]
        library: Any = pysubs2()
        made = library.SSAFile()
        made.events, made.styles = heard, self._file.styles
        return made.to_string(kind)


def _plain(text: str) -> str:
    """Text of a cue without tags, in one line."""
    return " ".join(html.unescape(TAG.sub("", text.replace("\\N", " "))).split())
