"""Formats of transcripts: parsers of others (pysubs2, praatio) read back what was written.

For random transcripts, the cues of subtitles are in order, apart and within segments; no word is lost, and lines are
no wider and no more than asked for.
"""

import itertools
import json
import math
import random
import re
from dataclasses import replace
from html import unescape

import pytest
from praatio import textgrid
from pysubs2 import SSAFile
from refusals import refused
from runs import status_of
from small import rows

from asr.cli.decode import main
from asr.formats import FORMATS, PAUSE, FormatOptions, check_names, cues
from asr.transcript import Alternative, Segment, Token, Transcript, Word

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
def test_cues_are_in_order_and_fit(seed):
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


def test_what_is_read_from_json_is_what_was_written():
    """N-best lists and what was left out, too; and fields of a later toolkit are ignored."""
    best = Alternative(
        "a b", [1, 2], -1.5, {"ctc": -1.0, "lm": -math.inf}, "limit", 0.5, [0.5, 1.0]
    )
    lost = Alternative("", [], -math.inf, confidence=0.25)
    tokens = (Token(1.0, 1.25, "_", 0.5), Token(1.25, 1.5, "b", math.nan))
    segment = Segment(
        0.5, 1.5, "a b", 0.5, (Word(0.5, 1.0, "a", 0.25), Word(1.0, 1.5, "b", 0.75, tokens))
    )
    whole = Transcript("x", "a b", (segment,), "", 0.0, 2.0, (best, lost), ((0.0, 0.5), (1.5, 2.0)))
    values = json.loads(json.dumps(whole.as_json()))
    for part in (
        values,
        values["segments"][0],
        values["segments"][0]["words"][0],
        values["nbest"][0],
    ):
        part["later"] = [1]
    read = Transcript.of_json(values)
    assert read.as_json() == whole.as_json()
    unknown = [replace(one, uncalibrated=0.0) for one in read.nbest]
    assert unknown == [replace(one, uncalibrated=0.0) for one in whole.nbest]


def test_the_command_writes_or_prints_all_of_it(folder, tmp_path, capsys):
    how = ["--model", str(folder / "model"), "--mode", "ctc", "--beam", "4", str(folder / "a.wav")]
    main([*how, "--json", "-", "--nbest", "2"])
    expected = json.loads(capsys.readouterr().out)
    main([*how, "--format", "json,srt", "--nbest", "2", "--out-dir", str(tmp_path)])
    [found] = tmp_path.rglob("a.wav.json")
    assert json.loads(found.read_text()) == expected and len(expected["nbest"]) == 2
    for kind in ("json", "srt"):
        capsys.readouterr()
        main([*how, "--format", kind, *["--nbest", "2"] * (kind == "json")])
        assert capsys.readouterr().out == found.with_suffix(f".{kind}").read_text()


PRINTED = """
a.wav b.flac --format srt       | --format: one recording can be printed, got 2
a.wav --format srt,vtt          | --format: without --out-dir, one format is printed
a.wav --format srt --out x.txt  | --format: without --out-dir, one format is printed
a.wav --out-dir out             | --out-dir: needs --format
"""


@each("words, said", rows(PRINTED))
def test_what_cant_be_printed_is_refused(folder, monkeypatch, stderr, words, said):
    monkeypatch.chdir(folder)
    how = "--model model --mode ctc-greedy"
    assert status_of(main, *how.split(), *words.split()) == 2
    assert said in stderr()


@each("kind", ["srt", "vtt", "lrc", "tsv", "textgrid"])
def test_a_text_without_times_of_words_is_lost_nowhere(kind):
    """Its words share the time of its segment, or of the recording, by their letters."""
    part = Segment(10.0, 20.0, "one two seven nineteen")
    timed = Segment(21.0, 22.0, "ten", words=(Word(21.0, 22.0, "ten"),))
    missing = Segment(22.0, 22.0, "unheard")  # of asr-align
    for transcript in (
        Transcript("x", "", (part, timed, missing), duration=30.0),
        Transcript("x", part.text, (), "", 10.0, 10.0),
    ):
        text = " ".join(written(kind, transcript).split())
        assert all(word in text for word in part.text.split()), text
        made = cues(transcript)
        assert made[0].start == 10.0 and "unheard" not in str(made)
        words = [word for cue in made for line in cue.lines for word in line.split()]
        assert words == part.text.split() + ["ten"] * bool(transcript.segments)
    assert made[0].lines[0].startswith("one") and made[-1].end == pytest.approx(20.0)


def test_a_line_of_lyrics_never_begins_at_sixty_seconds():
    word = Word(59.996, 61.0, "a")
    made = Transcript("x", "a", (Segment(59.996, 61.0, "a", words=(word,)),), duration=62.0)
    assert written("lrc", made) == "[01:00.00]a\n"


def test_two_recordings_of_one_name_are_refused(tmp_path):
    refused(
        "a.wav and ../a.wav: both would be", check_names, ["a.wav", "../a.wav"], tmp_path, ["srt"]
    )


@each("kind", FORMATS)
def test_a_recording_without_words_has_an_empty_file_of_each_format(kind):
    assert "-->" not in written(kind, Transcript("x", "", duration=3.0))
