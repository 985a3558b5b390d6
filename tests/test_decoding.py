"""Decoding by whole commands: bad recordings lose no others, and what is finished is never done again.

Expected texts are those of an undisturbed decoding; which recordings are searched again is counted.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from math import inf
from operator import length_hint
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import soundfile
import torch
from partly import partly
from refusals import refused
from runs import end, in_group, status_of, train
from small import each, rows, slow
from tones import RATE

from asr.audio import load as audio
from asr.cli import decode, info
from asr.data import manifest
from asr.models.recognizer import load
from asr.nn.encoder import WHOLE
from asr.transcription import pipeline
from asr.transcription.encoding import encode
from asr.transcription.recordings import Recording, find, find_readable, in_order

COUNT, JOURNAL = 12, ".o.txt.journal"


@pytest.fixture
def folder(ready, tmp_path, monkeypatch):
    """The current folder, with recordings in wavs/."""
    monkeypatch.chdir(tmp_path)
    os.mkdir("wavs")
    for n in range(COUNT):
        shutil.copy(ready / f"corpus/train{n:03d}.wav", "wavs")


@pytest.fixture
def given(ready):
    """What all decodings are given."""
    return ["--model", str(ready / "model"), "--device", "cpu", "--mode", "ctc-greedy"]


@pytest.fixture
def run(given, folder, capsys):
    """Run asr-decode with more words; its exit status, what it printed, and what it said."""

    return lambda words: (status_of(decode.main, *given, *words.split()), *capsys.readouterr())


@pytest.fixture
def expected(run):
    """What an undisturbed decoding prints."""
    return run("wavs")[1]


@pytest.fixture
def meanwhile(monkeypatch):
    """Have something happen before each batch is encoded."""
    encode = pipeline.encode

    def do(action):
        made = lambda model, waves, *more: action(waves) or encode(model, waves, *more)  # noqa: E731
        monkeypatch.setattr(pipeline, "encode", made)

    return do


@pytest.fixture
def searched(meanwhile):
    """Count, from when it is called, how many recordings are encoded, call by call."""

    def counting():
        calls = []
        meanwhile(lambda waveforms: calls.append(len(waveforms)))
        return calls

    return counting


@pytest.fixture
def stop(run, meanwhile):
    """Stop a decoding at its third batch; what it said."""

    def stop(words=""):
        meanwhile(mock.Mock(side_effect=[None, None, KeyboardInterrupt]))
        status, _, err = run(f"wavs --batch-seconds 1 {words}")
        assert status == 130
        return err

    return stop


def read(name):
    return Path(name).read_text()


def kept():
    return read(JOURNAL).count("\n") - 1


def left():
    """Files that aren't those of the fixture."""
    return sorted({*os.listdir()} - {"wavs"})


@slow
def test_the_end_says_where_bf16_would_be_faster(run, monkeypatch):
    for native in (False, True):
        monkeypatch.setattr("asr.device.has_bf16", lambda native=native: native)
        assert ("--precision bf16" in run("wavs")[2]) == native
    assert "--precision bf16" not in run("wavs --precision bf16")[2]


def ids(text):
    return [line.split("\t")[0] for line in text.splitlines()]


# --- bad recordings


def test_bad_recordings_are_named_and_listed_and_the_rest_is_done(run, expected):
    reasons = {
        "wavs/empty.wav": "is empty",
        "wavs/nan.wav": "NaN or infinite samples",
        "wavs/a\\tb.wav": "U+0009",
        "no.wav": "no such file",
    }
    Path("wavs/empty.wav").touch()
    soundfile.write("wavs/nan.wav", np.append(np.zeros(4000), np.nan), RATE, subtype="FLOAT")
    shutil.copy("wavs/train000.wav", "wavs/a\tb.wav")
    status, out, err = run("wavs no.wav")
    assert (status, out) == (3, expected)
    assert f"4 of {COUNT + 4} recordings could not be transcribed" in err
    status, out, err = run("wavs no.wav --out o.txt --json o.json")
    assert (status, out, read("o.txt")) == (3, "", expected)
    assert [json.loads(line)["id"] for line in read("o.json").splitlines()] == ids(expected)
    header, *failed = read("o.txt.failed.tsv").splitlines()
    assert header == "id\tpath\treason" and len(failed) == len(reasons)
    for name, reason in reasons.items():
        assert name in err and any(name in row and reason in row for row in failed)


