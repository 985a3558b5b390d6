"""asr-align: windows are the whole where context is limited, and a constructed recording has its known times.

The constructed recognizer "hears" in a frame the label that the first sample of the frame holds. So true times,
missing speech and unspoken words are exact, in files, windows and every format.
"""

import json
import math
import re
import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pysubs2
import pytest
import soundfile
import torch
from small import each, near, sizes

import asr
from asr.cli import align as command
from asr.data.manifest import Utterance, write
from asr.features.frontend import FrontendSettings
from asr.models.recognizer import Recognizer
from asr.nn.encoder import EncoderOutput
from asr.text import tokenizer as tokenizers
from asr.transcription.alignment import score_texts
from asr.transcription.pipeline import encode
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
def hearing(monkeypatch):
    """A recognizer of windows of 2 s that hears samples as labels."""
    made = recognizer()
    heard = SimpleNamespace(most=0)

    def hear(waveforms, lens, chunk=None):
        heard.most = max(heard.most, waveforms.size(1))
        H_lens = torch.tensor([made.encoder_frames(n) for n in lens.tolist()])
        return EncoderOutput(waveforms[:, ::HOP][:, : H_lens.max()].unsqueeze(2), H_lens)

    def log_probs(H):
        ids = (H.squeeze(2) * 100).round().long()
        return (10 * torch.nn.functional.one_hot(ids, LETTERS.vocabulary).float()).log_softmax(-1)

    monkeypatch.setattr(made.frontend, "forward", lambda *given: given)
    monkeypatch.setattr(made.model.encoder, "forward", hear)
    monkeypatch.setattr(made.model, "ctc_log_probs", log_probs)
    made.heard = heard
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
    assert hearing.heard.most <= 2.0 * RATE < len(samples) / 5
    assert all(segment.confidence > 0.99 for segment in found.segments)
    soundfile.write(tmp_path / "x.wav", samples, RATE, subtype="FLOAT")
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


def test_windows_cover_every_frame_once_with_context():
    for frames, most, context, grid in (
        (10, 10, 2, 1),
        (97, 20, 5, 1),
        (97, 20, 4, 4),
        (21, 20, 5, 1),
    ):
        found = windows(frames, most, context, grid)
        kept = [n for w in found for n in range(w.first, w.last)]
        assert kept == list(range(frames)) and len(found) > 1 or frames <= most
        for w in found:
            assert w.end - w.begin <= most and w.begin % grid == 0
            assert w.begin == 0 or w.first - w.begin >= context
            assert w.end == frames or w.end - w.last >= context


@each(
    "encoder, longest, exact",
    [
        ("positions: rotary, chunk: {frames: 2, left: 1}", 2.0, True),
        ("positions: rotary, chunk: {frames: 3, left: 1}", math.inf, True),
        ("positions: rotary", 30.0, True),  # one window
        ("positions: rotary", 2.0, False),
    ],
)
def test_windows_are_the_whole_where_context_is_limited(encoder, longest, exact):
    made = recognizer(encoder, longest)
    waveform = (0.1 * np.random.default_rng(0).standard_normal(9 * RATE + 123)).astype(np.float32)
    with torch.no_grad():
        expected = made.model.ctc_log_probs(encode(made, [waveform]).H)[0]
    parts = list(ctc_log_probs(made, reader_of(waveform), len(waveform)))
    got = torch.cat([part for _, part in parts])
    assert got.shape == expected.shape and [n for n, _ in parts][0] == 0
    if exact:
        near(got, expected, 1e-4)
    else:
        assert not torch.allclose(got, expected, atol=1e-4)


def labels_of(script, word, tokenizer):
    return tokenizer.decode(script.labels[word.first : word.end])


@each("tokenizer", [LETTERS, PIECES])
def test_words_have_their_own_labels_and_every_word_and_line_may_be_skipped(tokenizer):
    lines = [("1", "the cat sat"), ("2", "on the 9 mat"), ("3", "that")]
    script = write_script(lines, tokenizer, SPELLINGS["plain"], Penalties(word_skip=1, line_skip=2))
    words = [word for line in script.lines for word in line.words]
    assert [labels_of(script, w, tokenizer) for w in words] == [
        "THE",
        "CAT",
        "SAT",
        "ON",
        "THE",
        "",
        "MAT",
        "THAT",
    ]
    assert len(script.slots) == len(script.labels) + 1
    left = set()
    for skip in script.skips:
        rest = script.labels[: skip.first] + script.labels[skip.end :]
        assert script.slots[skip.first] >= WORD and script.slots[skip.end] >= WORD
        left.add((tokenizer.decode(rest).replace(" ", ""), skip.cost))
    text = ["THECATSAT", "ONTHEMAT", "THAT"]
    assert {("".join(text[:n] + text[n + 1 :]), 2) for n in range(3)} <= left
    assert {
        ("".join(text).replace(w, "", 1), 1) for w in ("THE", "CAT", "SAT", "ON", "MAT")
    } <= left
    assert len(script.skips) == 7 + 3
    slots = [script.slots[word.first] for word in words]
    assert slots == [LINE, WORD, WORD, LINE, WORD, LINE, LINE, LINE] and BLANK in script.slots


