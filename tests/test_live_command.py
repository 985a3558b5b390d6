"""Prove asr-decode --stream: files, pipes and microphones, what it writes, signals and mistakes; and its benchmark."""

import contextlib
import errno
import io
import itertools
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import time
import unicodedata
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pysubs2
import pytest
from refusals import refused
from small import each, rows, slow
from spoken import FINALS, HOW, RATE, TEXT, pcm, run, say

import asr
from asr.audio import live
from asr.audio.load import load
from asr.cli import decode as command
from asr.cli import live as live_command
from asr.cli.live import CLEAR, _into_files, _last, stopping
from asr.data.manifest import Utterance, read, write
from asr.formats import FormatOptions, Growing
from asr.scoring.error_rate import ErrorRate
from asr.scoring.significance import compare
from asr.transcript import Final
from asr.transcription.endpoints import EndpointOptions
from asr.transcription.streams import Streams
from scripts import soak_live as soak
from scripts.bench import live as bench


@pytest.fixture
def decode(folder, capsys, monkeypatch):
    """Run asr-decode --stream there; what it prints."""

    def decode(*arguments, stdin=None):
        if stdin is not None:
            buffer = io.BytesIO(stdin) if isinstance(stdin, bytes) else stdin
            monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=buffer))
        model = ["--model", str(folder / "model"), "--mode", "ctc", "--beam", "4"]
        command.main([*model, "--stream", *map(str, arguments)])
        return capsys.readouterr().out

    return decode


@pytest.fixture
def failed(decode, caplog):
    """Run it, which must fail; what it says."""

    def failed(*arguments, status=2, **more):
        with pytest.raises(SystemExit, match=f"^{status}$"):
            decode(*arguments, **more)
        return caplog.text

    return failed


def test_the_command_prints_what_is_final(folder, decode):
    assert decode(folder / "a.wav").splitlines() == FINALS
    named = decode(folder / "a.wav", folder / "b.flac").splitlines()
    for name in ("a.wav", "b.flac"):
        assert [line for line in named if name in line] == [f"{folder / name}\t{x}" for x in FINALS]
    assert decode("--raw", RATE, "-", stdin=pcm(say(TEXT)).tobytes()).splitlines() == FINALS


@each("more", [[], ["--format", "srt"]])
def test_joined_files_are_read_to_their_end(folder, tmp_path, decode, more):
    (tmp_path / "two.flac").write_bytes(2 * (folder / "b.flac").read_bytes())
    printed = decode(tmp_path / "two.flac", *more).splitlines()
    # 0.8 s of silence between the two don't end a segment
    expected = ["AB CDA", "EB D", "CC A EAB CDA", "EB D", "CC A E"]
    assert [line for line in printed if line[:1].isalpha()] == expected


def test_containers_are_decoded_by_ffmpeg(folder, decode):
    if not shutil.which("ffmpeg"):
        pytest.skip("ffmpeg isn't installed")
    convert = ["ffmpeg", "-v", "error", "-y", "-i", "b.flac", "-c:a", "flac", "b.mkv"]
    subprocess.run(convert, cwd=folder, check=True)
    assert decode(folder / "b.mkv").splitlines() == FINALS


MISTAKES = """
a.wav --channel all           | --channel: got all
a.wav a.wav                   | a.wav: given twice
a.wav --batch-seconds -1      | --batch-seconds: changes nothing with --stream
a.wav --vad silero            | --vad: changes nothing with --stream
a.wav --nbest 3 --format json | --nbest: changes nothing with --stream
a.wav --resume --out-dir o    | --resume: changes nothing with files
- --raw 8000 --resume         | --resume: changes nothing without --out-dir
- --raw 8000 --resume --out-dir o --format srt | --format: got srt with --resume, expected json
- --raw 8000 --resume --out-dir o --force | --resume and --force: give one
a.wav --max-line-width 30 --format tsv | --max-line-width: changes nothing without
a.wav --ctc-weight 0.5        | --ctc-weight: changes nothing in mode ctc
a.wav --lm-weight 0.5         | --lm-weight: changes nothing without --lm
- --raw 8000 --channel 0      | --channel: changes nothing without files
- --raw 8000 --realtime       | --realtime: changes nothing without files
a.wav --calibrate --json x    | doesn't go with --json, --calibrate
a.wav --raw 8000              | give - as the only FILE
- --raw 8                     | --raw: got 8 Hz
a.wav --mic                   | leave the files away
--beam 4                      | nothing to transcribe
model                         | is a folder
a.wav --format textgrid       | --format: got textgrid
a.wav b.flac --format srt     | --out-dir takes their files
none.wav                      | none.wav:
nan.wav                       | nan.wav: has NaN or infinite samples, the first at 1.500 s
-                             | isn't read as a sound file
a.wav --channel 3             | channel 3 was requested
a.wav --chunk 0.5             | --chunk: got 0.5
a.wav --chunk whole           | --chunk: got whole
a.wav --finals whole          | --finals: got whole, but the model was trained with chunks alone
a.wav --out-dir o --model none | none: no such model folder
"""