def test_mended_recordings_are_done_alone_and_the_list_goes(run, searched, expected):
    shutil.move("wavs/train003.wav", "good")
    Path("wavs/train003.wav").touch()
    calls = searched()
    for _ in range(2):  # the second time without a new search
        assert run("wavs --out o.txt")[0] == 3 and sum(calls) == COUNT - 1
    shutil.copy("good", "wavs/train003.wav")
    assert run("wavs --out o.txt")[0] == 0 and sum(calls) == COUNT
    assert read("o.txt") == expected
    assert left() == [".o.txt.stamp.json", "good", "o.txt"]
    assert "o.txt is up to date" in run("wavs --out o.txt")[2]


def test_where_nothing_can_be_done_it_is_a_mistake(run):
    Path("a.wav").touch()
    status, out, err = run("a.wav")
    assert (status, out) == (2, "") and err.count("\n") == 1 and "a.wav: is empty (0 bytes)" in err
    status, out, err = run("a.wav no.wav --out o.txt")
    assert (status, out) == (2, "") and "none of 2 recordings could be transcribed" in err
    assert left() == ["a.wav", "o.txt.failed.tsv"]


def test_python_callers_get_failures_or_the_error(folder):
    Path("bad.wav").touch()
    Path("nothing").mkdir()
    recordings, failures = find_readable(["wavs", "bad.wav"])
    assert len(recordings) == COUNT and [failed.id for failed in failures] == ["bad.wav"]
    for name, fact in (("bad.wav", "is empty"), ("nothing", "this folder")):
        refused(f"{name}: {fact}", find, ["wavs", name])


def out_of_memory(samples, batch):
    """Memory ends at recordings of more samples, or at batches of more recordings."""

    def check(waveforms):
        if max(map(len, waveforms)) > samples or len(waveforms) > batch:
            raise torch.OutOfMemoryError("no")

    return check


def test_what_is_too_long_for_memory_is_a_failure_and_the_rest_is_done(run, meanwhile, expected):
    sizes = {name: soundfile.info(name).frames for name in ids(expected)}
    *short, _, _ = sorted(sizes, key=sizes.get)
    meanwhile(out_of_memory(sizes[short[-1]], inf))
    status, out, err = run("wavs")
    assert status == 3 and set(expected.splitlines()) > set(out.splitlines())
    assert sorted(ids(out)) == sorted(short)
    assert all(f"{name}: out of memory at" in err for name in sizes.keys() - short)


def test_a_batch_that_does_not_fit_is_done_one_by_one(run, meanwhile, expected):
    meanwhile(out_of_memory(inf, 1))
    assert run("wavs")[:2] == (0, expected)


def test_tuning_that_does_not_fit_in_memory_says_what_helps(ready, run, meanwhile):
    meanwhile(out_of_memory(0, 0))
    status, _, err = run(f"--mode joint --manifest {ready}/data/dev.jsonl.gz --tune beam=2")
    assert status == 2 and "out of memory; " in err and "--batch-seconds or --beam" in err


def test_recordings_far_longer_than_those_of_training_are_told(ready, run):
    heard = max(u.duration for u in manifest.read(ready / "data/train.jsonl.gz"))
    for name, seconds in (("a", 1.4 * heard), ("b", 1.6 * heard)):
        soundfile.write(f"{name}.wav", np.zeros(int(seconds * RATE)), RATE)
    said = (
        f"1 recordings of up to {1.6 * heard:.0f} s are cut at pauses, since the model was trained"
    )
    assert f"{said} for {heard:.1f} s at most (b.wav)" in run("a.wav b.wav")[2]


# --- chunks


@pytest.fixture(scope="module")
def streaming(ready):
    """A model whose frames are of 40 ms: chunks of 0.08 and 0.32 s, and whole utterances."""
    chunk = "model.encoder.chunk={frames: [2, 8, whole], left: 2}"
    train(ready, ready / "streaming", "training.epochs=1", chunk)
    return str(ready / "streaming")


