"""asr-align: windows are the whole where context is limited, and a constructed recording has its known times.

The constructed recognizer "hears" in a frame the label that the first sample of the frame holds. So true times,
missing speech and unspoken words are exact, in files, windows and every format.
"""

import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pysubs2
import pytest
import soundfile
import torch
from refusals import refused
from runs import status_of
from small import each, rows, sizes

import asr
from asr.cli import align as command
from asr.data.manifest import Utterance, write
from asr.features.frontend import FrontendSettings
from asr.models.recognizer import Recognizer
from asr.nn.encoder import EncoderOutput
from asr.text import tokenizer as tokenizers
from asr.transcription.alignment import score_texts
from asr.transcription.encoding import encode
from asr.transcription.recordings import Recording
from asr.transcription.script import BLANK, LINE, SPELLINGS, WORD, Penalties, write_script
from asr.transcription.windows import ctc_log_probs, reader_of, windows

RATE, HOP = 8000, 320  # samples of an encoder frame
LETTERS = tokenizers.train("characters", ["ABCDEFGHIJKLMNOPQRSTUVWXY '"])
PIECES = tokenizers.train("bpe", ["THE CAT SAT ON THE MAT " * 9, "THAT HAT"] * 20, 24)


def recognizer(encoder="", longest=2.0):
    torch.manual_seed(0)
    fbank = FrontendSettings(fbank={"sample_rate": RATE, "mels": 20})
    made = Recognizer(fbank, sizes(f"encoder: {{{encoder}}}"), LETTERS).eval()
    made.longest = longest
    return made


@pytest.fixture
def hearing():
    """A recognizer of windows of 2 s that hears samples as labels."""
    made = recognizer()
    made.heard = []  # samples at once

    def hear(waveforms, lens, chunk=None):
        made.heard.append(waveforms.size(1))
        H_lens = torch.tensor([made.encoder_frames(n) for n in lens.tolist()])
        return EncoderOutput(waveforms[:, ::HOP][:, : H_lens.max()].unsqueeze(2), H_lens)

    def log_probs(H):
        ids = (H.squeeze(2) * 100).round().long()
        return (10 * torch.nn.functional.one_hot(ids, LETTERS.vocabulary).float()).log_softmax(-1)

    made.frontend.forward = lambda *given: given
    made.model.encoder.forward = hear
    made.model.ctc_log_probs = log_probs
    return made


