"""A disk without room: states, weights and figures end a training in one line, and all that was saved stays; curves,
pictures and the log are told of once, and it goes on.
"""

import errno
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from runs import assert_same, assert_uninterrupted, make_root, train, weights

from asr import files
from asr.errors import UserError
from asr.training import checkpoint, folder, metrics, monitor
from asr.training.identity import stamp_of
from asr.training.tensorboard import Board

FULL = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make_root(tmp_path_factory.mktemp("full"))


@pytest.fixture(scope="module")
def whole(root):
    return root / "whole", weights(train(root, root / "whole"))


def no_room(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.slow
def test_a_state_without_room_ends_it_and_the_one_before_stays(root, whole, tmp_path, monkeypatch):
    out, save, calls = tmp_path / "x", checkpoint._save, []

    def filling(*arguments):
        calls.append(1)
        (no_room if len(calls) > 4 else save)(*arguments)

    with monkeypatch.context() as patched, pytest.raises(UserError) as told:
        patched.setattr(checkpoint, "_save", filling)
        train(root, out, "training.save_steps=1")
    newest = max((out / "checkpoints").glob("state-*"))
    assert "state-000004" in newest.name and "\n" not in str(told.value)
    assert "can't be written (No space left on device)" in str(told.value)
    assert str(newest) in str(told.value)
    assert not list(out.rglob(".partial*"))
    assert_uninterrupted(root, out, whole)


@FULL
def test_figures_without_room_end_it(root, tmp_path, monkeypatch):
    full = lambda path, text: files.append_text("/dev/full", text)  # noqa: E731
    monkeypatch.setattr(metrics, "append_text", full)
    message = r"can't be written \(No space left on device\).*there is no training state"
    with pytest.raises(UserError, match=message):
        train(root, tmp_path / "x", "training.log_every=1")


@pytest.mark.parametrize("name", ["train.log", pytest.param("tensorboard", marks=pytest.mark.slow)])
def test_a_log_or_a_board_without_a_place_is_told_of_once(root, whole, tmp_path, capsys, name):
    """A log on a full disk; a file where the board's folder would be."""
    out = tmp_path / "x"
    out.mkdir()
    stamp = stamp_of(root / "x.yaml", [f"out={out}", "training.epochs=3"])
    (out / "run.json").write_text(folder.facts_of(stamp))  # it has begun
    (out / name).symlink_to("/dev/full")
    assert_same(weights(train(root, out)), whole[1])
    told = {"train.log": "nothing more is logged: ", "tensorboard": "TensorBoard gets no more"}
    assert capsys.readouterr().err.count(told[name]) == 1


@FULL
def test_curves_without_room_are_told_of_once(tmp_path):
    said = []
    board = Board(tmp_path / "board", said.append)
    board.scalars("a", {"x": 1.0}, 1)
    board._file.close()
    board._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115
    board.scalars("a", {"x": 1.0, "y": 1.0}, 2)
    board.image("b", np.zeros((3, 3, 3), np.uint8), 2)
    board.close()
    assert len(said) == 1 and "board: can't be written (No space left on device)" in said[0]


def test_a_file_that_takes_part_of_a_record_is_full(tmp_path):
    said = []
    board = Board(tmp_path, said.append)
    board._file = SimpleNamespace(write=lambda data: len(data) - 1, close=lambda: None)
    board.scalars("a", {"x": 1.0}, 2)
    assert len(said) == 1


@pytest.mark.slow
def test_no_file_may_be_larger_than_so_and_no_traceback(root, tmp_path):
    """As a quota does it: logs and figures fit, weights and states do not."""
    resource = pytest.importorskip("resource")
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # noqa: E731
    command = [sys.executable, "-m", "asr.cli.train", "--config", root / "x.yaml"]
    command += [f"out={tmp_path / 'x'}", "training.epochs=1"]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, preexec_fn=limit)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "can't be written" in done.stderr and "/checkpoints/" in done.stderr


def test_the_monitor_closes_after_a_failure(tmp_path, monkeypatch):
    """What it can't write then doesn't stand in the place of what went wrong."""

    def full(*_):
        raise UserError("full")

    watching = monitor.Monitor(tmp_path / "x", ("nll", "tokens"), "tokens", 1)
    watching.step({"nll": 1.0, "tokens": 1.0}, 1.0, 1e-3, 1, 0.1, 1.0, 0.0, 1.0)
    monkeypatch.setattr(monitor, "append_text", full)
    monkeypatch.setattr(monitor.plots, "save", full)
    watching.close()