def test_files_are_decoded_as_streams_of_that_latency_are_read(run, streaming):
    """Encoder outputs are those of `step`; the command's are by default those of whole utterances."""
    recognizer, waveform = load(streaming), audio.load("wavs/train000.wav", RATE)
    for chunk, frames in (("0.08", 2), (0.32, 8), ("whole", WHOLE)):
        assert recognizer.chunk_frames(chunk) == frames
        encoded = encode(recognizer, [waveform], chunk=frames)
        encoder = recognizer.model.encoder
        with torch.no_grad():
            H, _ = encoder.step(encoded.X, encoder.start(1, frames), last=True)
        torch.testing.assert_close(encoded.H, H, rtol=0, atol=1e-5)
    printed = [
        run(f"wavs --json - --model {streaming} {more}")[1]
        for more in ("", "--chunk whole", "--chunk 0.32", "--chunk 0.08")
    ]
    assert printed[0] == printed[1] and len(set(printed)) == 3


def test_a_chunk_identifies_the_work(run, streaming, searched):
    calls = searched()
    for chunk, times in (("0.08", 1), ("0.08", 1), ("0.32", 2)):
        assert run(f"wavs --out o.txt --model {streaming} --chunk {chunk}")[0] == 0
        assert sum(calls) == times * COUNT


def test_chunks_that_the_model_does_not_know_are_refused(run, streaming):
    status, _, err = run("wavs --chunk 0.32")
    assert status == 2 and "--chunk: got 0.32, but the model has no chunks" in err
    for chunk in ("0.5", "all", "nan"):
        status, _, err = run(f"wavs --model {streaming} --chunk {chunk}")
        assert status == 2 and f"--chunk: got {chunk}, " in err and ": 0.08, 0.32, whole" in err


# --- going on


def test_what_was_finished_is_not_done_again(run, stop, searched, expected):
    """Also where another recording has been added since."""
    shutil.move("wavs/train005.wav", "later")
    outputs = "--out o.txt --json o.json"
    assert "stopped; run the same command again to go on" in stop(outputs)
    assert left() == [JOURNAL, "later"]
    shutil.move("later", "wavs/train005.wav")
    done, calls = kept(), searched()
    status, _, err = run(f"wavs {outputs}")
    assert status == 0 and done > 0 and f"going on: {done} recordings are finished" in err
    assert sum(calls) == COUNT - done and read("o.txt") == expected
    assert left() == [".o.json.stamp.json", ".o.txt.stamp.json", "o.json", "o.txt"]


def test_without_an_output_nothing_is_kept_and_it_is_said(stop):
    assert "nothing is kept; with --out FILE" in stop() and not left()


@each("change", ["--length-bonus 1 --mode ctc", "--precision bf16", "model", "recording"])
def test_other_work_is_not_taken_for_finished(ready, run, stop, searched, change):
    shutil.copytree(ready / "model", "model")
    words, done = "--out o.txt --model model", 0
    stop(words)
    if change == "recording":
        done = kept() - 1
        line = read(JOURNAL).splitlines()[1]
        soundfile.write(json.loads(line[9:])["result"]["id"], np.zeros(RATE), RATE)
    elif change == "model":
        with open("model/tokenizer.json", "a") as file:
            file.write("\n")
        info.main(["--accept", "model"])
    else:
        words += f" {change}"
    calls = searched()
    assert run(f"wavs {words}")[0] == 0 and sum(calls) == COUNT - done


@pytest.mark.usefixtures("heeded")
@each("number", partly([signal.SIGKILL, signal.SIGINT, signal.SIGTERM], 3))
def test_a_killed_decoding_goes_on(given, run, number, expected):
    slowed = (
        "import sys, time; from asr.journal import Journal; add = Journal.add\n"
        "def slowly(*a):\n    add(*a)\n    time.sleep(0.2)\n"
        "Journal.add = slowly\nfrom asr.cli import decode; decode.main(sys.argv[1:])"
    )
    process = in_group([sys.executable, "-c", slowed, *given, "wavs", "--out", "o.txt"])
    while not Path(JOURNAL).exists() or kept() < 3:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    process.send_signal(number)
    said = end(process, -9 if number == signal.SIGKILL else 128 + number, 60)
    assert "Traceback" not in said and left() == [JOURNAL]
    status, _, err = run("wavs --out o.txt")
    assert status == 0 and "recordings are finished" in err
    assert read("o.txt") == expected
    assert left() == [".o.txt.stamp.json", "o.txt"]


