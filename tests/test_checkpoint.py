"""Training states: whole or absent, never trusted. Damage in a run: tests/test_training.py."""

import contextlib
import pickle
from pathlib import Path

import pytest
import torch

from asr.errors import UserError
from asr.files import append_text
from asr.models.folder import save_weights
from asr.training import checkpoint
from asr.training.checkpoint import Checkpoints


class Malicious:
    """Unpickling it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_states_are_numbered_the_newest_is_read_and_the_last_stay(tmp_path):
    states = Checkpoints(tmp_path / "c", 2, print)
    assert states.load() is None
    for n in range(12):
        path = states.save({"n": n, "x": torch.full((3,), n), "deep": {"list": [1, "a", None]}})
        assert path.exists() and path.name.startswith(f"state-{n + 1:06d}-")
    state = states.load()
    assert (
        state["n"] == 11
        and torch.equal(state["x"], torch.full((3,), 11))
        and state["deep"] == {"list": [1, "a", None]}
    )
    assert [path.name[:12] for path in states.paths()] == ["state-000012", "state-000011"]


def test_damaged_states_make_room_not_good_ones(tmp_path):
    states = Checkpoints(tmp_path / "c", 2, lambda _: None)
    good, later = states.save({"n": 1}), states.save({"n": 2})
    later.write_bytes(later.read_bytes()[:-1] + b"?")
    assert states.load()["n"] == 1
    assert states.paths() == [later, good]  # nothing is taken away before there is more
    newest = states.save({"n": 3})
    assert (
        states.paths() == [newest, good] and Checkpoints(tmp_path / "c", 2, print).load()["n"] == 3
    )


def test_what_a_kill_left_is_removed_and_never_read(tmp_path):
    states = Checkpoints(tmp_path / "c", 2, print)
    (tmp_path / "c/.partial-123-state.pt").write_bytes(b"half")
    assert states.load() is None
    states.save({"n": 1})
    assert [path.name for path in (tmp_path / "c").iterdir()] == [states.paths()[0].name]


def test_a_state_runs_no_code(tmp_path):
    """One whose name fits its content, so that the hash is no help."""
    said = []
    states = Checkpoints(tmp_path / "c", 2, said.append)
    torch.save({"format": 1, "x": Malicious(tmp_path / "trace")}, tmp_path / "evil")
    (tmp_path / "evil").rename(
        tmp_path / f"c/state-000001-{checkpoint.digest(tmp_path / 'evil')}.pt"
    )
    with pytest.raises(
        UserError, match="c: every training state is damaged; remove them to begin this run anew"
    ):
        states.load()
    assert not (tmp_path / "trace").exists() and "damaged (Weights only load failed" in said[0]
    with pytest.raises(FileNotFoundError):
        pickle.loads(pickle.dumps(Malicious(tmp_path / "no" / "where")))  # it would have


def test_another_format_is_told(tmp_path, monkeypatch):
    states = Checkpoints(tmp_path / "c", 2, print)
    monkeypatch.setattr(checkpoint, "FORMAT", 7)
    states.save({"n": 1})
    monkeypatch.undo()
    with pytest.raises(UserError, match="got format 7, expected 1: another version has written it"):
        states.load()


@pytest.fixture
def full():
    """A system on which no file may be longer than 10 kB: a write fails as on a full disk."""
    resource = pytest.importorskip("resource")  # not on Windows

    @contextlib.contextmanager
    def limited():
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return limited


def test_what_cannot_be_written_is_told_whoever_writes(tmp_path, full):
    """torch and safetensors have errors of their own; figures and messages are appended."""
    module, states, said = torch.nn.Linear(300, 300), Checkpoints(tmp_path / "c", 1, print), []
    states.save({"n": 1})
    (tmp_path / "log").write_text("x" * 10_000)
    attempts = {
        "c/state.pt": lambda: states.save({"n": 2, **module.state_dict()}),
        "model.safetensors": lambda: save_weights(module, tmp_path / "model.safetensors"),
        "log": lambda: append_text(tmp_path / "log", "more\n"),
    }
    for name, write in attempts.items():
        with full(), pytest.raises(UserError) as error:
            write()
        said.append(str(error.value))
        assert (
            said[-1].startswith(f"{tmp_path / name}: can't be written (")
            and "too large" in said[-1]
        )
    assert states.load()["n"] == 1 and len(list((tmp_path / "c").iterdir())) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"c", "log"}


def test_a_state_that_cannot_be_read_is_not_damaged(tmp_path, monkeypatch):
    """It stays, and no older one is taken for the newest."""
    states = Checkpoints(tmp_path / "c", 2, print)
    states.save({"n": 1})
    newest = states.save({"n": 2})

    def denied(*_):
        raise PermissionError(13, "Permission denied", str(newest))

    monkeypatch.setattr(checkpoint, "digest", denied)
    with pytest.raises(
        UserError, match="state-000002.*: can't be read .Permission denied.; fix that, or move"
    ):
        states.load()
    assert newest.exists() and not states.damaged


def test_a_full_disk_leaves_the_states_that_were(tmp_path, monkeypatch):
    states = Checkpoints(tmp_path / "c", 1, print)
    states.save({"n": 1})

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(UserError, match="can't be written .No space left on device"):
        states.save({"n": 2})
    assert states.load()["n"] == 1 and len(list((tmp_path / "c").iterdir())) == 1