@each("words, said", rows(MISTAKES))
def test_mistakes_are_a_line_and_nothing_is_written(folder, monkeypatch, failed, words, said):
    monkeypatch.chdir(folder)
    assert said in failed(*words.split(), stdin=bytes(99)) and not (folder / "o").exists()


def test_json_has_an_event_on_each_line(folder, recognizer, decode):
    lines = [json.loads(x) for x in decode("--format", "json", folder / "a.wav").splitlines()]
    assert {line.pop("id") for line in lines} == {str(folder / "a.wav")}
    events = run(asr.stream(recognizer, **vars(HOW)), load(folder / "a.wav", RATE))
    assert lines == [json.loads(json.dumps(event.as_json())) for event in events]
    assert {"partial", "final"} == {line["type"] for line in lines}


def test_files_grow_by_whole_cues(folder, tmp_path, monkeypatch, decode):
    monkeypatch.chdir(folder)
    seen, from_file = [], live.from_file

    def portions(path, channel):
        for part in from_file(path, channel):
            yield part
            seen.append((tmp_path / "a.wav.srt").read_text())

    monkeypatch.setattr(live, "from_file", portions)
    decode("--out-dir", tmp_path, "--format", "srt,vtt,tsv,txt", "a.wav")
    for text in {text for text in seen if text}:
        assert text.endswith("\n") and len(pysubs2.SSAFile.from_string(text)) == text.count("-->")
    assert len(set(seen)) == 3  # nothing, one, two cues; the third comes with the end
    for kind in ("srt", "vtt"):
        cues = pysubs2.load(str(tmp_path / f"a.wav.{kind}"))
        assert [cue.text for cue in cues] == FINALS
        times = [time for cue in cues for time in (cue.start, cue.end)]
        assert times == sorted(times) and all(cue.duration for cue in cues)
    lines = (tmp_path / "a.wav.tsv").read_text().splitlines()
    assert [line.count("\t") for line in lines] == [2] * 4


def test_what_cannot_be_read_is_named_and_leaves_no_file(folder, tmp_path, monkeypatch, failed):
    monkeypatch.chdir(folder)
    names, out = ["a.wav", "none.wav", "a\tb.wav", os.fsdecode(b"\xff.wav")], tmp_path / "o"
    for name in names[2:]:
        shutil.copy("a.wav", name)
    for _ in range(2):  # its own files are known again
        text = failed("--out-dir", out, "--format", "txt,vtt", *names, status=3)
        for said in ("none.wav: no such", "control character (U+0009)", "isn't UTF-8 (byte 0xff)"):
            assert said in text
        assert {path.name for path in out.iterdir()} == {"a.wav.txt", "a.wav.vtt", ".formats"}
        assert (out / "a.wav.txt").read_text().splitlines() == FINALS
    (out / "b.flac.txt").write_text("by hand")
    assert "b.flac.txt: is there already" in failed("--out-dir", out, "b.flac")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_is_a_line(folder, tmp_path, monkeypatch, failed):
    from_file = live.from_file

    def filling(path, channel):
        for part in from_file(path, channel):
            (tmp_path / "full").unlink(missing_ok=True)
            (tmp_path / "full").symlink_to("/dev/full")
            os.replace(tmp_path / "full", tmp_path / "o/a.wav.txt")
            yield part

    monkeypatch.setattr(live, "from_file", filling)
    monkeypatch.chdir(folder)
    text = failed("--out-dir", tmp_path / "o", "a.wav")
    assert "a.wav.txt: can't be written (No space left on device)" in text