def test_the_worst_texts_of_a_manifest_come_first(hearing, tmp_path):
    texts = ["GOOD TEXT", "A BAD ONE", "ONE MORE WORD", "WHAT ELSE", ""]
    said = ["GOOD TEXT", "A SAD ONE", "ONE MORE WORD HERE", "WHAT ELSE", "X"]
    recordings = []
    for n, line in enumerate(said):
        samples, _ = say(line)
        path = tmp_path / f"{n}.wav"
        soundfile.write(path, samples, RATE, subtype="FLOAT")
        recordings.append(Recording(str(n), str(path), 0.0, len(samples) / RATE))
    found, lost = score_texts(hearing, recordings, texts)
    assert [one.id for one in found][:3] in (["4", "2", "1"], ["4", "1", "2"])
    assert not lost and found[0].log_confidence == -math.inf and found[-1].log_confidence > -0.01
    alone = {
        one.id: one
        for n in range(5)
        for one in score_texts(hearing, recordings[n : n + 1], texts[n : n + 1])[0]
    }
    assert all(alone[one.id].log_confidence == pytest.approx(one.log_confidence) for one in found)


@pytest.fixture
def run(hearing, tmp_path, monkeypatch, capsys):
    """Call the command in a folder with x.wav, its text and a model folder; status, stdout, stderr."""
    samples, _ = say(*TEXT[:4])
    soundfile.write(tmp_path / "x.wav", samples, RATE, subtype="FLOAT")
    (tmp_path / "x.txt").write_text("\n\n".join(TEXT[:4]) + "\n")
    (tmp_path / "m").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "load", lambda args: hearing)

    def call(*words):
        status = 0
        try:
            command.main(["--model", "m", *map(str, words)])
        except SystemExit as stop:
            status = stop.code
        done = capsys.readouterr()
        return status, done.out, done.err

    return call


def test_the_command_prints_one_format_or_writes_several_once(run, hearing, tmp_path):
    status, printed, _ = run("x.wav", "x.txt")
    rows = [line.split("\t") for line in printed.splitlines()]
    assert status == 0 and [row[2] for row in rows[1:]] == TEXT[:4]
    assert run("x.wav", "x.txt", "--format", "srt,ctm,json", "--out-dir", "out")[0] == 0
    subtitles = pysubs2.load("out/x.wav.srt")
    assert [cue.start for cue in subtitles] == [int(row[0]) for row in rows[1:]]
    words = [line.split() for line in Path("out/x.wav.ctm").read_text().splitlines()]
    assert [word[4] for word in words] == " ".join(TEXT[:4]).split()
    assert json.loads(Path("out/x.wav.json").read_text())["id"] == "x.wav"
    assert "up to date" in run("x.wav", "x.txt", "--format", "srt,ctm,json", "--out-dir", "out")[2]
    (tmp_path / "x.txt").write_text("SOME WORDS HERE\n")
    assert "written" in run("x.wav", "x.txt", "--format", "srt,ctm,json", "--out-dir", "out")[2]
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
def test_subtitles_keep_their_cues_and_get_new_times(run, tmp_path, kind, text, cues):
    (tmp_path / f"old.{kind}").write_text(text.replace("\n", "\r\n"), newline="")
    (tmp_path / "x.txt").write_text("\n".join(TEXT[:2]))
    table = [line.split("\t") for line in run("x.wav", "x.txt")[1].splitlines()[1:]]
    status, printed, _ = run("x.wav", f"old.{kind}", "--format", kind)
    made = pysubs2.SSAFile.from_string(printed, format_=kind)
    assert status == 0 and [[cue.start, cue.end] for cue in made] == [
        [int(row[0]), int(row[1])] for row in table
    ]
    old = pysubs2.SSAFile.from_string(text, format_=kind)
    assert [cue.text for cue in made] == [old[n].text for n in cues]
    untimed = [
        "\n".join(line for line in lines.splitlines() if "-->" not in line)
        for lines in (text, printed)
    ]
    assert kind == "srt" or untimed[0] == untimed[1] and " align:start\n" in printed


