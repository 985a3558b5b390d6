"""Asked to end, a training saves and ends; killed at any moment, it continues as if nothing had been."""

import atexit
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from multiprocessing import Pipe, get_context
from pathlib import Path

import pytest
from runs import (
    assert_same,
    assert_uninterrupted,
    end,
    in_group,
    kill_launched,
    launch,
    wait_for_state,
    weights,
)

from asr.cli import train as command
from asr.data import loading
from asr.models.recognizer import load
from asr.training import run
from asr.training.signals import Signals, Stopped


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)],
    ids=lambda number: number.name,
)
@pytest.mark.slow
def test_asked_to_end_it_saves_and_ends(root, whole, tmp_path, number):
    """The whole process group is asked, data workers too, as a terminal and a scheduler do it."""
    out = tmp_path / "x"
    process = launch(root, out, "data.workers=2", "training.save_steps=4")
    wait_for_state(out, 1, process)
    os.killpg(process.pid, number)
    said = end(process, 128 + number)
    assert "Traceback" not in said and "stopped; run the same command again to go on" in said
    assert_uninterrupted(root, out, whole)


def newest(out):
    return max(path.name for path in (out / "checkpoints").glob("state-*"))


@pytest.mark.slow
def test_a_scheduler_s_warning_saves_and_training_goes_on(root, whole, tmp_path):
    out = tmp_path / "x"
    process = launch(root, out)
    while not (out / "run.json").exists():
        time.sleep(0.02)
    while process.poll() is None:
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.02)
    end(process, 0)
    assert newest(whole[0]) < "state-000004" < newest(out)  # one a validation, and more
    assert_same(weights(load(out)), whole[1])


@pytest.mark.slow
def test_killed_at_random_moments(root, whole, tmp_path):
    """Also while a state is being written: with a state a step, that is where most of its time goes."""
    out, draw = tmp_path / "x", random.Random(1)
    for n in range(3):
        process = launch(root, out, "training.save_steps=1")
        wait_for_state(out, 1 + 4 * n, process)
        time.sleep(draw.uniform(0, 0.1))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert_uninterrupted(root, out, whole)


def test_wishes_are_noted_and_obeyed_at_once_where_all_is_saved(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with Signals() as signals:
        signal.raise_signal(signal.SIGUSR1)
        assert signals.save and not signals.end
        signal.raise_signal(signal.SIGTERM)
        assert signals.end == signal.SIGTERM
        signal.raise_signal(signal.SIGTERM)  # a parent passes on what the child was told, too
        now += 1.5
        with pytest.raises(Stopped) as stopped:
            signal.raise_signal(signal.SIGINT)
        assert stopped.value.status == 130
        with pytest.raises(Stopped), signals.at_once():
            raise AssertionError("a wish that came before is obeyed")
    with Signals() as signals, pytest.raises(Stopped) as stopped, signals.at_once():
        signal.raise_signal(signal.SIGTERM)
    assert stopped.value.status == 143
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_signal_that_another_thread_takes_waits_until_the_loader_is_made(monkeypatch):
    """The main thread's mask doesn't hold it back; raised within DataLoader, Stopped would leave half of it."""
    ask, asked, made = threading.Event(), threading.Event(), []

    def take():
        ask.wait()
        signal.raise_signal(signal.SIGTERM)
        asked.set()

    def loader(*_, **__):
        ask.set()
        asked.wait()
        made.append("loader")
        return [made]

    monkeypatch.setattr(loading, "DataLoader", loader)
    thread = threading.Thread(target=take)
    thread.start()
    with Signals() as signals, pytest.raises(Stopped) as stopped, signals.at_once():
        next(loading.load(None, [], workers=0))
    thread.join()
    assert stopped.value.status == 143 and made == ["loader"]


def test_outside_the_main_thread_there_are_no_handlers():
    found = []

    def enter():
        with Signals():
            found.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert found == [before]  # empty if entering had failed


def test_the_interpreter_s_end_does_not_look_through_all_objects(root, tmp_path, monkeypatch):
    """That took a second of a core, and most of the time between SIGTERM and the end of a small run."""
    registered = []
    monkeypatch.setattr(atexit, "register", lambda function, *_: registered.append(function))
    monkeypatch.setattr(run, "train", lambda *_: registered.append("trained"))
    command.main(["--config", str(root / "x.yaml"), f"out={tmp_path / 'x'}"])
    assert registered[-2:] == [gc.freeze, "trained"]


def is_running(pid):
    """Also a process that has ended is there until its parent, which may be no good one, has noticed."""
    with suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_test_leaves_no_process_behind():
    """Neither a group that it waits for in vain, nor, if the tests themselves are killed, what they had started."""
    process = in_group(["sh", "-c", "sleep 60 & echo $! >&2; wait"])
    pids = [process.pid, int(process.stderr.readline())]
    with pytest.raises(subprocess.TimeoutExpired):
        end(process, 0, seconds=0.1)
    assert all(map(is_running, pids))
    kill_launched()
    ours, theirs = Pipe()

    def die():
        theirs.send(in_group(["sleep", "60"]).pid)
        os.kill(os.getpid(), signal.SIGKILL)

    get_context("fork").Process(target=die).start()
    pids.append(ours.recv())
    until = time.monotonic() + 10
    while any(map(is_running, pids)):
        assert time.monotonic() < until
        time.sleep(0.01)