@pytest.mark.usefixtures("heeded")
@each("number", [signal.SIGINT, signal.SIGTERM])
@each("early", [False, True])
def test_a_signal_ends_a_pipe_after_what_has_come(decode, monkeypatch, number, early):
    """Nothing more comes, or all of it still waits in the pipe."""
    end, other = os.pipe()
    ready, asked = live.select.select, []

    def select(*arguments):
        found = ready(*arguments)
        if not asked and early == bool(found[0]):  # someone presses Ctrl-C
            asked.append(os.kill(os.getpid(), number))
        return found

    with open(end, "rb") as pipe, open(other, "wb", buffering=0) as writer:
        monkeypatch.setattr(live, "WAIT", 0.01)
        monkeypatch.setattr(live.select, "select", select)
        writer.write(pcm(say("--AB_CD--")).tobytes())  # less than a pipe holds
        assert decode("--raw", RATE, "-", stdin=pipe) == "AB CD\n"


def test_a_pipe_that_never_ends_is_left_after_a_signal(decode, monkeypatch):
    monkeypatch.setattr(live, "BACKLOG", 0.5)

    class Endless(Pipe):
        def read(self, size):
            if self.samples.tell() == 0:
                os.kill(os.getpid(), signal.SIGTERM)
            return self.samples.read(size) or bytes(size)

    assert decode("--raw", RATE, "-", stdin=Endless(say("A---------"))) == "A\n"


class Pipe:
    """A pipe that fails after some samples."""

    def __init__(self, waveform):
        self.samples = io.BytesIO(pcm(waveform).tobytes())

    def fileno(self):
        raise OSError

    def read(self, size):
        if block := self.samples.read(size):
            return block
        raise OSError(errno.EIO, "Input/output error")


def test_what_came_before_a_pipe_fails_is_final(failed, capsys):
    text = failed("--raw", RATE, "-", stdin=Pipe(say("--AB_CD--")))
    assert "standard input: can't be read on (Input/output error)" in text
    assert capsys.readouterr().out == "AB CD\n"


