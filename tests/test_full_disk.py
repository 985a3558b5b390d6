"""A disk without room: states, weights and figures end a training in one line, and all that was saved stays; curves,
pictures and the log are told of once, and it goes on.
"""

import errno
import os
from types import SimpleNamespace

import numpy as np
import pytest
from partly import partly
from refusals import refused
from runs import assert_same, assert_uninterrupted, train, weights
from small import each, slow

from asr import files
from asr.errors import UserError
from asr.training import checkpoint, folder, metrics, monitor
from asr.training.identity import stamp_of
from asr.training.tensorboard import Board

FULL = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")


@slow
def test_a_state_without_room_ends_it_and_the_one_before_stays(root, whole, tmp_path, monkeypatch):
    out, save, calls = tmp_path / "x", checkpoint._save, []

    def filling(*arguments):
        calls.append(1)
        if len(calls) > 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save(*arguments)

    says = r"can't be written \(No space left on device\)"
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "_save", filling)
        line = refused(says, train, root, out, "training.save_steps=1")
    newest = max((out / "checkpoints").glob("state-*"))
    assert "state-000004" in newest.name and str(newest) in line
    assert not list(out.rglob(".partial*"))
    assert_uninterrupted(root, out, whole)


@FULL
def test_figures_without_room_end_it(root, tmp_path, monkeypatch):
    full = lambda path, text: files.append_text("/dev/full", text)  # noqa: E731
    monkeypatch.setattr(metrics, "append_text", full)
    message = r"can't be written \(No space left on device\).*there is no training state"
    refused(message, train, root, tmp_path / "x", "training.log_every=1")


@each("name", partly(["train.log", "tensorboard"], 2))
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


@slow
def test_no_file_may_be_larger_than_so_and_no_traceback(root, tmp_path, forks):
    """As a quota does it: logs and figures fit, weights and states do not."""
    command = f"asr-train --config {root}/x.yaml out={tmp_path}/x training.epochs=1"
    done = forks.run(command.split(), tmp_path, file_bytes=100_000)
    assert done.status == 2 and "Traceback" not in done.err
    assert "can't be written" in done.err and "/checkpoints/" in done.err


def test_the_monitor_closes_after_a_failure(tmp_path, monkeypatch):
    """What it can't write then doesn't stand in the place of what went wrong."""

    def full(*_):
        raise UserError("full")

    watching = monitor.Monitor(tmp_path / "x", ("nll", "tokens"), "tokens", 1)
    watching.step({"nll": 1.0, "tokens": 1.0}, 1.0, 1e-3, 1, 0.1, 1.0, 0.0, 1.0)
    monkeypatch.setattr(monitor, "append_text", full)
    monkeypatch.setattr(monitor.plots, "save", full)
    watching.close()
