"""What doesn't end is named: after a signal it ends with the process, deaf as it may be; before, it is only told of.

A deaf call is one of the C library that never returns, whatever signal comes: it locks a mutex that is locked.
"""

import os
import re
import signal
import subprocess
import sys
import time

import pytest
from runs import assert_same, make_root, train, weights

from asr.training import signals
from asr.training.checkpoint import Checkpoints
from asr.training.signals import Signals, Watch

DEAF = """
import ctypes, sys, time
from asr.training import signals
from asr.training.distributed import launch
from asr.tasks.recognizer import RecognizerTask
from asr.cli import train as command

def stick():
    mutex, library = ctypes.create_string_buffer(64), ctypes.CDLL(None)
    library.pthread_mutex_lock(mutex)
    print("stuck", file=sys.stderr, flush=True)
    library.pthread_mutex_lock(mutex)

def patched(kind):
    original, calls = getattr(RecognizerTask, kind), []
    def call(self, *arguments):
        calls.append(1)
        if len(calls) == WHEN:
            stick()
        return original(self, *arguments)
    setattr(RecognizerTask, kind, call)

signals.LIMIT, signals.LOOK = 1.0, 0.1
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make_root(tmp_path_factory.mktemp("watch"))


def stuck(root, out, what, when, *more):
    """Start a training that comes to a call which never returns."""
    code = DEAF.replace("WHEN", str(when)) + f"patched({what!r})\n"
    arguments = [
        "--config",
        str(root / "x.yaml"),
        f"out={out}",
        "training.epochs=3",
        "training.save_steps=1",
        *more,
    ]
    code += f"command.main({arguments!r})\n"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    said = ""
    while "stuck" not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    time.sleep(1)  # it says so just before
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_deaf_step_is_named_and_ends_after_a_signal(root, tmp_path, number):
    out = tmp_path / "x"
    process = stuck(root, out, "loss", 4, "data.workers=1")
    began = time.monotonic()
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert 1 <= time.monotonic() - began < 30
    [line] = [line for line in said.splitlines() if "hasn't ended" in line]
    assert (
        line.startswith("step 4 (epoch 1, step 4 of it; utterances train") and number.name in line
    )
    assert re.search(r"at asr/training/\w+\.py:\d+", line)
    assert line in (out / "train.log").read_text()
    assert Checkpoints(out / "checkpoints", 2, print).load()["progress"]["step"] == 3
    assert_same(weights(train(root, out)), weights(train(root, tmp_path / "whole")))


def test_a_deaf_validation_too(root, tmp_path):
    process = stuck(root, tmp_path / "x", "validate", 1)
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert (
        process.returncode == 143
        and "the validation of epoch 1: hasn't ended 1 s after SIGTERM" in said
    )


def test_one_deaf_process_of_two_ends_both(root, tmp_path):
    """The second is stuck; the first waits for it, and may say so, too."""
    out, script = tmp_path / "x", tmp_path / "deaf.py"  # which the processes import anew
    arguments = [
        "--config",
        str(root / "x.yaml"),
        f"out={out}",
        "training.accumulate=2",
        "training.processes=2",
    ]
    body = DEAF.replace(
        "if len(calls) == WHEN:", "if len(calls) == 2 and launch.dist.get_rank() == 1:"
    )
    script.write_text(
        f"{body}patched('loss')\nif __name__ == '__main__':\n    command.main({arguments!r})\n"
    )
    process = subprocess.Popen(
        [sys.executable, script], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while "stuck" not in process.stderr.readline():
        assert process.poll() is None
    process.terminate()
    _, said = process.communicate(timeout=90)
    assert process.returncode == 143, said
    assert "Traceback" not in said and "leaked" not in said
    assert re.search(
        r"process 1 of 2: step 2 \(epoch 1, step 2 of it; utterances train.*hasn't ended 1 s after SIGT",
        said,
    )


def wait_until(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    assert condition()


def test_a_step_far_longer_than_others_is_told_of_once(monkeypatch):
    monkeypatch.setattr(signals, "LOOK", 0.01)
    monkeypatch.setattr(signals, "LEAST", 0.2)
    monkeypatch.setattr(signals, "KNOWN", 3)
    told = []
    with Signals() as caught, Watch(caught, told.append) as watching:
        with watching.over(lambda: "the first", is_step=True):  # compiles
            time.sleep(0.5)
        with watching.over(lambda: "the validation"):
            time.sleep(0.3)
        for _ in range(3):
            with watching.over(lambda: "a short one", is_step=True):
                time.sleep(0.03)
        assert not told
        with watching.over(lambda: "long", is_step=True):
            wait_until(lambda: told)
            time.sleep(0.1)
    [line] = told
    assert line.startswith("long: 0 s so far, where the median is 0.0 s, at ") and line.endswith(
        "; it goes on"
    )


def test_steps_as_long_as_others_and_short_ones_are_not_told_of(monkeypatch):
    """Ten times a median of milliseconds is no time."""
    monkeypatch.setattr(signals, "LOOK", 0.01)
    monkeypatch.setattr(signals, "KNOWN", 2)
    told = []
    with Signals() as caught, Watch(caught, told.append) as watching:
        for seconds in (0.0, 0.001, 0.001, 0.3):
            with watching.over(lambda: "x", is_step=True):
                time.sleep(seconds)
    assert not told


def test_long_steps_have_longer_to_end(monkeypatch):
    """Twice the median, and from its beginning for one that began after the signal."""
    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(signals, "LIMIT", 1.0)
    watching = Watch(Signals(), lambda _: None)
    watching.seconds.extend([5.0] * signals.KNOWN)
    now = time.monotonic()
    watching.asked_at = now - 9
    watching._insist(signal.SIGTERM, lambda: "x", now - 100, True)
    watching.asked_at = now - 100
    watching._insist(signal.SIGTERM, lambda: "x", now - 9, True)
    assert not ended
    watching._insist(signal.SIGTERM, lambda: "x", now - 11, True)
    assert ended == [143]


def test_a_description_that_fails_does_not_keep_the_process(monkeypatch):
    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)
    watching = Watch(Signals(), lambda _: None)
    watching.asked_at = 0.0
    with pytest.raises(ZeroDivisionError):
        watching._insist(signal.SIGTERM, lambda: 1 / 0, 0.0, True)
    assert ended == [143]


def test_what_a_forked_process_hears_is_not_heard_here():
    with Signals() as signals:
        if not (child := os.fork()):
            signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert signals.heard() == 0
        os.kill(os.getpid(), signal.SIGUSR1)
        assert signals.heard() == 0
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.heard() == signal.SIGTERM == signals.heard()
    assert signal.set_wakeup_fd(-1) == -1
