"""Training states: whole or absent, never trusted. Damage in a run: tests/test_training.py."""

import contextlib
import pickle
import resource
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
import torch
from refusals import refused

from asr.files import append_text
from asr.models.folder import save_weights
from asr.training import checkpoint
from asr.training.checkpoint import Checkpoints


@pytest.fixture
def states(tmp_path):
    return Checkpoints(tmp_path / "c", 2, print)


@dataclass
class Malicious:
    """Unpickling it makes a file."""

    path: Path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_states_are_numbered_the_newest_is_read_and_the_last_stay(states):
    assert states.load() is None
    deep = {"list": [1, "a", None]}
    for n in range(12):
        path = states.save({"n": n, "x": torch.full((3,), n), "deep": deep})
        assert path.exists() and path.name.startswith(f"state-{n + 1:06d}-")
    state = states.load()
    assert (state["n"], state["x"].tolist(), state["deep"]) == (11, [11] * 3, deep)
    assert [path.name[:12] for path in states.paths()] == ["state-000012", "state-000011"]


def test_damaged_states_make_room_not_good_ones(tmp_path, states):
    good, later = states.save({"n": 1}), states.save({"n": 2})
    later.write_bytes(later.read_bytes()[:-1] + b"?")
    assert states.load()["n"] == 1
    assert states.paths() == [later, good]  # nothing is taken away before there is more
    assert [states.save({"n": 3}), good] == states.paths()
    assert Checkpoints(tmp_path / "c", 2, print).load()["n"] == 3


def test_what_a_kill_left_is_removed_and_never_read(tmp_path, states):
    (tmp_path / "c/.partial-123-state.pt").write_bytes(b"half")
    assert states.load() is None
    assert [states.save({"n": 1})] == [*(tmp_path / "c").iterdir()]


def test_a_state_runs_no_code(tmp_path, capsys, states):
    """One whose name fits its content, so that the hash is no help."""
    evil, trace = tmp_path / "evil", tmp_path / "trace"
    torch.save({"format": 1, "x": Malicious(trace)}, evil)
    evil.rename(tmp_path / f"c/state-000001-{checkpoint.digest(evil)}.pt")
    refused("c: every training state is damaged; remove them", states.load)
    assert "damaged (Weights only load failed" in capsys.readouterr().out
    assert not trace.exists()
    pickle.loads(pickle.dumps(Malicious(trace)))
    assert trace.exists()  # so it would have


def test_another_format_is_told(states, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "FORMAT", 7)
        states.save({"n": 1})
    refused("got format 7, expected 1", states.load)


@contextlib.contextmanager
def full():
    """A system on which no file may be longer than 10 kB: a write fails as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_what_cannot_be_written_is_told_whoever_writes(tmp_path, states):
    """torch and safetensors have errors of their own; figures and messages are appended."""
    module, log, file = torch.nn.Linear(300, 300), tmp_path / "log", tmp_path / "model.safetensors"
    before = states.save({"n": 1})
    log.write_text("x" * 10_000)
    attempts = {
        tmp_path / "c/state.pt": lambda: states.save({"n": 2, **module.state_dict()}),
        file: lambda: save_weights(module, file),
        log: lambda: append_text(log, "more\n"),
    }
    for path, write in attempts.items():
        with full():
            refused(rf"^{path}: can't be written \(.*too large", write)
    assert states.load()["n"] == 1 and [*(tmp_path / "c").iterdir()] == [before]
    assert {*tmp_path.iterdir()} == {tmp_path / "c", log}


def test_a_state_that_cannot_be_read_is_not_damaged(states, monkeypatch):
    """It stays, and no older one is taken for the newest."""
    states.save({"n": 1})
    newest = states.save({"n": 2})

    denied = mock.Mock(side_effect=PermissionError(13, "Permission denied", str(newest)))
    monkeypatch.setattr(checkpoint, "digest", denied)
    refused("state-000002.*: can't be read .Permission denied", states.load)
    assert newest.exists() and not states.damaged