def test_a_manifest_s_scores_are_written(run, tmp_path):
    samples, _ = say(" ".join(TEXT[:4]))
    soundfile.write("u.wav", samples, RATE, subtype="FLOAT")
    facts = str(tmp_path / "u.wav"), RATE, len(samples), 1, 0.0, len(samples) / RATE
    write("x.jsonl.gz", [Utterance("u", *facts, " ".join(TEXT[:4]))])
    assert run("--manifest", "x.jsonl.gz", "--out", "scores.tsv")[0] == 0
    name, score, text = Path("scores.tsv").read_text().rstrip("\n").split("\t")
    assert (name, text) == ("u", " ".join(TEXT[:4])) and -0.1 < float(score) <= 0


def test_a_manifest_s_unreadable_recordings_are_listed_and_the_others_scored(run, tmp_path):
    samples, _ = say(TEXT[0])
    facts = RATE, len(samples), 1, 0.0, len(samples) / RATE, TEXT[0]
    names = [f"{n}.wav" for n in range(4)]
    write("x.jsonl.gz", [Utterance(name, str(tmp_path / name), *facts) for name in names])
    score = partial(run, "--manifest", "x.jsonl.gz", "--batch-seconds", "0.1")  # one a batch
    status, _, shown = score("--out", "s.tsv")
    assert status == 2 and "none of 4 recordings could be aligned" in shown
    assert not Path("s.tsv").exists() and len(Path("s.tsv.failed.tsv").read_text().split("\n")) == 6
    for name in ("0.wav", "3.wav"):
        soundfile.write(name, samples, RATE, subtype="FLOAT")
    for out in ("s.tsv", "-"):
        status, printed, shown = score("--out", out, "--batch-seconds", "100")
        table = Path(out).read_text() if out != "-" else printed
        assert status == 3 and [line.split("\t")[0] for line in table.splitlines()] == [*names[::3]]
        assert "2 of 4 recordings could not be aligned" in shown
        assert all(shown.count(name) >= 1 for name in names[1:3])
    lost = [line.split("\t")[0] for line in Path("s.tsv.failed.tsv").read_text().splitlines()]
    assert lost == ["id", "1.wav", "2.wav"]
    for name in names[1:3]:
        shutil.copy("0.wav", name)
    assert score("--out", "s.tsv")[0] == 0 and not Path("s.tsv.failed.tsv").exists()
    assert Path("s.tsv").read_text().count("\n") == 4
    assert "is up to date" in score("--out", "s.tsv")[2]


MISTAKES = [
    (["x.wav"], "nothing to align"),
    (["x.wav", "none.txt"], "none.txt"),
    (["x.wav", "x.txt", "--format", "srt,ctm"], "--out-dir"),
    (["x.wav", "x.txt", "--out", "a", "--out-dir", "b"], "--out and --out-dir"),
    (["x.wav", "x.txt", "--out", "x.txt"], "is an input"),
    (["x.wav", "x.txt", "--manifest", "x.txt"], "takes no AUDIO"),
    (["x.wav", "empty.txt"], "empty.txt: is empty"),
    (["x.wav", "latin.txt"], "latin.txt:2: not UTF-8"),
    (["x.wav", "control.txt"], "control.txt:1: the text has a control character"),
    (["x.wav", "digits.txt"], "digits.txt:1: the text has no word"),
    (["x.wav", "bad.srt"], "bad.srt"),
    (["short.wav", "x.txt"], "too short"),
    (["x.wav", "x.txt", "--model", "nothing"], "no such model folder"),
]


@each("words, fact", MISTAKES)
def test_a_mistake_is_one_line_and_status_2(run, tmp_path, words, fact):
    files = {"empty.txt": b"\n \n", "latin.txt": b"A\n\xff\n", "control.txt": b"A\x1bB\n"}
    for name, content in (files | {"digits.txt": b"1 2\n", "bad.srt": b"no cue\n"}).items():
        (tmp_path / name).write_bytes(content)
    soundfile.write(tmp_path / "short.wav", np.zeros(90), RATE)
    status, printed, shown = run(*words)
    assert status == 2 and printed == "" and fact in shown and "Traceback" not in shown


def test_a_model_without_ctc_is_refused(run, hearing):
    hearing.model.ctc_weight = 0.0
    status, _, shown = run("x.wav", "x.txt")
    assert status == 2 and "model.ctc_weight is 0" in shown
    with pytest.raises(asr.UserError, match="ctc_weight"):
        score_texts(hearing, [], [])