def test_a_signal_that_is_ignored_stays_so():
    """As for what a script runs in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stopping(asked := []):
            os.kill(os.getpid(), signal.SIGINT)
            assert asked == [] and signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded")
@each("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@each("at, unread", [(20, ["a.wav", "b.flac"]), (10**6, [])])
def test_a_signal_before_the_end_of_files_is_an_exit_status(
    folder, tmp_path, monkeypatch, decode, caplog, number, status, at, unread
):
    from_file = live.from_file

    def portions(path, channel):
        for n, part in enumerate(from_file(path, channel)):
            if path == "b.flac" and n == at:
                os.kill(os.getpid(), number)
            yield part
        if path == "b.flac" and at == 10**6:  # all has been read
            os.kill(os.getpid(), number)

    monkeypatch.chdir(folder)
    monkeypatch.setattr(live, "from_file", portions)
    with pytest.raises(SystemExit, match=f"^{status}$") if unread else contextlib.nullcontext():
        decode("--out-dir", tmp_path, "a.wav", "b.flac")
    assert all(name in caplog.text for name in unread)
    lines = (tmp_path / "b.flac.txt").read_text().splitlines()
    assert lines == (FINALS[:1] if unread else FINALS)  # 2 s have the first


RECORDED = "--raw", RATE, "-", "--format", "json,srt,txt", "--out-dir"


def test_what_cannot_be_recorded_again_is_not_replaced(decode, failed, tmp_path):
    def stdin(text):
        return pcm(say(text)).tobytes()

    decode(*RECORDED, tmp_path, stdin=stdin("-----"))  # nothing recognized: nothing is lost
    decode(*RECORDED, tmp_path, stdin=stdin(TEXT))
    text = failed(*RECORDED, tmp_path, stdin=stdin("--AB-----"))
    assert "-.json: has what was recorded earlier" in text
    assert (tmp_path / "-.txt").read_text().splitlines() == FINALS
    decode(*RECORDED, tmp_path, "--force", stdin=stdin("--AB-----"))
    assert (tmp_path / "-.txt").read_text() == "AB\n"


def test_a_recording_is_resumed_with_its_times_and_numbers(decode, recognizer, tmp_path):
    stdin = pcm(say(TEXT)).tobytes()
    for _ in range(2):  # nothing is there at first
        decode(*RECORDED, tmp_path, "--resume", stdin=stdin)
        with open(tmp_path / "-.json", "a") as file:
            file.write('{"id": "-", "type": "final')  # as if it had been killed within a line
    lines = (tmp_path / "-.json").read_text().splitlines()[:-1]
    first = [e for e in run(asr.stream(recognizer, **vars(HOW)), say(TEXT)) if isinstance(e, Final)]
    at = {"position": first[-1].position, "number": 3}
    second = run(asr.stream(recognizer, **at, **vars(HOW)), pcm(say(TEXT)))
    expected = [{"id": "-", **json.loads(json.dumps(e.as_json()))} for e in second]
    assert list(map(json.loads, lines))[-len(expected) :] == expected
    assert (tmp_path / "-.txt").read_text().splitlines() == 2 * FINALS
    text = (tmp_path / "-.srt").read_text()
    assert [int(x) for x in text.splitlines() if x.isdecimal()] == [1, 2, 3, 4, 5, 6]
    cues = pysubs2.SSAFile.from_string(text)
    times = [time for cue in cues for time in (cue.start, cue.end)]
    assert [cue.text for cue in cues] == 2 * FINALS and times == sorted(times)


def files_in(folder, kinds=("srt", "json", "vtt", "txt", "tsv", "ctm")):
    folder.mkdir()
    return {folder / f"x.{kind}": Growing(kind, "x", FormatOptions()) for kind in kinds}


def final_lines(content):
    return [line for line in content.splitlines() if b'"final"' in line]


def test_a_run_that_is_killed_between_two_writes_or_within_one_goes_on(
    recognizer, tmp_path, monkeypatch
):
    """Afterwards all files are those of a run that wasn't."""
    events = run(asr.stream(recognizer, **vars(HOW)), say(TEXT))
    writes, append = [], live_command.append_text

    def spy(path, text):
        writes.append((path.name, text.encode()))
        append(path, text)

    with monkeypatch.context() as patch:
        patch.setattr(live_command, "append_text", spy)
        write = _into_files(files_in(tmp_path / "whole"), resume=False)
        heads = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
        for event in events:
            write(event)
    whole = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
    assert len(final_lines(whole["x.json"])) == whole["x.srt"].count(b"-->") == 3
    for n, (name, text) in enumerate(writes):
        for size in {0, 1, len(text) // 2, len(text) - 1}:
            left = tmp_path / f"{n}-{size}"
            files = files_in(left)
            for other in heads:
                written = b"".join(text for name, text in writes[:n] if name == other)
                torn = text[:size] if name == other else b""
                (left / other).write_bytes(heads[other] + written + torn)
            known = len(final_lines((left / "x.json").read_bytes().rpartition(b"\n")[0]))
            write = _into_files(files, resume=True)
            for event in events:
                if isinstance(event, Final) and event.number >= known:
                    write(event)
            made = {path.name: path.read_bytes() for path in left.iterdir()}
            assert final_lines(made.pop("x.json")) == final_lines(whole["x.json"])
            assert made == {name: text for name, text in whole.items() if name != "x.json"}


def test_what_a_hand_has_changed_is_kept_and_a_new_format_has_all(recognizer, tmp_path):
    events = run(asr.stream(recognizer, **vars(HOW)), say(TEXT))
    write = _into_files(files_in(tmp_path / "x", ("json", "srt", "txt")), resume=False)
    for event in events[:-1]:
        write(event)
    changed = (tmp_path / "x/x.srt").read_text().replace("AB CDA", "A BCDA")
    (tmp_path / "x/x.srt").write_text(changed)
    with open(tmp_path / "x/x.txt", "a") as file:
        file.write("a note\n")
    more = {tmp_path / "x/x.vtt": Growing("vtt", "x", FormatOptions())}
    files = {
        path: Growing(path.suffix[1:], "x", FormatOptions()) for path in (tmp_path / "x").iterdir()
    }
    _into_files(files | more, resume=True)(events[-1])
    assert (tmp_path / "x/x.txt").read_text().splitlines() == [*FINALS[:2], "a note", FINALS[2]]
    srt, vtt = (pysubs2.load(str(tmp_path / f"x/x.{kind}")) for kind in ("srt", "vtt"))
    assert [cue.text for cue in srt] == ["A BCDA", *FINALS[1:]] and changed in (
        tmp_path / "x/x.srt"
    ).read_text()
    assert [cue.text for cue in vtt] == FINALS


@slow
def test_a_killed_process_and_one_that_goes_on_are_one_that_was_not(decode, folder, tmp_path):
    samples = pcm(say(TEXT))
    decode(*RECORDED, tmp_path / "whole", stdin=samples.tobytes())
    arguments = ["--model", folder / "model", "--mode", "ctc", "--beam", "4", "--stream"]
    asked = [sys.executable, "-m", "asr.cli.decode", *arguments, *RECORDED, tmp_path / "cut"]
    with subprocess.Popen(list(map(str, asked)), stdin=subprocess.PIPE) as process:
        process.stdin.write(samples[:-RATE].tobytes())
        process.stdin.flush()
        cut = tmp_path / "cut/-.txt"
        while not (cut.exists() and len(cut.read_text().splitlines()) == 2):
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
    final = json.loads(final_lines((tmp_path / "cut/-.json").read_bytes())[-1])
    rest = samples[round(final["position"] * RATE) :]
    decode(*RECORDED, tmp_path / "cut", "--resume", stdin=rest.tobytes())
    for kind in ("srt", "txt"):
        whole, cut = ((tmp_path / name / f"-.{kind}").read_text() for name in ("whole", "cut"))
        assert cut == whole
    lines = (final_lines((tmp_path / name / "-.json").read_bytes()) for name in ("whole", "cut"))
    assert next(lines) == next(lines)


@each("option, value", [("end_silence", 3.0), ("no_speech", 0.6), ("longest", 1.5)])
def test_the_command_knows_the_options_of_endpoints(folder, recognizer, decode, option, value):
    words = [f"--{option.replace('_', '-')}", value]
    made = decode("--format", "json", *words, folder / "a.wav").splitlines()
    lines = [{**json.loads(line), "id": ""} for line in made]
    found = []
    for how in (EndpointOptions(**{option: value}), EndpointOptions()):
        events = run(Streams(recognizer, HOW, how).open(), load(folder / "a.wav", RATE))
        found.append([{"id": "", **json.loads(json.dumps(e.as_json()))} for e in events])
    assert lines == found[0] != found[1]


def test_real_time_is_what_has_been_read(folder, decode, monkeypatch):
    now, slept = [100.0], []
    monkeypatch.setattr(live.time, "monotonic", lambda: now[0])

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds + 0.01  # other work

    monkeypatch.setattr(live.time, "sleep", sleep)
    assert decode("--realtime", folder / "a.wav").splitlines() == FINALS
    seconds = 0.2 * len(TEXT)
    assert len(slept) > 10 and seconds < now[0] - 100 < seconds + 0.02


def test_a_damaged_event_to_resume_from_is_a_mistake(decode, failed, tmp_path):
    stdin = pcm(say("--AB-----")).tobytes()
    decode(*RECORDED, tmp_path, stdin=stdin)
    (tmp_path / "-.json").write_text('{"type": "final"}\n')
    assert "-.json: its last final event is damaged" in failed(
        *RECORDED, tmp_path, "--resume", stdin=stdin
    )


FILL = """
import resource, signal, sys
from asr.errors import UserError
from asr.files import append_text
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
try:
    for _ in range(3):
        append_text(sys.argv[1], "12345\\n")
except UserError as error:
    print(error)
"""


def test_a_full_disk_leaves_no_half_of_a_cue(tmp_path):
    pytest.importorskip("resource")
    command = [sys.executable, "-c", FILL, tmp_path / "x.srt"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "x.srt: can't be written" in said and (tmp_path / "x.srt").read_text() == "12345\n"


@each("content", [b"", b"\0"])
def test_a_pipe_without_samples_is_a_mistake(failed, content):
    text = failed("--raw", RATE, "-", stdin=content)
    assert "standard input: has no samples" in text


def test_a_terminal_shows_partials_in_place(folder, decode, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    shown = decode(folder / "a.wav")
    assert [line.split(CLEAR)[-1] for line in shown.split("\n")[:-1]] == FINALS
    assert f"{CLEAR}AB{CLEAR}" in shown


@each("text", ["AB CDA EB D", "今天天气很好AB", "が" * 9, "e\u0301" * 9, ""])
@each("width", [0, 1, 5, 8, 80])
def test_the_end_of_a_partial_result_fits_into_a_line(text, width):
    def columns(text):
        wide = sum(unicodedata.east_asian_width(x) == "W" for x in text)
        return len(text) + wide - sum(unicodedata.combining(x) > 0 for x in text)

    shown = _last(text, width)
    assert text.endswith(shown) and columns(shown) <= width
    assert shown == text or columns(text[-len(shown) - 1 :]) > width


@pytest.mark.usefixtures("heeded")
@each("early", [False, True])
def test_a_microphone_is_read_until_it_is_stopped(decode, monkeypatch, caplog, early):
    """All has been read, or most of it waits for a reader that is slower than it."""
    asked = []

    class Heard(queue.Queue):
        def get(self, block=True, timeout=0.01):
            if not asked and (early or self.empty()):  # someone presses Ctrl-C
                asked.append(os.kill(os.getpid(), signal.SIGINT))
            return super().get(block, 0.01)

    fake = FakeDevice(say(TEXT, rate=44100), 44100)
    monkeypatch.setattr(live.queue, "Queue", Heard)
    monkeypatch.setitem(sys.modules, "sounddevice", fake)
    assert decode("--mic").splitlines() == FINALS
    assert fake.closed and "lost, 1 times" in caplog.text


@pytest.mark.usefixtures("heeded")
@each("words, expected", [(["3"], 3), (["USB"], "USB"), ([], None)])
def test_a_microphone_has_a_number_or_a_name(decode, monkeypatch, words, expected):
    asked = []

    class Named(FakeDevice):
        def query_devices(self, device, kind):
            asked.append(device)
            return super().query_devices(None, kind)

        def InputStream(self, rate, size, device, *more, **callback):  # noqa: N802
            asked.append(device)
            return super().InputStream(rate, size, None, *more, **callback)

    class Heard(queue.Queue):
        def get(self, block=True, timeout=0.01):
            if self.empty():  # someone presses Ctrl-C
                os.kill(os.getpid(), signal.SIGINT)
            return super().get(block, 0.01)

    monkeypatch.setattr(live.queue, "Queue", Heard)
    monkeypatch.setitem(sys.modules, "sounddevice", Named(say("--AB-----"), RATE))
    assert decode("--mic", *words) == "AB\n" and asked == [expected, expected]


@each("known", [True, False])
def test_a_microphone_that_is_unplugged_ends_with_a_mistake(failed, monkeypatch, capsys, known):
    class Unplugged(FakeDevice):
        @property
        def active(self):
            if known:
                return False
            raise self.PortAudioError("no such stream")  # its driver has forgotten it

    fake = Unplugged(say(TEXT), RATE)
    monkeypatch.setattr(live, "WAIT", 0.01)
    monkeypatch.setitem(sys.modules, "sounddevice", fake)
    assert "--mic: the default microphone: has stopped" in failed("--mic")
    assert fake.closed and capsys.readouterr().out.splitlines() == FINALS


def test_a_microphone_that_is_faster_than_its_reader_loses_samples(monkeypatch, caplog):
    monkeypatch.setattr(live, "BACKLOG", 0.5)
    monkeypatch.setattr(live, "WAIT", 0.01)
    fake = FakeDevice(say("-----"), RATE)  # ten blocks at once
    fake.active = False
    monkeypatch.setitem(sys.modules, "sounddevice", fake)
    portions = live.from_microphone()
    assert [len(samples) for samples, _ in itertools.islice(portions, 5)] == 5 * [RATE // 10]
    refused("has stopped", next, portions)
    assert "lost, 5 times" in caplog.text and "lost, 6 times" not in caplog.text


def test_a_microphone_that_does_not_start_is_a_mistake(failed, monkeypatch):
    class Busy(FakeDevice):
        def __enter__(self):
            raise self.PortAudioError("busy")

    monkeypatch.setitem(sys.modules, "sounddevice", Busy(say("A"), RATE))
    assert "--mic: the default microphone: busy" in failed("--mic")


@pytest.fixture(scope="module")
def listed(folder):
    """A model, and a manifest of one recording, with the text that it has."""
    samples, path = len(say(TEXT)), folder / "a.jsonl.gz"
    text, sound = " ".join(FINALS), str(folder / "a.wav")
    write(path, [Utterance("a", sound, RATE, samples, 1, 0.0, samples / RATE, text, "s")])
    return [str(folder / "model"), str(path)]


def test_the_benchmark_tells_errors_and_delays(listed, tmp_path):
    words = ["--mode", "ctc", "--beside", listed[0], "--json", f"{tmp_path}/x.json"]
    bench.main(["quality", *listed, *words])
    figures = json.loads((tmp_path / "x.json").read_text())
    live, whole = figures["0.16"], figures["whole"]
    assert live["wer"] == 0 and live["changed"] < 0.5 and whole["above_beside"] == [0, 0, 0]
    assert live["above_whole"][0] == pytest.approx(-whole["wer"])
    assert -0.5 < live["word_seconds"][0] < live["final_seconds"][0] < 3


def test_the_benchmark_counts_the_same_of_streams_together(listed, tmp_path):
    """Of recordings of several lengths; one alone has times, too."""
    [u] = read(listed[1])
    parts = [replace(u, id=f"{n}", duration=u.duration * n / 5) for n in range(1, 6)]
    write(tmp_path / "parts.jsonl.gz", parts)
    told = []
    for together in "1", "3":
        words = "--mode", "ctc", "--together", together, "--json", f"{tmp_path}/x.json"
        bench.main(["quality", listed[0], f"{tmp_path}/parts.jsonl.gz", *words])
        told.append(json.loads((tmp_path / "x.json").read_text())["0.16"])
    alone, crowd = told
    assert crowd == {name: alone[name] for name in ("wer", "above_whole", "changed")}
    assert 0 < crowd["wer"] < 1


def test_the_benchmark_compares_recordings_over_several_models():
    one = [ErrorRate(n, 3, n % 4, 1) for n in range(20)]
    other = [ErrorRate(a.reference - 1, 1, 0, 2) for a in one]
    twice = bench.Seen([one, one]).above(bench.Seen([other] * 3))
    assert twice == compare(one, other) and twice.low < twice.value < twice.high


def test_the_benchmark_joins_recordings(listed, tmp_path):
    [u] = read(listed[1])
    joined = bench.joined([u, u, u], 2 * u.duration + bench.PAUSE, RATE, tmp_path)
    assert list(joined.values()) == [f"{u.text} {u.text}", u.text]
    twice, once = (load(path, RATE) for path in joined)
    assert len(twice) == 2 * len(once) + bench.PAUSE * RATE and (twice[-len(once) :] == once).all()


@slow
def test_minutes_of_a_stream_take_no_more_than_the_first(listed, capsys):
    soak.main([*listed, "--hours", "0.34", "--minutes", "0.1"])
    table = [line.split("\t") for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[0] for row in table] == ["10", "20"]
    assert float(table[1][1]) < float(table[0][1]) + 20  # MB
    assert all(int(row[3]) > 100 and float(row[5]) < 0.2 for row in table)


class FakeDevice:
    """The package sounddevice: a microphone that hears a waveform."""

    PortAudioError = RuntimeError
    active = True

    def __init__(self, waveform, rate):
        self.waveform, self.rate, self.closed = waveform, rate, False

    def query_devices(self, device, kind):
        assert device is None and kind == "input"
        return {"default_samplerate": float(self.rate)}

    def InputStream(self, rate, size, device, channels, dtype, callback):  # noqa: N802
        assert (rate, device, channels, dtype) == (self.rate, None, 1, "float32")
        self.size, self.callback = size, callback
        return self

    def __enter__(self):
        cuts = range(self.size, len(self.waveform), self.size)
        for n, part in enumerate(np.split(self.waveform, cuts)):
            self.callback(part[:, None], len(part), None, SimpleNamespace(input_overflow=n == 5))

    def __exit__(self, *_):
        self.closed = True
