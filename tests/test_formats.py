"""Formats of transcripts: parsers of others (pysubs2, praatio, lhotse) read back what was written.

Cues of subtitles obey laws over random transcripts: in order, apart, within segments, no word lost,
lines no wider and no more than asked for.
"""

import itertools
import json
import random
import re
from html import unescape

import pytest
from praatio import textgrid
from pysubs2 import SSAFile

from asr.formats import FORMATS, PAUSE, FormatOptions, cues
from asr.transcript import Segment, Transcript, Word

each = pytest.mark.parametrize
VOCABULARY = ["a", "word", "don't", "well-known", "5", "<b>", 'quoted"', "我", "用", "iPhone"]


def drawn(seed):
    """A transcript with random words, pauses and segments."""
    rng, at, segments = random.Random(seed), 1.0, []
    for _ in range(rng.randint(1, 4)):
        words = []
        for _ in range(rng.randint(1, 40)):
            at += rng.choice([0.0, 0.0, 0.1, 2 * PAUSE])
            end = at + rng.randint(1, 900) / 1000
            words.append(Word(at, end, rng.choice(VOCABULARY), rng.random()))
            at = end
        text = " ".join(word.text for word in words).replace("我 用", "我用")
        segments.append(Segment(words[0].start, at, text, 0.5, tuple(words)))
        at += 1
    text = " ".join(segment.text for segment in segments)
    return Transcript("a/b c.wav", text, tuple(segments), "b c.wav", 0.0, at + 0.01)


def written(kind, transcript):
    return FORMATS[kind](transcript, FormatOptions())


def letters(texts):
    """All but white space, for a line can end between two Chinese characters."""
    return "".join("".join(texts).split())


@each("seed", range(20))
def test_cues_obey_their_laws(seed):
    options = FormatOptions(max_line_width=random.Random(seed).choice([10, 42]), max_line_count=2)
    transcript = drawn(seed)
    made = cues(transcript, options)
    assert letters(line for cue in made for line in cue.lines) == letters([transcript.text])
    assert all(cue.start < cue.end for cue in made) and made[-1].end <= transcript.duration
    assert all(one.end <= next.start for one, next in itertools.pairwise(made))
    for cue in made:
        assert len(cue.lines) <= 2 and max(map(len, cue.lines)) <= max(10, options.max_line_width)
        [segment] = [s for s in transcript.segments if s.start <= cue.start < s.end]
        inside = [w for w in segment.words if cue.start <= w.start < cue.end]
        assert all(b.start - a.end < PAUSE for a, b in itertools.pairwise(inside))


@each("kind", ["srt", "vtt"])
def test_others_read_subtitles(kind):
    transcript = drawn(1)
    made = written(kind, transcript)
    expected = [(round(c.start * 1000), round(c.end * 1000)) for c in cues(transcript)]
    read = SSAFile.from_string(made, format_=kind)
    assert [(event.start, event.end) for event in read] == expected
    found = letters(re.findall(r"-->[^\n]*\n(.+?)(?:\n\n|\n?$)", made, re.S))
    assert (unescape(found) if kind == "vtt" else found) == letters([transcript.text])


def test_others_read_tables_of_words(tmp_path):
    transcript = drawn(2)
    words = [word for segment in transcript.segments for word in segment.words]
    path = tmp_path / "x.TextGrid"
    path.write_text(written("textgrid", transcript))
    grid = textgrid.openTextgrid(str(path), includeEmptyIntervals=False)
    for tier, parts in (("words", words), ("segments", transcript.segments)):
        entries = grid.getTier(tier).entries
        assert [e.label for e in entries] == [part.text for part in parts]
        got = [time for entry in entries for time in (entry.start, entry.end)]
        expected = [time for part in parts for time in (part.start, part.end)]
        assert got == pytest.approx(expected, abs=6e-4)
    rows = [line.split(" ") for line in written("ctm", transcript).splitlines()]
    for (name, _, start, seconds, text, confidence), word in zip(rows, words, strict=True):
        assert (name, text) == ("a/b_c.wav", word.text)
        expected = word.start, word.end - word.start, word.confidence
        assert tuple(map(float, (start, seconds, confidence))) == pytest.approx(expected, abs=1e-3)


def test_json_holds_everything():
    transcript = drawn(3)
    read = [
        (segment["text"], [word["text"] for word in segment["words"]])
        for segment in json.loads(written("json", transcript))["segments"]
    ]
    texts = [segment.text for segment in transcript.segments]
    assert read == [(s.text, [word.text for word in s.words]) for s in transcript.segments]
    assert written("txt", transcript).splitlines() == texts
    assert len(written("tsv", transcript).splitlines()) == 1 + len(texts)
    assert written("lrc", transcript).count("[") == len(cues(transcript))


@each("kind", FORMATS)
def test_a_recording_without_words_has_an_empty_file_of_each_format(kind):
    assert "-->" not in written(kind, Transcript("x", "", duration=3.0))