def test_results_are_printed_as_soon_as_all_before_them_are_done():
    recordings = a, b, c, d = [Recording(name, name, 0.0, 1.0) for name in "abcd"]
    found, printed = iter([(c, 3), (a, 1), (d, 4), (b, 2)]), []
    for pair in in_order(recordings, found):
        printed.append((*pair, length_hint(found)))  # how many are still to come
    assert printed == [(a, 1, 2), (b, 2, 0), (c, 3, 0), (d, 4, 0)]


# --- outputs


def test_outputs_leave_inputs_and_strangers_files_alone(ready, run):
    """Recordings that are named, in a folder, or of a manifest, by force too."""
    Path("letter.txt").write_text("dear")
    wav, dev = "wavs/train000.wav", ready / "corpus/dev000.wav"
    inputs = {path: path.read_bytes() for path in [*Path().rglob("*.*"), dev]}
    for words, fact in rows(f"""
        wavs --out {wav} --force | is an input
        wavs --json {wav} | is an input
        {wav} --out {wav} --force | is an input
        --manifest {ready}/data/dev.jsonl.gz --out {dev} --force | is an input
        {wav} --out wavs/train001.wav | --force
        wavs --out letter.txt | --force
    """):
        status, out, err = run(words)
        assert (status, out, err.count("\n")) == (2, "", 1) and fact in err, words
    assert inputs == {path: path.read_bytes() for path in inputs}
    for more in ("--force", "--batch-seconds 9"):  # its own now
        assert run(f"wavs --out letter.txt {more}")[0] == 0


def test_a_dash_is_standard_output(run, expected):
    assert run("wavs --out -")[:2] == (0, expected)
    status, out, _ = run("wavs --json - --out o.txt")
    lines = [json.loads(line) for line in out.splitlines()]
    assert (
        status == 0 and [f"{line['id']}\t{line['text']}" for line in lines] == expected.splitlines()
    )
    assert read("o.txt") == expected
    assert run("wavs --json o.txt.failed.tsv --out o.txt")[0] == 2
    assert run("wavs --json - --out -")[0] == 2 and not Path("-").exists()
    for _ in range(2):  # it is printed again
        assert run("wavs --json o.json")[:2] == (0, expected)
    assert "standard input isn't read" in run("-")[2]


def test_a_name_may_begin_with_a_dash(run):
    shutil.copy("wavs/train000.wav", "-dash.wav")
    status, out, _ = run("-- -dash.wav wavs/train001.wav")
    assert status == 0 and ids(out) == ["./-dash.wav", "wavs/train001.wav"]


def test_a_recording_that_goes_while_it_is_decoded_is_written_as_it_was_heard(
    run, meanwhile, expected
):
    meanwhile(lambda _: shutil.rmtree("wavs", ignore_errors=True))
    assert run("wavs --out o.txt")[0] == 0 and read("o.txt") == expected


SHAPES = """
import torch
from asr.device import remember_few_shapes

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6

remember_few_shapes()
torch.set_num_threads(1)
convolution = torch.nn.Conv2d(8, 8, 3, 2)
with torch.inference_mode():
    for n in range(700):
        convolution(torch.zeros(1, 8, 40 + n, 40))
        if n == 100:
            before = resident()
print(resident() - before)
"""


@slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/statm")
def test_ever_new_lengths_do_not_fill_the_memory():
    """Unless the environment asks for oneDNN's own number of shapes, which shows that it's these that fill it."""

    number = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
    usual = {name: value for name, value in os.environ.items() if name != number}

    def grown(environment):
        command = [sys.executable, "-c", SHAPES]
        return float(subprocess.check_output(command, env=environment, text=True))

    assert grown(usual) < grown(usual | {number: "1024"}) / 2
