"""Bad input ends in one clear line and exit status 2, and nothing is lost; each message is asserted.

(The messages of audio, preparation, validation, scoring, configuration and text stand in their own tests; here is what
a user meets at the commands.)
"""

import errno
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from tones import CONFIG, RATE, write_corpus

from asr.cli import decode, prepare, score, tokenizer, train
from asr.cli.command import command
from asr.data import manifest
from asr.errors import UserError
from asr.files import lock
from asr.transcription import pipeline


@pytest.fixture(scope="module")
def ready(tmp_path_factory):
    """A prepared corpus, a tokenizer and an untrained model folder."""
    root = tmp_path_factory.mktemp("ready")
    write_corpus(root / "corpus", {"train": 12, "dev": 4})
    prepare.main(["tsv", str(root / "corpus"), str(root / "data")])
    tokenizer.main(
        [str(root / "data/train.jsonl.gz"), str(root / "tokenizer"), "--kind", "characters"]
    )
    (root / "x.yaml").write_text(CONFIG.format(root=root))
    train.main(["--config", str(root / "x.yaml"), "training.epochs=1"])
    return root


def refused(capsys, main, *arguments):
    """Run a command that must fail; return its one line."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as caught:
        main([str(a) for a in arguments])
    assert caught.value.code == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert not any("Traceback" in line for line in lines)
    return lines[-1]


def corpus(folder, **files):
    """Write a TSV corpus of one good utterance, and other files by name."""
    write_corpus(folder, {"train": 1})
    for name, content in files.items():
        path = folder / name.replace("_", ".")
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def test_prepare_names_file_line_and_fix(tmp_path, capsys):
    row = "id\tpath\ttext\n"
    cases = {
        "missing": ({"train_tsv": row + "a\tno.wav\tHI\n"}, "no.wav: no such file"),
        "text": ({"train_tsv": row + "a\tx.wav\tHI\n", "x_wav": "not sound"}, "x.wav"),
        "empty": ({"train_tsv": row + "a\tx.wav\tHI\n", "x_wav": b""}, "x.wav"),
        "repeated": (
            {"train_tsv": row + "a\ttrain000.wav\tHI\na\ttrain000.wav\tHO\n"},
            "share an id",
        ),
        "silent": ({"train_tsv": row + "a\ttrain000.wav\t \n"}, "empty text"),
        "malformed": ({"train_tsv": row + "a\ttrain000.wav\n"}, "train.tsv:2"),
    }
    for name, (files, expected) in cases.items():
        line = refused(
            capsys, prepare.main, "tsv", corpus(tmp_path / name, **files), tmp_path / "out"
        )
        assert expected in line, (name, line)
    assert not (tmp_path / "out").exists()
    assert "did you mean 'an4'" in refused(capsys, prepare.main, "an", tmp_path, tmp_path / "out")


def test_train_refuses_a_misspelled_key(ready, capsys):
    line = refused(capsys, train.main, "--config", ready / "x.yaml", "model.encoder.d_modle=3")
    assert "command line: model.encoder.d_modle: no such setting; did you mean 'd_model'?" in line


def test_train_names_an_unwritable_output(ready, capsys):
    (ready / "a_file").write_text("")
    line = refused(capsys, train.main, "--config", ready / "x.yaml", f"out={ready}/a_file/model")
    assert (
        f"{ready}/a_file/model: can't write into this folder (Not a directory); choose another output"
        in line
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_train_names_a_folder_without_rights(ready, capsys, tmp_path):
    tmp_path.chmod(0o500)
    line = refused(capsys, train.main, "--config", ready / "x.yaml", f"out={tmp_path}/model")
    assert "can't write into this folder (Permission denied)" in line


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOSPC, errno.EROFS])
def test_a_place_without_rights_or_room_is_told_wherever_it_shows(capsys, number):
    @command
    def main(argv):
        raise OSError(number, os.strerror(number), *argv)

    line = refused(capsys, main, "/a/place")
    assert line.endswith(f"/a/place: {os.strerror(number)}; choose another place, or fix that")
    with pytest.raises(OSError, match=re.escape(os.strerror(number))):  # nobody knows where
        main([])


def test_a_reader_of_stdout_may_leave():
    """As head does: the exit status is that of a process which the closed pipe ends."""
    script = "from asr.cli.command import command\n@command\ndef main(argv):\n    while 1:\n        print(1)\nmain([])"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        running.stdout.readline()
        running.stdout.close()
        assert (running.wait(60), running.stderr.read()) == (141, b"")


def test_a_name_that_is_not_utf8(tmp_path, capsys):
    folder = os.fsencode(tmp_path) + b"/noise"
    os.mkdir(folder)
    soundfile.write(tmp_path / "a.wav", np.zeros(800), RATE)
    os.rename(tmp_path / "a.wav", folder + b"/caf\xe9.wav")
    line = refused(capsys, prepare.main, "folder", tmp_path / "noise", tmp_path / "out")
    assert r"caf\udce9.wav" in line and "its name isn't UTF-8 (byte 0xe9); rename the file" in line


def test_train_refuses_sizes_that_do_not_fit_together(ready, capsys, tmp_path):
    line = refused(
        capsys,
        train.main,
        "--config",
        ready / "x.yaml",
        f"out={tmp_path}/m",
        "features.fbank.mels=5",
    )
    assert "features.fbank and model: features: got 5, too few for subsampling by 4" in line


def test_train_refuses_a_folder_in_which_another_is_training(ready, capsys, tmp_path):
    (tmp_path / "m").mkdir()
    holding = [
        sys.executable,
        "-c",
        "from asr import files; import sys; _ = files.lock(sys.argv[1]); print(); input()",
    ]
    with subprocess.Popen(
        [*holding, tmp_path / "m"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        other.stdout.readline()
        line = refused(capsys, train.main, "--config", ready / "x.yaml", f"out={tmp_path}/m")
        other.communicate(b"\n")
    assert f"{tmp_path}/m: another process is at work in it; wait for it" in line


def test_a_killed_process_leaves_its_folder_though_its_workers_live_on(tmp_path):
    script = "import os, time; from asr.files import lock; _ = lock('.'); w = os.fork(); w and print(w); time.sleep(60)"
    command = [sys.executable, "-u", "-c", script]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as holder:
        worker = int(holder.stdout.readline())
        try:
            with pytest.raises(UserError, match="another process is at work in it"):
                lock(tmp_path)
            holder.kill()
            holder.wait()
            lock(tmp_path).close()
        finally:
            os.kill(worker, signal.SIGKILL)


def test_train_names_missing_manifest_and_tokenizer(ready, capsys):
    line = refused(
        capsys, train.main, "--config", ready / "x.yaml", "data.train=no.jsonl.gz", "out=/tmp/never"
    )
    assert "no.jsonl.gz: no such manifest; asr-prepare makes it" in line
    line = refused(capsys, train.main, "--config", ready / "x.yaml", "tokenizer=nowhere")
    assert "nowhere/tokenizer.json: no tokenizer here; asr-tokenizer makes one" in line


def edited(ready, tmp_path, change):
    """A copy of the training manifest whose lines `change` has edited, and the command line that uses it."""
    import gzip

    with gzip.open(ready / "data/train.jsonl.gz", "rt") as file:
        lines = [json.loads(line) for line in file]
    for line in lines:
        change(line)
    with gzip.open(tmp_path / "train.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    return [
        "--config",
        ready / "x.yaml",
        f"data.train={tmp_path}/train.jsonl.gz",
        f"out={tmp_path}/model",
    ]


def test_train_refuses_a_manifest_that_lies(ready, tmp_path, capsys):
    def rate(line):
        line["recording"]["sampling_rate"] = 16000

    def duration(line):
        line["recording"]["num_samples"] += 4000
        line["recording"]["duration"] += 0.5

    def text(line):
        line["supervisions"][0]["text"] = "LÖW"

    def same_id(line):
        line["id"] = "twin"

    def empty(line):
        line["supervisions"][0]["text"] = ""

    def long_text(line):
        line["supervisions"][0]["text"] = "LOW " * 40

    expected = {
        rate: "has 8000 Hz, the manifest says 16000 Hz",
        duration: "s, the manifest says ",
        text: "train000: character 'Ö' (U+00D6) of 'LÖW' is not in the tokenizer's vocabulary",
        same_id: "11 ids stand there twice (twin",
        empty: "12 utterances have an empty text (train000",
        long_text: "utterances too short for CTC to align (12): train000 (",
    }
    for change, message in expected.items():
        assert message in refused(capsys, train.main, *edited(ready, tmp_path, change)), (
            change.__name__
        )
    assert not (tmp_path / "model").exists()


def test_a_table_is_no_text_for_a_tokenizer(ready, tmp_path, capsys):
    line = refused(
        capsys,
        tokenizer.main,
        ready / "corpus/train.tsv",
        tmp_path / "tokens",
        "--kind",
        "characters",
    )
    assert "train.tsv:1: has a tab" in line
    assert not (tmp_path / "tokens").exists()


def test_ctc_is_checked_at_the_fastest_speed(ready, tmp_path, capsys):
    def just_enough(line):
        frames = ((int(line["duration"] * RATE) - 200) // 80 + 1 - 3) // 2 + 1
        line["supervisions"][0]["text"] = "LO" * (((frames - 3) // 2 + 1) // 2)

    arguments = edited(ready, tmp_path, just_enough)
    train.main([str(a) for a in [*arguments, "data.speeds=[1.0]", "training.epochs=1"]])
    assert "frames at speed 1.1" in refused(
        capsys, train.main, *arguments, "data.speeds=[1.0, 1.1]"
    )


def test_limits_count_and_name_what_they_drop(ready, tmp_path, capsys):
    train.main(
        [
            "--config",
            str(ready / "x.yaml"),
            f"out={tmp_path}/m",
            "training.epochs=1",
            "data.max_seconds=0.7",
        ]
    )
    said = capsys.readouterr().err
    assert "longer than max_seconds=0.7 (train0" in said and "all are listed in dropped.tsv" in said
    assert "longer than max_seconds=0.7" in (tmp_path / "m/dropped.tsv").read_text()


def test_decode_names_missing_and_damaged_input(ready, tmp_path, capsys):
    model = ["--model", ready / "model", "--device", "cpu"]
    (tmp_path / "text.wav").write_text(
        "I am no sound at all, just a text that is long enough for a header."
    )
    (tmp_path / "empty.wav").write_bytes(b"")
    (tmp_path / "a.m4a").write_bytes(b"\0\0\0\x18ftypM4A ")
    soundfile.write(tmp_path / "whole.wav", np.zeros(8000), RATE)
    (tmp_path / "cut.wav").write_bytes((tmp_path / "whole.wav").read_bytes()[:6000])
    (tmp_path / "nothing").mkdir()
    cases = {
        "no.wav": "no.wav",
        "text.wav": "text.wav",
        "empty.wav": "empty.wav",
        "a.m4a": "ffmpeg -i",
        "cut.wav": "cut.wav",
    }
    for name, expected in cases.items():
        assert expected in refused(capsys, decode.main, *model, tmp_path / name), name
    assert "this folder holds no sound file" in refused(
        capsys, decode.main, *model, tmp_path / "nothing"
    )
    assert "nothing to transcribe" in refused(capsys, decode.main, *model)
    line = refused(
        capsys, decode.main, *model, tmp_path / "whole.wav", "--out", tmp_path / "nothing"
    )
    assert f"{tmp_path / 'nothing'}: is a folder; expected the name of a file to write" in line
    twice = refused(capsys, decode.main, *model, tmp_path / "whole.wav", tmp_path / "whole.wav")
    assert "1 utterances are given twice" in twice
    assert "expected one of joint, attention" in refused(
        capsys, decode.main, *model, tmp_path / "whole.wav", "--mode", "x"
    )
    same = [
        *model,
        tmp_path / "whole.wav",
        "--out",
        tmp_path / "x",
        "--json",
        tmp_path / "nothing/../x",
    ]
    assert f"--out and --json: both are {tmp_path}/x; give each its own file" in refused(
        capsys, decode.main, *same
    )
    below = [*model, tmp_path / "whole.wav", "--out", tmp_path / "whole.wav/x"]
    assert "whole.wav: can't write into this folder" in refused(capsys, decode.main, *below)
    for seconds in ("0", "-1", "nan"):
        line = refused(
            capsys, decode.main, *model, tmp_path / "whole.wav", f"--batch-seconds={seconds}"
        )
        assert f"--batch-seconds: got {seconds}, expected more than 0" in line
    (tmp_path / "none.jsonl.gz").write_bytes(gzip.compress(b"\n"))
    line = refused(capsys, decode.main, *model, "--manifest", tmp_path / "none.jsonl.gz")
    assert "none.jsonl.gz: has no utterances; prepare it again" in line
    greedy = [*model, tmp_path / "whole.wav", "--mode", "ctc-greedy", "--length-bonus", "1"]
    assert "--mode: got 'ctc-greedy', which doesn't use length bonus; a beam does" in refused(
        capsys, decode.main, *greedy
    )


@pytest.mark.parametrize(
    "name, shown, fact",
    [
        (b"caf\xe9.wav", r"caf\udce9.wav", "isn't UTF-8 (byte 0xe9)"),
        (b"a\tb.wav", r"a\tb.wav", "U+0009"),
    ],
)
def test_a_name_that_no_line_can_hold(ready, tmp_path, capsys, name, shown, fact):
    model = ["--model", ready / "model", "--device", "cpu"]
    file = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    file.write_bytes((ready / "corpus/train000.wav").read_bytes())
    for given in (file, tmp_path):
        line = refused(capsys, decode.main, *model, given)
        assert f"{shown}: its name" in line and fact in line and "rename the file" in line


def test_tuning_that_does_not_fit_in_memory_says_what_helps(ready, capsys, monkeypatch):
    def encode(*_):
        raise torch.OutOfMemoryError("no")

    monkeypatch.setattr(pipeline, "encode", encode)
    model = [
        "--model",
        ready / "model",
        "--device",
        "cpu",
        "--manifest",
        ready / "data/dev.jsonl.gz",
    ]
    line = refused(capsys, decode.main, *model, "--tune", "beam=2")
    assert (
        "out of memory; cut long recordings at pauses, or lower --batch-seconds or --beam" in line
    )


def test_tuning_names_what_it_cannot_use(ready, capsys):
    model = [
        "--model",
        ready / "model",
        "--device",
        "cpu",
        "--manifest",
        ready / "data/dev.jsonl.gz",
    ]
    cases = {
        "ctc-wait=1": "--tune: ctc-wait=1: got 'ctc_wait', expected NAME=VALUE,VALUE … with a name of: beam",
        "beam=ten": "--tune: beam=ten: got 'ten', expected numbers with commas between them",
        "ctc-weight=2": "--ctc-weight: got 2.0, expected 0 to 1",
        "length-bonus=nan": "--length-bonus: got nan, expected -1e+06 to 1e+06",
        "lm-weight=1": "--tune: lm-weight=1: lm-weight changes nothing without --lm",
    }
    for setting, expected in cases.items():
        assert expected in refused(capsys, decode.main, *model, "--tune", setting)
    twice = refused(capsys, decode.main, *model, "--tune", "beam=1", "--tune", "beam=2")
    assert "--tune: beam=2: beam comes twice; give all values at once" in twice
    (ready / "none.jsonl.gz").write_bytes(gzip.compress(b""))
    nothing = [*model[:4], "--manifest", ready / "none.jsonl.gz", "--tune", "beam=1"]
    assert "none.jsonl.gz: " in refused(capsys, decode.main, *nothing)
    needs = "--tune needs the texts of a --manifest, and neither sound files nor --out nor --json"
    assert needs in refused(capsys, decode.main, *model, "--tune", "beam=1", "--out", "x")
    assert needs in refused(capsys, decode.main, *model, "a.wav", "--tune", "beam=1")


@pytest.mark.parametrize("name", ["config.yaml", "model.safetensors", "tokenizer.json"])
def test_decode_names_what_a_model_folder_lacks(ready, tmp_path, capsys, name):
    sound = ready / "corpus/dev000.wav"
    for damage in ("missing", "damaged"):
        folder = tmp_path / damage
        shutil.copytree(ready / "model", folder)
        (folder / name).unlink() if damage == "missing" else (folder / name).write_bytes(
            b"\x80 broken"
        )
        assert f"{folder / name}" in refused(capsys, decode.main, "--model", folder, sound)
    assert "no such model folder; asr-train makes one" in refused(
        capsys, decode.main, "--model", tmp_path / "no", sound
    )
    above = refused(capsys, decode.main, "--model", ready, sound)
    assert f"{ready}/config.yaml: missing; did you mean {ready}/model?" in above


def test_recordings_far_longer_than_those_of_training_are_told(ready, tmp_path, capsys):
    heard = max(u.duration for u in manifest.read(ready / "data/train.jsonl.gz"))
    for name, seconds in (("a", 1.4 * heard), ("b", 1.6 * heard)):
        soundfile.write(tmp_path / f"{name}.wav", np.zeros(int(seconds * RATE)), RATE)
    decode.main(["--model", str(ready / "model"), "--mode", "ctc-greedy", str(tmp_path)])
    said = f"1 recordings of up to {1.6 * heard:.0f} s are far longer than the model has heard, {heard:.1f} s at most"
    assert (
        f"{said} ({tmp_path}/b.wav); expect errors, or cut them at pauses"
        in capsys.readouterr().err
    )


def test_loading_a_model_runs_no_code(ready, tmp_path, capsys):
    folder = tmp_path / "evil"
    shutil.copytree(ready / "model", folder)
    import pickle

    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "was_here"), "w"))

    (folder / "model.safetensors").write_bytes(pickle.dumps(Evil()))
    assert "model.safetensors: damaged" in refused(
        capsys, decode.main, "--model", folder, ready / "corpus/dev000.wav"
    )
    (folder / "config.yaml").write_text(
        f"features: !!python/object/apply:open [{tmp_path}/was_here, w]\n"
    )
    assert "not valid YAML" in refused(
        capsys, decode.main, "--model", folder, ready / "corpus/dev000.wav"
    )
    assert not (tmp_path / "was_here").exists()


def test_score_names_missing_and_extra_ids(ready, tmp_path, capsys):
    (tmp_path / "hyp.txt").write_text("dev000\tLOW\nstranger\tHIGH\n")
    line = refused(capsys, score.main, ready / "data/dev.jsonl.gz", tmp_path / "hyp.txt")
    assert "dev001" in line and "stranger" in line


def test_a_user_never_sees_a_traceback(tmp_path):
    command = [sys.executable, "-m", "asr.cli.decode", "--model"]
    for model, fact in (("no", "no: no such model folder"), (tmp_path, "a.wav: no such file")):
        done = subprocess.run([*command, model, "a.wav"], capture_output=True, text=True)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1) and fact in done.stderr


def test_training_tells_a_missing_file_before_pytorch_is_imported(ready):
    script = (
        "import sys; from asr.cli import train\ntry: train.main(sys.argv[1:])\n"
        "finally: print('torch' in sys.modules, file=sys.stderr)"
    )
    cases = {
        "data.train=no.jsonl.gz": "no.jsonl.gz: no such manifest",
        "tokenizer=nowhere": "nowhere/tokenizer.json: no",
    }
    cases |= {
        "data.dev=no.txt": "no.txt: no such text file",
        "init_from=nowhere": "nowhere: no such model folder",
    }
    for override, fact in cases.items():
        command = [
            sys.executable,
            "-c",
            script,
            "--config",
            ready / "x.yaml",
            "out=never",
            override,
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        said, torch_is_there = done.stderr.splitlines()
        assert done.returncode == 2 and fact in said and torch_is_there == "False", said
