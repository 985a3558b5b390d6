"""What doesn't end is named: after a signal it ends with the process, deaf as it may be; before, it is only told of.

A deaf call is one of the C library that never returns, whatever signal comes: it locks a mutex that is locked.
"""

import os
import re
import signal
import sys
import time

import pytest
from runs import assert_uninterrupted, end, in_group

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

original, calls = RecognizerTask.KIND, []
def call(self, *arguments):
    calls.append(1)
    if WHEN:
        stick()
    return original(self, *arguments)
RecognizerTask.KIND = call

signals.LIMIT, signals.LOOK = 1.0, 0.1
if __name__ == "__main__":
    command.main(sys.argv[1:])
"""


def stuck(root, folder, kind, when, *more):
    """Start a training, in folder/x, that comes to a call which never returns; its script, processes import anew."""
    script = folder / "deaf.py"
    script.write_text(DEAF.replace("KIND", kind).replace("WHEN", when))
    command = [sys.executable, script, "--config", root / "x.yaml", f"out={folder}/x", *more]
    process = in_group([*command, "training.epochs=3", "training.save_steps=1"])
    while "stuck" not in process.stderr.readline():
        assert process.poll() is None
    time.sleep(1)  # it says so just before
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
@pytest.mark.slow
def test_a_deaf_step_is_named_and_ends_after_a_signal(root, whole, tmp_path, number):
    out = tmp_path / "x"
    process = stuck(root, tmp_path, "loss", "len(calls) == 4", "data.workers=1")
    began = time.monotonic()
    process.send_signal(number)
    said = end(process, 128 + number)
    assert 1 <= time.monotonic() - began < 30
    [line] = [line for line in said.splitlines() if "hasn't ended" in line]
    assert line.startswith("step 4 (epoch 1, step 4 of it; utterances train")
    assert re.search(rf"{number.name}.* at asr/training/\w+\.py:\d+", line)
    assert line in (out / "train.log").read_text()
    assert Checkpoints(out / "checkpoints", 2, print).load()["progress"]["step"] == 3
    assert_uninterrupted(root, out, whole)


@pytest.mark.slow
def test_a_deaf_validation_too(root, tmp_path):
    process = stuck(root, tmp_path, "validate", "len(calls) == 1")
    process.terminate()
    assert "the validation of epoch 1: hasn't ended 1 s after SIGTERM" in end(process, 143)


@pytest.mark.slow
def test_one_deaf_process_of_two_ends_both(root, tmp_path):
    """The second is stuck; the first waits for it, and may say so, too."""
    when = "len(calls) == 2 and launch.dist.get_rank() == 1"
    more = ["training.accumulate=2", "training.processes=2"]
    process = stuck(root, tmp_path, "loss", when, *more)
    process.terminate()
    said = end(process, 143)
    assert "Traceback" not in said and "leaked" not in said
    place = r"process 1 of 2: step 2 \(epoch 1, step 2 of it; utterances train"
    assert re.search(f"{place}.*hasn't ended 1 s after SIGTERM", said)


@pytest.fixture
def told(monkeypatch):
    """Run steps and others of some seconds, watched; what is logged of them. A limit of 0.2 s, if it isn't `least`."""
    monkeypatch.setattr(signals, "LOOK", 0.01)
    monkeypatch.setattr(signals, "KNOWN", 3)

    def told(things, least):
        monkeypatch.setattr(signals, "LEAST", least)
        told = []
        with Signals() as caught, Watch(caught, told.append) as watching:
            for name, seconds in things:
                with watching.over(lambda name=name: name, is_step=name != "validation"):
                    time.sleep(seconds)
        return told

    return told


SHORT = [("the first", 0.5), *[("short", 0.03)] * 3, ("validation", 0.5)]  # the first compiles


def test_a_step_far_longer_than_others_is_told_of_once(told):
    [line] = told([*SHORT, ("long", 2.0)], least=0.2)
    assert line.startswith("long: 0 s so far, where the median is 0.0 s, at ")
    assert line.endswith("; it goes on")


def test_steps_as_long_as_others_and_short_ones_are_not_told_of(told):
    """Ten times a median of milliseconds is no time."""
    assert not told(SHORT, least=0.2)
    assert not told([*SHORT, ("long", 0.6)], least=60.0)


@pytest.fixture
def asked(monkeypatch):
    """A watch of steps of 5 s that was asked some seconds ago to end, and the statuses that it ends with."""
    ended, now = [], time.monotonic()
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(signals, "LIMIT", 1.0)
    watching = Watch(Signals(), lambda _: None)
    watching.seconds.extend([5.0] * signals.KNOWN)

    def asked(describe, ago, began):
        watching.asked_at = now - ago
        watching._insist(signal.SIGTERM, describe, now - began, True)

    return asked, ended


def test_long_steps_have_longer_to_end(asked):
    """Twice the median, and from its beginning for one that began after the signal."""
    ask, ended = asked
    ask(str, 9, 100)
    ask(str, 100, 9)
    assert not ended
    ask(str, 100, 11)
    assert ended == [143]


def test_a_description_that_fails_does_not_keep_the_process(asked):
    ask, ended = asked
    with pytest.raises(ZeroDivisionError):
        ask(lambda: 1 / 0, 100, 100)
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
