"""What asr-decode is given: patterns, lists, raw samples on a pipe, channels, containers that ffmpeg reads.

Expected texts are those of the same samples in a wav file, decoded alone; expected samples are those that were written.
"""

import io
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from matplotlib.image import imread
from refusals import refused
from runs import status_of
from small import each, options, rows
from spoken import RATE, say, write_folder

import asr
from asr.audio import containers
from asr.audio import load as audio
from asr.audio.pcm import spooled
from asr.cli import decode, plot
from asr.data import manifest
from asr.transcript import Transcript
from asr.transcription.recordings import find_readable, matching, read_list

NEEDS_FFMPEG = pytest.mark.skipif(not shutil.which("ffmpeg"), reason="ffmpeg isn't installed")
KINDS = ["m4a", "mp4", "mov", "webm", "mkv", "wma", "aac"]
FFMPEG = ["ffmpeg", "-nostdin", "-v", "error", "-y", "-i"]


@pytest.fixture(scope="module")
def model(recognizer, tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("spoken"), recognizer) / "model"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """a.wav, b.wav in calls/ and calls/deep/; stereo.wav has one in each channel."""
    sides = [say(sounds)[: RATE // 2] for sounds in ("AB-", "DC-")]
    monkeypatch.chdir(tmp_path)
    os.makedirs("calls/deep")
    for name, wave in zip(("calls/a.wav", "calls/deep/b.wav"), sides, strict=True):
        soundfile.write(name, wave, RATE)
    soundfile.write("stereo.wav", np.stack(sides, 1), RATE)
    return tmp_path


@pytest.fixture
def run(model, folder, capsys, monkeypatch):
    """Run asr-decode with something on stdin; its exit status, texts by id, and messages."""

    def run(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        how = "--model", model, "--device", "cpu", "--mode", "ctc-greedy"
        status = status_of(decode.main, *how, *arguments)
        out, err = capsys.readouterr()
        return status, dict(line.split("\t") for line in out.splitlines()), err

    return run


# --- formats


def test_formats_replace_their_own_files_alone(folder, run):
    """Also where the transcripts are up to date."""

    def formats(kinds, *more):
        return run("calls/a.wav", "--out-dir", "o", "--format", kinds, *more)

    assert formats("txt")[0] == 0
    mine, made = folder / "o/calls/a.wav.srt", folder / "o/calls/a.wav.txt"
    mine.write_text("by hand")
    text = made.read_text()
    status, _, err = formats("txt,srt")
    assert status == 2 and "o/calls/a.wav.srt: is there already" in err
    assert mine.read_text() == "by hand"
    made.write_text("changed")
    assert formats("txt")[0] == 0 and made.read_text() == text
    assert formats("txt,srt", "--force")[0] == 0 and mine.read_text() != "by hand"
    mine.write_text("changed")
    assert formats("srt")[0] == 0 and mine.read_text() != "changed"
    soundfile.write("calls/a.wav", np.zeros(RATE), RATE)  # all is made anew, of its own files
    assert formats("txt,srt")[0] == 0 and made.read_text() != text


@each("out", [("--out-dir", "calls/o", "--format", "txt"), ("--out", "calls/o")])
def test_an_output_within_the_input_s_folder_repeats_nothing(run, out):
    assert "RTF" in run("calls", *out)[2]
    status, _, err = run("calls", *out)
    assert status == 0 and "up to date" in err and "RTF" not in err
    soundfile.write("calls/a.wav", np.zeros(RATE), RATE)
    assert "RTF" in run("calls", *out)[2]


def test_formats_of_parts_are_written_when_they_are_joined(folder, run):
    how = "calls/a.wav", "--out-dir", "o", "--format", "txt"
    made = folder / "o/calls/a.wav.txt"
    assert run(*how, "--part", "1/1")[0] == 0 and not made.exists()
    made.parent.mkdir(parents=True)
    made.write_text("by hand")
    assert run(*how, "--join", "1")[0] == 2 and made.read_text() == "by hand"
    assert run(*how, "--join", "1", "--force")[0] == 0 and made.read_text() != "by hand"


# --- patterns and lists


PATTERNS = """
calls/*.wav    | calls/a.wav
calls/**/*.wav | calls/a.wav calls/deep/b.wav
calls/**       | calls/a.wav calls/deep/b.wav
calls/*        | calls/a.wav calls/deep
[x].wav        | [x].wav
none.wav       | none.wav
"""


@each("pattern, names", rows(PATTERNS))
def test_patterns_name_what_a_shell_would(folder, pattern, names):
    """Of two there are no other files than the one of that name, or none."""
    (folder / "[x].wav").touch()
    (folder / "calls/.hidden.wav").touch()
    assert matching(pattern) == names.split()


@each("content", ["{a}\n{b}", "{a}\r\n\r\n{b}\r\n", "{a}\0{b}\0"])
@each("piped", [True, False])
def test_lists_are_as_if_their_files_were_given(folder, run, content, piped):
    odd = "calls/odd [1]* name.wav" + "\n.wav" * ("\0" in content)
    shutil.copy("calls/a.wav", odd)
    raw = content.format(a="calls/deep/b.wav", b=odd).encode()
    (folder / "list").write_bytes(raw)
    names = read_list("list")
    assert names == ["calls/deep/b.wav", odd]
    if "\n" not in odd:  # which no id can hold
        expected = run("calls/deep/b.wav", "calls/a.wav")[1]
        _, texts, _ = run("--list", "-" if piped else "list", stdin=raw)
        assert texts == dict(zip(names, expected.values(), strict=True))


def test_outputs_of_patterns_and_lists_are_current_until_a_file_changes(folder, run):
    (folder / "list").write_text("stereo.wav\n")
    given = ["calls/**/*.wav", "--list", "list", "--out", "o.txt"]
    assert run(*given)[0] == 0
    assert "o.txt is up to date" in run(*given)[2]
    for change in ("calls/deep/c.wav", "stereo.wav"):  # another, and another content
        soundfile.write(change, np.zeros(RATE), RATE)
        assert "up to date" not in run(*given)[2]
        assert change in (folder / "o.txt").read_text()


# --- raw samples


@each("rate", [RATE, 2 * RATE])
def test_raw_samples_give_the_text_of_their_wav(folder, run, rate):
    wave = soundfile.read("calls/a.wav", dtype="int16")[0]
    soundfile.write("x.wav", wave, rate)
    _, expected, _ = run("x.wav")
    status, texts, _ = run("--raw", str(rate), "-", stdin=wave.tobytes())
    assert (status, texts) == (0, {"-": expected["x.wav"]}) and (texts["-"] or rate != RATE)
    for _ in range(2):  # never taken for finished: what comes is another recording
        assert run("--raw", str(rate), "-", "--json", "o", stdin=wave.tobytes())[2].count("RTF")
    assert json.loads((folder / "o").read_text())["id"] == "-"


def test_raw_samples_are_kept_exactly_in_blocks_of_any_size(monkeypatch):
    wave = np.random.default_rng(2).integers(-(2**15), 2**15, 10_001).astype("<i2")
    monkeypatch.setattr("asr.audio.pcm.BLOCK", 777)  # odd
    with spooled(io.BytesIO(wave.tobytes()), RATE) as path:
        assert np.array_equal(audio.load(path, RATE) * 2**15, wave)
    assert not os.path.exists(path)


# --- channels


def test_channels_give_the_texts_of_their_own_files(run):
    """By number, and all; files of one channel have that; what lacks the channel is named."""
    _, alone, _ = run("calls")
    a, b = alone.values()
    assert a != b
    assert run("stereo.wav", "--channel", "0")[1] == {"stereo.wav": a}
    assert run("stereo.wav", "--channel", "mean")[1] == run("stereo.wav")[1]
    _, texts, _ = run("stereo.wav", "calls/a.wav", "--channel", "all")
    assert texts == {"stereo.wav#0": a, "stereo.wav#1": b, "calls/a.wav#0": a}
    status, texts, err = run("stereo.wav", "calls/a.wav", "--channel", "1")
    assert (status, texts) == (3, {"stereo.wav": b})
    assert "calls/a.wav: has 1 channel, counted from 0; channel 1 was requested" in err


# the option | what fails | what is read, and its channel
CHANNELS = """
channel: null |   | a:None b:1
channel: 0    |   | a:0 b:1
channel: all  |   | a#0:0 a#1:1 b:1
channel: 2    | a | b:1
"""


@each("option, failed, read", rows(CHANNELS))
def test_a_manifest_keeps_the_channels_that_it_names(folder, option, failed, read):
    first = manifest.Utterance("a", "stereo.wav", RATE, 4000, 2, 0.0, 0.5, "X")
    manifest.write(folder / "m.jsonl.gz", [first, replace(first, id="b", channel=1)])
    recordings, failures = find_readable([], ["m.jsonl.gz"], **options(option))
    assert [f.id for f in failures] == failed.split()
    assert [f"{r.id}:{r.channel}" for r in recordings] == read.split()


# --- containers


def convert(name, *more):
    """Make a container of stereo.wav."""
    subprocess.run([*FFMPEG, "stereo.wav", *more, name], check=True)
    return name


@NEEDS_FFMPEG
def test_an_index_may_stand_far_behind(folder):
    noise = np.random.default_rng(0).integers(-9999, 9999, 200_000, np.int16)
    soundfile.write("stereo.wav", noise, RATE)
    name = convert("far.m4a", "-c:a", "alac")  # 0.3 MB; the index follows the samples
    with containers.decoding():
        heard = audio.load(name, RATE)
    np.testing.assert_array_equal(heard, noise / np.float32(32768))


@NEEDS_FFMPEG
@each("kind", KINDS)
def test_containers_have_the_samples_that_ffmpeg_writes(folder, run, kind, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    name = convert(f"./-x y.{kind}" if kind != "mov" else "calls/z.mov")
    subprocess.run([*FFMPEG, name, "-c:a", "pcm_s16le", "theirs.wav"], check=True)
    expected, rate = soundfile.read("theirs.wav", dtype="float32")
    with containers.decoding() as kept:
        heard = [audio.load(name, rate, channel=n) for n in (0, 1)]
        assert audio.info(name).samples == len(expected) and len(os.listdir(kept)) == 1
    np.testing.assert_array_equal(np.stack(heard, 1), expected)
    if kind == "mov":  # within a folder that is searched
        soundfile.write("calls/theirs.wav", expected, rate)
        _, texts, _ = run("calls", "--channel", "0")
        assert texts["calls/z.mov"] == texts["calls/theirs.wav"]
    assert os.listdir(tmp_path / "temporary") == []
    refused("convert it: ffmpeg", audio.info, name)


@NEEDS_FFMPEG
def test_decoded_files_go_when_they_take_too_much_and_come_back(folder, monkeypatch):
    """The one that was used longest ago goes first, and none that was just used."""
    names, levels = [f"{n}.m4a" for n in range(3)], (0.25, 0.5, 0.75)
    for name, level in zip(names, levels, strict=True):
        soundfile.write("stereo.wav", np.full(1000, level), RATE)
        convert(name, "-c:a", "alac")
    with containers.decoding() as kept:
        monkeypatch.setattr(containers, "KEPT", 0)
        monkeypatch.setattr(containers, "SEEN_TO", 0)
        first, second = [containers.decoded(Path(name)) for name in names[:2]]
        assert len(os.listdir(kept)) == 2  # both were just used
        monkeypatch.setattr(containers, "KEPT", 2 * first.stat().st_size)
        monkeypatch.setattr(containers, "IN_USE", 0.0)
        os.utime(first, (1, 1))
        os.utime(second, (2, 2))
        assert containers.decoded(Path(names[0])) == first  # which is another use
        third = containers.decoded(Path(names[2]))
        assert {*os.listdir(kept)} == {first.name, third.name}
        heard = [audio.load(name, RATE) for name in names]
    for wave, level in zip(heard, levels, strict=True):
        np.testing.assert_array_equal(wave, np.full(1000, level))


@NEEDS_FFMPEG
def test_python_reads_containers_as_their_sound(folder, recognizer):
    name = convert("./a.m4a", "-c:a", "alac")
    how = {"mode": "ctc-greedy"}
    expected = asr.transcribe(recognizer, "stereo.wav", **how)
    assert expected.text
    assert asr.transcribe(recognizer, name, **how).text == expected.text
    assert [t.text for t in asr.transcribe_all(recognizer, [name], **how)] == [expected.text]
    lines = [asr.align(recognizer, path, expected.text) for path in (name, "stereo.wav")]
    assert lines[0].segments == lines[1].segments


@NEEDS_FFMPEG
def test_a_container_is_plotted_as_its_sound(folder, model, capsys):
    heard = []
    for name in ("stereo.wav", convert("a.m4a", "-c:a", "alac")):
        picture = f"{name}.png"
        how = "--model", model, name, "--mode", "ctc-greedy", "--out", picture
        assert status_of(plot.main, *how) == 0
        heard.append(capsys.readouterr().out.removeprefix(f"{name}\t"))
        assert min(imread(picture).shape[:2]) > 200  # pixels
    assert heard[0] == heard[1] != "\n"


@NEEDS_FFMPEG
def test_damage_and_tricks_in_containers_are_named(folder, run, tmp_path):
    """Cut files; what has no sound; lists that would have ffmpeg open other files, whatever their names."""
    whole = (folder / convert("whole.m4a", "-movflags", "+faststart")).read_bytes()
    mute = ["-f", "lavfi", "-i", "color=size=16x16:duration=0.1", "mute.mp4"]
    subprocess.run([*FFMPEG[:-1], *mute], check=True)
    stereo = f"{folder}/stereo.wav".encode()
    playlist = b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nfile://%b\n" % stereo
    unreadable = "ffmpeg can't read it (exit status"
    cases = {
        "half.m4a": (whole[: len(whole) // 2], "truncated (ffmpeg: "),
        "head.m4a": (whole[:64], unreadable),
        "mute.mp4": ((folder / "mute.mp4").read_bytes(), unreadable),
        "list.mp4": (playlist, "is text"),
        "concat.mkv": (b"ffconcat version 1.0\nfile '%b'\n" % stereo, "is text"),
        "hidden.mp4": (b"\0\0\0\x08ftyp" + playlist, unreadable),
    }
    for name, (content, _) in cases.items():
        (folder / name).write_bytes(content)
    status, texts, err = run("calls/a.wav", *cases)
    assert status == 3 and texts.keys() == {"calls/a.wav"}
    assert all(f"{name}: {reason}" in err for name, (_, reason) in cases.items())


@NEEDS_FFMPEG
def test_limits_of_time_and_size_end_ffmpeg(run, monkeypatch):
    convert("x.m4a")
    for limit, value, fact in (
        ("BYTES", 999, "has .* when it is decoded"),
        ("SECONDS", 0.0, "ffmpeg .*took more"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(containers, limit, value)
            status, _, err = run("x.m4a")
        assert status == 2 and re.search(f"x.m4a: {fact}", err) and err.count("\n") == 1


def test_without_ffmpeg_a_container_says_to_install_it(folder, run, monkeypatch):
    (folder / "x.m4a").write_bytes(b"\0\0\0\x18ftypM4A ")
    monkeypatch.setenv("PATH", str(folder))
    status, _, err = run("x.m4a")
    assert status == 2 and "x.m4a: " in err and "install it (apt-get install ffmpeg" in err


def test_a_later_version_of_a_transcript_is_refused(folder, run):
    run("calls/a.wav", "--json", "o")
    line = json.loads((folder / "o").read_text())
    assert line["version"] == 1 and Transcript.of_json(line).text == line["text"]
    del line["version"]  # written before there was one
    assert Transcript.of_json(line).id == "calls/a.wav"
    refused("a.wav: .* version 2, this toolkit reads 1", Transcript.of_json, line | {"version": 2})


# on standard input | the command's words | what is said
REFUSED = """
RIFF....WAVE | --raw 8000 -                   | arecord -t raw
             | --raw 8000 -                   | has no samples
x            | --raw 8000 -                   | has no samples
xy           | --raw 8000 -                   | too short
xy           | --raw 7 -                      | --raw: got 7 Hz
xy           | --raw 8000 stereo.wav          | give - as the only FILE
xy           | --raw 8000 - stereo.wav        | give - as the only FILE
             | --list -                       | no paths
             | --list empty                   | no paths
             | --list no                      | no such
             | --list list --out list --force | is an input
             | calls/*.mp9                    | calls/*.mp9: names no file
             | {A} --out o/{A}.txt --out-dir o --format txt | {A}.txt is named by --out or --json, too
             | {A} --json o/{A}.json --out-dir o --format json | {A}.json is named by --out
"""


@each("stdin, words, fact", rows(REFUSED.replace("{A}", "calls/a.wav")))
def test_what_cannot_be_decoded_or_written_is_refused_in_a_line(folder, run, stdin, words, fact):
    (folder / "empty").write_text("\n \n")
    (folder / "list").write_text("stereo.wav\n")
    for _ in range(2):
        status, texts, err = run(*words.split(), stdin=stdin.encode())
        *loaded, line = err.splitlines()
        assert (status, texts) == (2, {}) and fact in line
        assert bool(loaded) == (fact == "too short")  # as the model's frames are
