"""Decoding by whole commands: bad recordings lose no others, and what is finished is never done again.

Expected texts are those of an undisturbed decoding; which recordings are searched again is counted.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import soundfile
import torch
from tones import CONFIG, RATE, write_corpus

from asr.cli import decode, prepare, score, tokenizer, train
from asr.transcription import pipeline
from asr.transcription.recordings import Failure, Recording, find, find_readable, in_order

COUNT = 12


@pytest.fixture(scope="module")
def ready(tmp_path_factory):
    """A prepared corpus and a model of one epoch, which knows next to nothing."""
    root = tmp_path_factory.mktemp("ready")
    write_corpus(root / "corpus", {"train": COUNT, "dev": 4})
    prepare.main(["tsv", str(root / "corpus"), str(root / "data")])
    tokenizer.main(
        [str(root / "data/train.jsonl.gz"), str(root / "tokenizer"), "--kind", "characters"]
    )
    (root / "x.yaml").write_text(CONFIG.format(root=root))
    train.main(["--config", str(root / "x.yaml"), "training.epochs=1"])
    return root


@pytest.fixture
def folder(ready, tmp_path, monkeypatch):
    """A folder to work in, with recordings in wavs/."""
    (tmp_path / "wavs").mkdir()
    for n in range(COUNT):
        shutil.copy(ready / f"corpus/train{n:03d}.wav", tmp_path / "wavs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(ready, capsys):
    """Run asr-decode; its exit status, what it printed, and what it said."""

    def run(*arguments):
        status = 0
        try:
            decode.main(
                [
                    "--model",
                    str(ready / "model"),
                    "--device",
                    "cpu",
                    "--mode",
                    "ctc-greedy",
                    *arguments,
                ]
            )
        except SystemExit as ended:
            status = ended.code
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def searched(monkeypatch):
    """How many recordings were encoded, call by call; `stop`: the call that is stopped, and how."""
    encode, calls = pipeline.encode, []

    def counted(recognizer, waveforms, precision="fp32"):
        if calls and calls[0] == "stop" and len(calls) > 2:
            calls.clear()
            raise KeyboardInterrupt
        calls.append(len(waveforms))
        return encode(recognizer, waveforms, precision)

    monkeypatch.setattr(pipeline, "encode", counted)
    return calls


def left(folder):
    """Files that aren't those of the fixture."""
    return sorted(path.name for path in folder.iterdir() if path.name != "wavs")


def test_the_end_says_where_bf16_would_be_faster(folder, run, monkeypatch):
    for native in (False, True):
        monkeypatch.setattr("asr.device.has_bf16", lambda native=native: native)
        assert ("--precision bf16" in run("wavs")[2]) == native
    assert "--precision bf16" not in run("wavs", "--precision", "bf16")[2]


# --- bad recordings


BAD = {
    "b_text.wav": (
        b"I am no sound at all, just a text that is long enough for a header.",
        "is text, not sound",
    ),
    "c_empty.wav": (b"", "is empty"),
    "d_noise.wav": (bytes(random.Random(0).randbytes(4000)), "can't be read as sound"),
    "e_cut.wav": (None, "truncated"),
    "f_nan.wav": (None, "NaN or infinite samples"),
}


def ids(text):
    """The ids of lines of text."""
    return [line.split("\t")[0] for line in text.splitlines()]


