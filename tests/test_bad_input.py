"""What no table of bad inputs can hold: other processes, what is imported, and what is reported beside the work."""

import errno
import os
import re
import signal
import subprocess
import sys

import pytest
from runs import status_of
from small import each, rows

from asr.cli import train
from asr.cli.command import command
from asr.files import lock


def refused(capsys, main, *arguments):
    """Run a command that must fail; return its one line."""
    capsys.readouterr()
    assert status_of(main, *arguments) == 2
    err = capsys.readouterr().err
    assert "Traceback" not in err
    return err.strip().splitlines()[-1]


@each("number", [errno.EACCES, errno.ENOSPC, errno.EROFS])
def test_a_place_without_rights_or_room_is_told_wherever_it_shows(capsys, number):
    @command
    def main(argv):
        raise OSError(number, os.strerror(number), *argv)

    assert f"/a/place: {os.strerror(number)}; choose" in refused(capsys, main, "/a/place")
    with pytest.raises(OSError, match=re.escape(os.strerror(number))):  # nobody knows where
        main([])


def test_a_reader_of_stdout_may_leave():
    """As head does: the exit status is that of a process which the closed pipe ends."""
    script = "from asr.cli.command import command\n@command\ndef main(argv):\n    while 1:\n        print(1)\nmain([])"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script], **pipes) as running:
        running.stdout.readline()
        running.stdout.close()
        assert (running.wait(60), running.stderr.read()) == (141, b"")


def test_a_training_keeps_others_out_until_it_is_killed_though_its_workers_live_on(
    root, capsys, tmp_path
):
    script = "import os, time; from asr.files import lock; _ = lock('.'); w = os.fork(); w and print(w); time.sleep(60)"
    holding = [sys.executable, "-u", "-c", script]
    with subprocess.Popen(holding, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as holder:
        worker = int(holder.stdout.readline())
        try:
            line = refused(capsys, train.main, "--config", root / "x.yaml", f"out={tmp_path}")
            assert f"{tmp_path}: another process is at work in it" in line
            holder.kill()
            holder.wait()
            lock(tmp_path).close()
        finally:
            os.kill(worker, signal.SIGKILL)


def test_limits_drop_and_ctc_is_checked_at_the_fastest_speed(root, tmp_path, capsys):
    arguments = ["--config", f"{root}/x.yaml", f"out={tmp_path}/model", "training.epochs=1"]
    train.main([*arguments, "data.max_seconds=0.7"])
    assert "longer than max_seconds=0.7 (train0" in capsys.readouterr().err
    assert "longer than max_seconds=0.7" in (tmp_path / "model/dropped.tsv").read_text()
    assert "frames at speed 2" in refused(capsys, train.main, *arguments, "data.speeds=[1.0, 2.0]")


HEAVY = {"torch", "numpy", "pydantic", "yaml", "soundfile"}
LIGHT = """
train --config {root}/x.yaml out=x data.train=no.jsonl | no.jsonl: no such manifest; asr-prepare
train --config {root}/x.yaml out=x data.dev=no.txt     | no.txt: no such text file
train --config {root}/x.yaml out=x tokenizer=t | t/tokenizer.json: no tokenizer here; asr-tokenizer
train --config {root}/x.yaml out=x init_from=away | away: no such model folder
decode --model {root} no.wav                    | no.wav: no such file
decode --model {root} --lm no {root}/corpus     | no: no such file
decode --model {root} --model no {root}/corpus  | no: no such model folder
decode --model {root} --manifest no.jsonl       | no.jsonl:
decode --model {root} --manifest {root}/d.jsonl | d.jsonl:1
decode --model {root} --out /dev/null {root}/corpus | /dev/null:
decode --model {root} --beam 0 {root}/corpus    | --beam: got 0
prepare --help   | usage: asr-prepare
tokenizer --help | usage: asr-tokenizer
ngram --help     | usage: asr-ngram
train --help     | usage: asr-train
decode --help    | usage: asr-decode
score --help     | usage: asr-score
"""


@each("line, says", rows(LIGHT))
def test_help_and_mistakes_import_nothing_heavy(line, says, root):
    (root / "d.jsonl").write_text("{")
    name, *arguments = line.format(root=root).split()
    heavy, status = (HEAVY, 0) if "--help" in line else ({"torch"}, 2)
    script = (
        f"import sys; from asr.cli.{name} import main\ntry: main(sys.argv[1:])\n"
        f"finally: print({heavy} & set(sys.modules), file=sys.stderr)"
    )
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == status and says in done.stdout + done.stderr, done.stderr
    assert done.stderr.splitlines()[-1] == "set()" and done.stderr.count("\n") <= 2
