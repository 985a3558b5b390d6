"""What no table of bad inputs can hold: other processes, memory that ends, and what is reported beside the work."""

import errno
import gzip
import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import soundfile
import torch
from tones import CONFIG, RATE, write_corpus

from asr.cli import decode, prepare, tokenizer, train
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


def edited(ready, tmp_path, change):
    """A copy of the training manifest whose lines `change` has edited, and the command line that uses it."""

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


def test_training_tells_a_missing_file_before_pytorch_is_imported(ready):
    script = (
        "import sys; from asr.cli import train\ntry: train.main(sys.argv[1:])\n"
        "finally: print('torch' in sys.modules, file=sys.stderr)"
    )
    cases = {
        "data.train=no.jsonl.gz": "no.jsonl.gz: no such manifest; asr-prepare",
        "tokenizer=nowhere": "nowhere/tokenizer.json: no tokenizer here; asr-tokenizer",
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