def say(*lines, pause=5):
    """Samples of lines, a label and a blank in turn; the frames of each line's words."""
    frames, times = [0] * pause, []
    for line in lines:
        begins = [len(frames) + 2 * n for n in range(len(line)) if n == 0 or line[n - 1] == " "]
        times.append([(a, a + 2 * len(w) - 1) for a, w in zip(begins, line.split(), strict=True)])
        frames += [frame for n in LETTERS.encode(line) for frame in (n, 0)] + [0] * pause
    samples = np.repeat(np.array(frames) / 100, HOP).astype(np.float32)
    return np.pad(samples, (0, RATE // 10)), times


def record(path, *lines):
    """Write a recording of lines; the facts of a manifest about it, and the frames of the lines' words."""
    samples, times = say(*lines)
    soundfile.write(path, samples, RATE, subtype="FLOAT")
    return (RATE, len(samples), 1, 0.0, len(samples) / RATE), times


def frames_of(transcript):
    return [
        [(round(w.start * RATE / HOP), round(w.end * RATE / HOP)) for w in segment.words]
        for segment in transcript.segments
    ]


TEXT = ["SOME WORDS HERE", "AND A LONG LINE OF OTHERS", "THEN AN END", "OF IT ALL"] * 4


def test_times_are_those_that_were_spoken_in_windows_and_in_files(hearing, tmp_path):
    samples, times = say(*TEXT)
    found = asr.align(hearing, samples, "\n\n".join(TEXT))
    assert frames_of(found) == times and found.text == " ".join(TEXT)
    assert max(hearing.heard) <= 2.0 * RATE < len(samples) / 5
    assert all(segment.confidence > 0.99 for segment in found.segments)
    record(tmp_path / "x.wav", *TEXT)
    assert frames_of(asr.align(hearing, tmp_path / "x.wav", TEXT)) == times


def test_what_the_text_lacks_or_has_too_much_moves_nothing(hearing):
    samples, times = say(*TEXT)
    text = [line for n, line in enumerate(TEXT) if n not in (0, 7)]
    text.insert(5, "NOBODY SAYS THIS")
    text[0] = text[0].replace("A LONG", "A VERY LONG")
    text[1] = text[1].replace("AN ", "")
    found = asr.align(hearing, samples, text)
    expected = [own for n, own in enumerate(times) if n not in (0, 7)]
    got = frames_of(found)
    assert got.pop(5) == [] and found.segments[5].confidence == 0.0
    word = found.segments[0].words[2]
    assert (word.text, word.confidence, word.end - word.start) == ("VERY", 0.0, 0.0)
    assert got[0][:2] + got[0][3:] == expected[0] and 0 < found.segments[0].confidence < 0.9
    assert got[1] == [expected[1][0], expected[1][2]] and got[2:] == expected[2:]


def test_words_that_cannot_be_spelled_take_the_speech_there(hearing, caplog):
    samples, times = say("GO TO GATE FOURTEEN B NOW", "AND WAIT")
    found = asr.align(hearing, samples, ["go to – gate 14b now!", "♪", "(and) wait…"])
    assert [w.text for w in found.segments[0].words] == ["go", "to –", "gate", "14b", "now!"]
    own = times[0]
    around = own[3][0] - 2, own[4][1] + 2  # spaces are labels, too
    assert frames_of(found) == [[*own[:3], around, own[5]], [], times[1]]
    assert math.isnan(found.segments[0].words[3].confidence) and found.segments[0].confidence > 0.99
    assert found.segments[1].text == "♪" and [w.text for w in found.segments[2].words][0] == "(and)"
    assert re.search(r"spell: 1 \('1' \(U\+0031\) × 1.*line 1 14b", caplog.text)


@each("row", rows("""
    10 | 10 | 2 | 1
    97 | 20 | 5 | 1
    97 | 20 | 4 | 4
    21 | 20 | 5 | 1
"""))  # fmt: skip
def test_windows_cover_every_frame_once_with_context(row):
    frames, most, context, grid = map(int, row)
    found = windows(frames, most, context, grid)
    kept = [n for w in found for n in range(w.first, w.last)]
    assert kept == list(range(frames)) and len(found) > 1 or frames <= most
    for w in found:
        assert w.end - w.begin <= most and w.begin % grid == 0
        assert w.begin == 0 or w.first - w.begin >= context
        assert w.end == frames or w.end - w.last >= context


@each("encoder, longest, exact", [
    (", chunk: {frames: 2, left: 1}", 2.0, True),
    (", chunk: {frames: 3, left: 1}", math.inf, True),
    ("", 30.0, True),  # one window
    ("", 2.0, False),
])  # fmt: skip
@torch.no_grad()
def test_windows_are_the_whole_where_context_is_limited(encoder, longest, exact):
    made = recognizer(f"positions: rotary{encoder}", longest)
    waveform = (0.1 * np.random.default_rng(0).standard_normal(9 * RATE + 123)).astype(np.float32)
    expected = made.model.ctc_log_probs(encode(made, [waveform]).H)[0]
    places, parts = zip(*ctc_log_probs(made, reader_of(waveform), len(waveform)), strict=True)
    got = torch.cat(parts)
    assert got.shape == expected.shape and places[0] == 0
    assert torch.allclose(got, expected, rtol=0, atol=1e-4) == exact


@each("tokenizer", [LETTERS, PIECES])
def test_words_have_their_own_labels_and_every_word_and_line_may_be_skipped(tokenizer):
    lines = [("1", "the cat sat"), ("2", "on the 9 mat"), ("3", "that")]
    script = write_script(lines, tokenizer, SPELLINGS["plain"], Penalties(word_skip=1, line_skip=2))
    words = [word for line in script.lines for word in line.words]
    spelled = [tokenizer.decode(script.labels[word.first : word.end]) for word in words]
    assert " ".join(spelled) == "THE CAT SAT ON THE  MAT THAT"
    assert len(script.slots) == len(script.labels) + 1
    left = set()
    for skip in script.skips:
        rest = script.labels[: skip.first] + script.labels[skip.end :]
        assert script.slots[skip.first] >= WORD and script.slots[skip.end] >= WORD
        left.add((tokenizer.decode(rest).replace(" ", ""), skip.cost))
    text = ["THECATSAT", "ONTHEMAT", "THAT"]
    for skipped, cost in ((text, 2), (["THE", "CAT", "SAT", "ON", "MAT"], 1)):
        assert {("".join(text).replace(part, "", 1), cost) for part in skipped} <= left
    assert len(script.skips) == 7 + 3
    slots = [script.slots[word.first] for word in words]
    assert slots == [LINE, WORD, WORD, LINE, WORD, LINE, LINE, LINE] and BLANK in script.slots


def test_the_worst_texts_of_a_manifest_come_first(hearing, tmp_path):
    texts = ["GOOD TEXT", "A BAD ONE", "ONE MORE WORD", "WHAT ELSE", ""]
    said = ["GOOD TEXT", "A SAD ONE", "ONE MORE WORD HERE", "WHAT ELSE", "X"]
    recordings = []
    for n, line in enumerate(said):
        (*_, start, seconds), _ = record(tmp_path / f"{n}.wav", line)
        recordings.append(Recording(str(n), f"{tmp_path}/{n}.wav", start, seconds))
    found, lost = score_texts(hearing, recordings, texts)
    assert [one.id for one in found][:3] in (["4", "2", "1"], ["4", "1", "2"])
    assert not lost and found[0].log_confidence == -math.inf and found[-1].log_confidence > -0.01
    for one in found:
        n = int(one.id)
        ([alone], _) = score_texts(hearing, [recordings[n]], [texts[n]])
        assert alone.log_confidence == pytest.approx(one.log_confidence)


@pytest.fixture
def run(hearing, tmp_path, monkeypatch, capsys):
    """Call the command in a folder with x.wav, its text and a model folder; status, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    record("x.wav", *TEXT[:4])
    Path("x.txt").write_text("\n\n".join(TEXT[:4]) + "\n")
    Path("m").mkdir()
    monkeypatch.setattr(command, "load", lambda args: hearing)
    given = "--model", "m"
    return lambda words: (status_of(command.main, *given, *words.split()), *capsys.readouterr())


def table_of(text):
    return [line.split("\t") for line in text.splitlines()]


def test_the_command_prints_one_format_or_writes_several_once(run):
    status, printed, _ = run("x.wav x.txt")
    _, *table = table_of(printed)
    assert status == 0 and [row[2] for row in table] == TEXT[:4]
    several = "x.wav x.txt --format srt,ctm,json --out-dir out"
    assert run(several)[0] == 0
    subtitles = pysubs2.load("out/x.wav.srt")
    assert [cue.start for cue in subtitles] == [int(row[0]) for row in table]
    words = [line.split() for line in Path("out/x.wav.ctm").read_text().splitlines()]
    assert [word[4] for word in words] == " ".join(TEXT[:4]).split()
    assert json.loads(Path("out/x.wav.json").read_text())["id"] == "x.wav"
    assert "up to date" in run(several)[2]
    Path("x.txt").write_text("SOME WORDS HERE\n")
    assert "written" in run(several)[2]
    assert len(pysubs2.load("out/x.wav.srt")) == 1


SRT = """1
00:00:00,000 --> 00:00:01,000
<i>Some words</i>
here!

2
00:00:01,000 --> 00:00:02,000
♪

3
00:00:02,000 --> 00:00:03,000
<font color="red">Nobody said this</font>

4
00:00:03,000 --> 00:00:04,000
{\\an8}and a long line of others
"""
VTT = """WEBVTT

STYLE
::cue {}

00:00.000 --> 00:01.000 align:start
<v Ann>Some <00:00.500>words &#72;ere

00:01.000 --> 00:02.000
and a long line of others
"""


@each("kind, text, cues", [("srt", SRT, [0, 3]), ("vtt", VTT, [0, 1])])
def test_subtitles_keep_their_cues_and_get_new_times(run, kind, text, cues):
    Path(f"old.{kind}").write_text(text.replace("\n", "\r\n"), newline="")
    Path("x.txt").write_text("\n".join(TEXT[:2]))
    _, *table = table_of(run("x.wav x.txt")[1])
    status, printed, _ = run(f"x.wav old.{kind} --format {kind}")
    old, made = (pysubs2.SSAFile.from_string(some, format_=kind) for some in (text, printed))
    assert status == 0
    assert [[str(cue.start), str(cue.end)] for cue in made] == [row[:2] for row in table]
    assert [cue.text for cue in made] == [old[n].text for n in cues]
    untimed = [re.sub("^.*-->.*$", "", lines.rstrip(), flags=re.M) for lines in (text, printed)]
    assert kind == "srt" or untimed[0] == untimed[1] and " align:start\n" in printed


def test_a_manifest_s_unreadable_recordings_are_listed_and_the_others_scored(run, tmp_path):
    text, names = " ".join(TEXT[:4]), [f"{n}.wav" for n in range(4)]
    facts, _ = record("good.wav", text)
    utterances = [Utterance(name, f"{tmp_path}/{name}", *facts, text) for name in names]
    write("x.jsonl.gz", utterances)
    score = "--manifest x.jsonl.gz --batch-seconds 0.1 --out s.tsv"  # one a batch
    status, _, shown = run(score)
    assert status == 2 and "none of 4 recordings could be aligned" in shown
    assert not Path("s.tsv").exists() and len(Path("s.tsv.failed.tsv").read_text().split("\n")) == 6
    for name in names[::3]:
        shutil.copy("good.wav", name)
    for out in ("s.tsv", "-"):
        status, printed, shown = run(f"{score} --out {out} --batch-seconds 100")
        table = table_of(Path(out).read_text() if out != "-" else printed)
        assert status == 3 and [row[::2] for row in table] == [[n, text] for n in names[::3]]
        assert all(-0.1 < float(row[1]) <= 0 for row in table)
        assert "2 of 4 recordings could not be aligned" in shown
        assert all(name in shown for name in names[1:3])
    lost = table_of(Path("s.tsv.failed.tsv").read_text())
    assert [row[0] for row in lost] == ["id", "1.wav", "2.wav"]
    for name in names[1:3]:
        shutil.copy("good.wav", name)
    assert run(score)[0] == 0 and not Path("s.tsv.failed.tsv").exists()
    assert Path("s.tsv").read_text().count("\n") == 4
    assert "is up to date" in run(score)[2]


MISTAKES = rows("""
    x.wav | nothing to align
    x.wav none.txt | none.txt
    x.wav x.txt --format srt,ctm | --out-dir
    x.wav x.txt --out a --out-dir b | --out and --out-dir
    x.wav x.txt --out x.txt | is an input
    x.wav x.txt --manifest x.txt | takes no AUDIO
    x.wav empty.txt | empty.txt: is empty
    x.wav latin.txt | latin.txt:2: not UTF-8
    x.wav control.txt | control.txt:1: the text has a control character
    x.wav digits.txt | digits.txt:1: the text has no word
    x.wav bad.srt | bad.srt
    short.wav x.txt | too short
    x.wav x.txt --model nothing | no such model folder
""")


@each("words, fact", MISTAKES)
def test_a_mistake_is_one_line_and_status_2(run, words, fact):
    files = {
        "empty.txt": b"\n \n",
        "latin.txt": b"A\n\xff\n",
        "control.txt": b"A\x1bB\n",
        "digits.txt": b"1 2\n",
        "bad.srt": b"no cue\n",
    }
    for name, content in files.items():
        Path(name).write_bytes(content)
    soundfile.write("short.wav", np.zeros(90), RATE)
    status, printed, shown = run(words)
    assert status == 2 and printed == "" and fact in shown and "Traceback" not in shown


def test_a_model_without_ctc_is_refused(run, hearing):
    hearing.model.ctc_weight = 0.0
    status, _, shown = run("x.wav x.txt")
    assert status == 2 and "model.ctc_weight is 0" in shown
    refused("ctc_weight", score_texts, hearing, [], [])