def spoil(wavs):
    """Put bad recordings among the good ones."""
    for name, (content, _) in BAD.items():
        (wavs / name).write_bytes(content or b"")
    whole = (wavs / "train000.wav").read_bytes()
    (wavs / "e_cut.wav").write_bytes(whole[: len(whole) // 2])
    soundfile.write(
        wavs / "f_nan.wav", np.array([0.0] * 4000 + [np.nan] * 4000), RATE, subtype="FLOAT"
    )


def test_bad_recordings_are_named_and_listed_and_the_rest_is_done(folder, run):
    expected = run("wavs")[1]
    spoil(folder / "wavs")
    for extra in ("no.wav", "wavs/a\tb.wav", "wavs/a\rb.wav"):
        if extra != "no.wav":
            shutil.copy("wavs/train000.wav", extra)
    status, out, err = run("wavs", "no.wav")
    assert (status, out) == (3, expected)
    assert f"8 of {COUNT + 8} recordings could not be transcribed" in err
    status, out, err = run("wavs", "no.wav", "--out", "o.txt", "--json", "o.json")
    assert (status, out) == (3, "") and (folder / "o.txt").read_text() == expected
    assert [json.loads(line)["id"] for line in (folder / "o.json").read_text().splitlines()] == ids(
        expected
    )
    header, *rows = (folder / "o.txt.failed.tsv").read_text().splitlines()
    reasons = {row.split("\t")[0]: row.split("\t")[2] for row in rows}
    assert header == "id\tpath\treason" and len(rows) == 8 == len(reasons)
    for name, (_, reason) in BAD.items():
        assert reason in reasons[f"wavs/{name}"] and f"wavs/{name}" in err
    assert "no such file" in reasons["no.wav"]


def test_mended_recordings_are_done_alone_and_the_list_goes(folder, run, searched):
    expected = run("wavs")[1]
    shutil.copy("wavs/train003.wav", "good")
    (folder / "wavs/train003.wav").write_bytes(b"")
    assert run("wavs", "--out", "o.txt")[0] == 3
    assert (
        run("wavs", "--out", "o.txt")[0] == 3 and sum(searched) == COUNT + COUNT - 1
    )  # no new search
    shutil.copy("good", "wavs/train003.wav")
    assert run("wavs", "--out", "o.txt")[0] == 0 and sum(searched) == COUNT + COUNT - 1 + 1
    assert (folder / "o.txt").read_text() == expected
    assert left(folder) == [".o.txt.stamp.json", "good", "o.txt"]
    assert "o.txt is up to date" in run("wavs", "--out", "o.txt")[2]


def test_where_nothing_can_be_done_it_is_a_mistake(folder, run):
    for name in ("a.wav", "b.wav"):
        (folder / name).write_bytes(b"")
    status, out, err = run("a.wav")
    assert (status, out) == (2, "") and err.count("\n") == 1 and "a.wav: is empty (0 bytes)" in err
    status, out, err = run("a.wav", "b.wav", "no.wav", "--out", "o.txt")
    assert (status, out) == (2, "") and "none of 3 recordings could be transcribed" in err
    assert left(folder) == ["a.wav", "b.wav", "o.txt.failed.tsv"]


def test_a_damaged_line_of_a_manifest_and_an_empty_folder_are_mistakes(ready, folder, run):
    (folder / "nothing").mkdir()
    (folder / "x.jsonl").write_text("{}\n")
    assert run("wavs", "nothing")[0] == 2 and run("wavs", "--manifest", "x.jsonl")[0] == 2


def test_a_recording_of_a_manifest_that_went_away_is_a_failure(ready, folder, run):
    write_corpus(folder / "c", {"test": 5}, seed=7)
    prepare.main(["tsv", str(folder / "c/test.tsv"), str(folder / "d")])
    (folder / "c/test002.wav").unlink()
    status, out, err = run("--manifest", "d/test.jsonl.gz", "--out", "o.txt")
    assert status == 3 and "test002" in err and "no such file" in err
    assert len((folder / "o.txt").read_text().splitlines()) == 4
    with pytest.raises(SystemExit):
        score.main(["d/test.jsonl.gz", "o.txt"])  # which leaves none out


def too_long(monkeypatch, samples, batch=10**9):
    """Have memory end at recordings of a length in samples, or at batches of a number of recordings."""
    encode = pipeline.encode

    def limited(recognizer, waveforms, precision="fp32"):
        if max(map(len, waveforms)) > samples or len(waveforms) > batch:
            raise torch.OutOfMemoryError("no")
        return encode(recognizer, waveforms, precision)

    monkeypatch.setattr(pipeline, "encode", limited)


def test_what_is_too_long_for_memory_is_a_failure_and_the_rest_is_done(folder, run, monkeypatch):
    expected = run("wavs")[1]
    sizes = {path.name: soundfile.info(path).frames for path in sorted((folder / "wavs").iterdir())}
    limit = sorted(sizes.values())[-3]
    long = {f"wavs/{name}" for name, size in sizes.items() if size > limit}
    too_long(monkeypatch, limit)
    status, out, err = run("wavs")
    assert (
        status == 3 and len(long) == 2 and all(f"{name}: out of memory at" in err for name in long)
    )
    assert out == "".join(
        line for line in expected.splitlines(True) if line.split("\t")[0] not in long
    )


def test_a_batch_that_does_not_fit_is_done_one_by_one(folder, run, monkeypatch):
    expected = run("wavs")[1]
    too_long(monkeypatch, 10**9, batch=1)
    assert run("wavs")[:2] == (0, expected)


# --- going on


def test_what_was_finished_is_not_done_again(folder, run, searched):
    expected = run("wavs", "--batch-seconds", "1")
    whole = list(searched)
    searched[:] = ["stop"]
    for name in ("o.txt", "o.json"):
        assert not (folder / name).exists()
    arguments = "wavs", "--batch-seconds", "1", "--out", "o.txt", "--json", "o.json"
    status, _, err = run(*arguments)
    assert status == 130 and "stopped; run the same command again to go on" in err
    assert left(folder) == [".o.txt.journal"]
    kept = len((folder / ".o.txt.journal").read_text().splitlines()) - 1
    status, _, err = run(*arguments)
    assert status == 0 and kept > 0 and f"going on: {kept} recordings are finished" in err
    assert sum(searched) == sum(whole) - kept
    assert (folder / "o.txt").read_text() == expected[1]
    assert left(folder) == [".o.json.stamp.json", ".o.txt.stamp.json", "o.json", "o.txt"]


def test_without_an_output_nothing_is_kept_and_it_is_said(folder, run, searched):
    searched[:] = ["stop"]
    status, _, err = run("wavs", "--batch-seconds", "1")
    assert status == 130 and "nothing is kept; with --out FILE" in err and not left(folder)


@pytest.mark.parametrize(
    "change",
    [["--length-bonus", "1", "--mode", "ctc"], ["--precision", "bf16"], "model", "recording"],
)
def test_other_work_is_not_taken_for_finished(ready, folder, run, searched, change, monkeypatch):
    searched[:] = ["stop"]
    shutil.copytree(ready / "model", "model")
    arguments = ["wavs", "--batch-seconds", "1", "--out", "o.txt", "--model", "model"]
    assert run(*arguments)[0] == 130
    kept = len((folder / ".o.txt.journal").read_text().splitlines()) - 1
    if change == "recording":
        done = json.loads((folder / ".o.txt.journal").read_text().splitlines()[1][9:])["result"][
            "id"
        ]
        shutil.copy("wavs/train000.wav" if "000" not in done else "wavs/train001.wav", done)
    elif change == "model":
        (folder / "model/tokenizer.json").write_text(
            (folder / "model/tokenizer.json").read_text() + "\n"
        )
    monkeypatch.setattr("asr.models.recognizer.load", lambda *_: pytest.fail("stop here"))
    more = change if isinstance(change, list) else []
    with pytest.raises(pytest.fail.Exception):
        decode.main(["--model", str(ready / "model"), "--mode", "ctc-greedy", *arguments, *more])
    name = ".o.txt.journal" if change == "recording" else ".o.txt.journal.before"
    assert (
        len((folder / name).read_text().splitlines()[1:]) == kept
    )  # what was finished is kept in any case
    assert left(folder).count(".o.txt.journal") == (change == "recording")


def test_more_recordings_than_before_keep_what_is_finished(folder, run, searched):
    os.rename("wavs/train005.wav", "later.wav")
    searched[:] = ["stop"]
    assert run("wavs", "--batch-seconds", "1", "--out", "o.txt")[0] == 130
    kept = len((folder / ".o.txt.journal").read_text().splitlines()) - 1
    os.rename("later.wav", "wavs/train005.wav")
    assert run("wavs", "--out", "o.txt")[0] == 0
    assert (
        sum(searched) == COUNT - kept and len((folder / "o.txt").read_text().splitlines()) == COUNT
    )


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_killed_decoding_goes_on(ready, folder, run, number):
    expected = run("wavs")[1]
    slow = (  # a second between recordings
        "import sys, time; from asr.journal import Journal; add = Journal.add\n"
        "def slowly(*a):\n    add(*a)\n    time.sleep(0.5)\n"
        "Journal.add = slowly\nfrom asr.cli import decode; decode.main(sys.argv[1:])"
    )
    arguments = [
        "--model",
        str(ready / "model"),
        "--mode",
        "ctc-greedy",
        "wavs",
        "--out",
        "o.txt",
        "--device",
        "cpu",
    ]
    with subprocess.Popen(
        [sys.executable, "-c", slow, *arguments], stderr=subprocess.PIPE, text=True
    ) as process:
        journal = folder / ".o.txt.journal"
        while not journal.exists() or journal.read_bytes().count(b"\n") < 4:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.01)
        process.send_signal(number)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == {signal.SIGKILL: -9}.get(number, 128 + number), said
    assert "Traceback" not in said and left(folder) == [".o.txt.journal"]
    status, _, err = run("wavs", "--out", "o.txt")
    assert (
        status == 0
        and "recordings are finished" in err
        and (folder / "o.txt").read_text() == expected
    )
    assert left(folder) == [".o.txt.stamp.json", "o.txt"]


def test_results_are_printed_as_soon_as_all_before_them_are_done():
    recordings = [Recording(name, name, 0.0, 1.0) for name in "abcd"]
    a, b, c, d = recordings
    seen, given = [], iter([(c, 3), (a, 1), (d, 4), (b, 2)])

    def results():
        for pair in given:
            yield pair
            seen.append(len(printed))

    printed = []
    for recording, value in in_order(recordings, results()):
        printed.append((recording.id, value))
    assert printed == [("a", 1), ("b", 2), ("c", 3), ("d", 4)] and seen == [0, 1, 1, 4]


# --- outputs


def test_outputs_leave_inputs_and_strangers_files_alone(ready, folder, run):
    shutil.copytree(ready / "model", "model")
    (folder / "letter.txt").write_text("dear")
    inputs = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    cases = [
        ("--out", "wavs/train000.wav", "is an input"),
        ("--json", "wavs/train000.wav", "is an input"),
        ("--out", "model/config.yaml", "is an input"),
        ("--out", "letter.txt", "--force"),
        ("--json", "letter.txt", "--force"),
        ("--out", "/dev/null", "is a device"),
        ("--json", "/dev/stdout", "- for standard output"),
        ("--out", ".", "is a folder"),
        ("--out", "", "an empty name"),
    ]
    for option, path, fact in cases:
        status, out, err = run("--model", "model", "wavs", option, path)
        assert (status, out) == (2, "") and fact in err and err.count("\n") == 1, (
            option,
            path,
            err,
        )
    assert (
        run("--model", "model", "wavs/train000.wav", "--out", "wavs/train000.wav", "--force")[0]
        == 2
    )
    assert run("--model", "model", "wavs/train000.wav", "--out", "wavs/train001.wav")[0] == 2
    assert inputs == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert run("--model", "model", "wavs", "--out", "letter.txt", "--force")[0] == 0
    assert (
        run("--model", "model", "wavs", "--out", "letter.txt", "--nbest", "1", "--beam", "3")[0]
        == 0
    )  # its own now


def test_a_recording_of_a_manifest_is_an_input_even_by_force(ready, folder, run):
    write_corpus(folder / "c", {"test": 2}, seed=7)
    prepare.main(["tsv", str(folder / "c/test.tsv"), str(folder / "d")])
    before = (folder / "c/test001.wav").read_bytes()
    status, _, err = run("--manifest", "d/test.jsonl.gz", "--out", "c/test001.wav", "--force")
    assert (
        status == 2 and "is an input" in err and (folder / "c/test001.wav").read_bytes() == before
    )


def test_a_dash_is_standard_output(folder, run):
    text = run("wavs")[1]
    assert run("wavs", "--out", "-")[:2] == (0, text)
    status, out, _ = run("wavs", "--json", "-")
    lines = [json.loads(line) for line in out.splitlines()]
    assert status == 0 and [f"{line['id']}\t{line['text']}" for line in lines] == text.splitlines()
    status, out, _ = run("wavs", "--json", "-", "--out", "o.txt")
    assert (folder / "o.txt").read_text() == text and len(out.splitlines()) == COUNT
    assert run("wavs", "--json", "o.txt.failed.tsv", "--out", "o.txt")[0] == 2
    assert run("wavs", "--json", "-", "--out", "-")[0] == 2 and not (folder / "-").exists()
    status, out, _ = run("wavs", "--json", "o.json")
    assert (status, out) == (0, text) and run("wavs", "--json", "o.json")[
        1
    ] == text  # printed again
    assert "standard input isn't read" in run("-")[2]


def test_a_name_may_begin_with_a_dash(folder, run):
    shutil.copy("wavs/train000.wav", "-dash.wav")
    status, out, _ = run("--", "-dash.wav", "wavs/train001.wav")
    assert status == 0 and [line.split("\t")[0] for line in out.splitlines()] == [
        "./-dash.wav",
        "wavs/train001.wav",
    ]


def test_mistakes_are_told_before_pytorch_is_imported(ready, folder):
    script = (
        "import sys; from asr.cli import decode\ntry: decode.main(sys.argv[1:])\n"
        "finally: print('torch' in sys.modules, file=sys.stderr)"
    )
    model = ["--model", str(ready / "model")]
    (folder / "d.jsonl").write_text("{")
    cases = [
        ["no.wav"],
        ["--lm", "no", "wavs"],
        ["--hotwords", "no", "wavs"],
        ["--manifest", "no.jsonl"],
    ]
    cases += [
        ["--manifest", "d.jsonl"],
        ["--model", "no", "wavs"],
        ["--out", "/dev/null", "wavs"],
        ["--beam", "0", "wavs"],
    ]
    for arguments in cases:
        done = subprocess.run(
            [sys.executable, "-c", script, *model, *arguments], capture_output=True, text=True
        )
        assert done.returncode == 2 and done.stderr.splitlines()[-1] == "False", (
            arguments,
            done.stderr,
        )


def test_python_callers_get_failures_or_the_error(ready, folder):
    from asr.errors import UserError

    (folder / "bad.wav").write_bytes(b"")
    with pytest.raises(UserError, match="bad.wav: is empty"):
        find(["wavs", "bad.wav"])
    recordings, failures = find_readable(["wavs", "bad.wav"])
    assert len(recordings) == COUNT
    assert [(f.id, f.path) for f in failures] == [("bad.wav", "bad.wav")] and isinstance(
        failures[0], Failure
    )


def test_a_recording_that_changes_or_goes_while_it_is_decoded_is_written_as_it_was_heard(
    folder, run, monkeypatch
):
    expected = run("wavs")[1]
    encode = pipeline.encode

    def changing(*arguments):
        for path in (folder / "wavs").iterdir():
            path.unlink()
        return encode(*arguments)

    monkeypatch.setattr(pipeline, "encode", changing)
    assert run("wavs", "--out", "o.txt")[0] == 0 and (folder / "o.txt").read_text() == expected
