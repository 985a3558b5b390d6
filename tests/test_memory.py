"""Memory: what a computation takes is measured, and `batch_seconds: auto` concludes from it."""

import json
import sys

import pytest
import torch
from runs import assert_same, make_root, train, weights

from asr.errors import UserError
from asr.training import memory
from asr.training.checkpoint import RunningAverage
from asr.training.folder import open_folder
from asr.training.identity import stamp_of
from asr.training.settings import LoopSettings

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make_root(tmp_path_factory.mktemp("memory"))


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is Linux's")
@pytest.mark.parametrize("megabytes", [100, 300, 200])
def test_the_peak_is_measured_anew_each_time(megabytes):
    taken = memory.peak_bytes(CPU, lambda: torch.ones(megabytes << 18))
    assert taken == pytest.approx(megabytes << 20, rel=0.1)


def test_what_comes_later_is_the_gradient_adams_moments_gradients_that_wait_and_the_running_average():
    model = torch.nn.Linear(300, 200)
    model.bias.requires_grad = False
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    model(torch.ones(1, 300)).sum().backward()
    optimizer.step()
    moments = [t for state in optimizer.state.values() for t in state.values() if t.numel() > 1]
    moments.append(model.weight.grad)
    size = sum(t.numel() * t.element_size() for t in moments)
    assert memory.later_bytes(model, average=False, waiting=0) == size
    assert (
        memory.later_bytes(model, average=False, waiting=3) == size + 3 * model.weight.numel() * 4
    )
    average = RunningAverage(model, 0.9).averages
    all_weights = sum(t.numel() * t.element_size() for t in average)
    assert memory.later_bytes(model, average=True, waiting=0) == size + all_weights


def test_free_memory_is_shared_by_processes_on_a_cpu():
    one, four = memory.free_bytes(CPU, 1), memory.free_bytes(CPU, 4)
    assert 1e8 < one < 1e14 and four == pytest.approx(one / 4, rel=0.1)


def test_batches_as_large_as_memory_allows(root, tmp_path, monkeypatch, capsys):
    """Where a second of padded audio takes 1 MB, and 12.4 MB are free."""
    from asr.tasks import recognizer as speech

    sizes, loss = [], speech.RecognizerTask.loss

    def noting(self, model, batch, epoch):
        sizes.append(batch.elements / 8000)
        return loss(self, model, batch, epoch)

    monkeypatch.setattr(speech.RecognizerTask, "loss", noting)
    monkeypatch.setattr(memory, "free_bytes", lambda device, processes: 12.4e6 / processes)
    monkeypatch.setattr(memory, "later_bytes", lambda *_, **__: 0)
    monkeypatch.setattr(
        memory, "peak_bytes", lambda device, compute: (compute(), sizes[-1] * 1e6)[1]
    )
    made = weights(train(root, tmp_path / "x", "data.batch_seconds=auto", "training.epochs=1"))
    tried = sizes[: next(n for n, size in enumerate(sizes) if size > 12.4 / 4) + 1]
    assert len(tried) > 2 and tried == sorted(tried)
    assert json.loads((tmp_path / "x/batch_seconds.json").read_text()) == 12.0
    assert "data.batch_seconds: auto: 12 s of audio fit in memory" in capsys.readouterr().err
    expected = weights(train(root, tmp_path / "y", "data.batch_seconds=12", "training.epochs=1"))
    assert_same(made, expected)


def test_all_layers_are_measured(root, tmp_path, monkeypatch):
    """Of those that LayerDrop leaves out in training, too."""
    from asr.tasks import recognizer as speech

    dropouts, loss = [], speech.RecognizerTask.loss

    def noting(self, model, batch, epoch):
        dropouts.append(model.model.encoder.layer_dropout)
        return loss(self, model, batch, epoch)

    def measure(device, compute):
        dropouts.clear()
        compute()
        assert dropouts == [0.0]
        return 1e15

    monkeypatch.setattr(speech.RecognizerTask, "loss", noting)
    monkeypatch.setattr(memory, "peak_bytes", measure)
    more = ["model.encoder.layer_dropout=0.5", "training.epochs=1", "training.processes=1"]
    train(root, tmp_path / "x", "data.batch_seconds=auto", *more)
    assert len(dropouts) > 1 and set(dropouts[1:]) == {0.5}


def test_what_recomputing_saves_is_measured(root, tmp_path, monkeypatch):
    """The memory that the forward pass keeps for the backward pass, of two layers with dropout."""
    kept = []

    def measure(device, compute):
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda x: sizes.append(x.numel()) or x, lambda x: x
        ):
            compute()
        kept.append(sum(sizes))
        return 1e15

    monkeypatch.setattr(memory, "peak_bytes", measure)
    for name in ("false", "true"):
        more = [
            "data.batch_seconds=auto",
            f"training.activation_checkpointing={name}",
            "training.epochs=1",
        ]
        train(root, tmp_path / name, *more, "training.processes=1")
    assert kept[1] < 0.8 * kept[0]


def test_what_was_settled_stays_when_a_run_goes_on(root, tmp_path, monkeypatch):
    overrides = [
        f"out={tmp_path / 'x'}",
        "training.epochs=3",
        "data.batch_seconds=auto",
        "training.epochs=1",
    ]
    open_folder(tmp_path / "x", stamp_of(root / "x.yaml", overrides))[1].close()
    (tmp_path / "x/batch_seconds.json").write_text("8.0")
    monkeypatch.setattr(memory, "peak_bytes", lambda *_: pytest.fail("it was settled"))
    made = weights(train(root, tmp_path / "x", "data.batch_seconds=auto", "training.epochs=1"))
    assert_same(
        made, weights(train(root, tmp_path / "y", "training.epochs=1"))
    )  # whose batches have 8 s


def test_an_utterance_that_does_not_fit_is_told(root, tmp_path, monkeypatch):
    def fail(device, compute):
        raise torch.OutOfMemoryError("no")

    monkeypatch.setattr(memory, "peak_bytes", fail)
    with pytest.raises(
        UserError,
        match="data.batch_seconds: auto: the longest utterance doesn't fit in memory; lower",
    ):
        train(root, tmp_path / "x", "data.batch_seconds=auto")


def test_a_system_that_does_not_tell_is_told(root, tmp_path, monkeypatch):
    def fail(device, compute):
        raise FileNotFoundError(2, "No such file or directory", "/proc/self/clear_refs")

    monkeypatch.setattr(memory, "peak_bytes", fail)
    with pytest.raises(
        UserError,
        match=r"data.batch_seconds: auto: this system doesn't tell .*clear_refs.*give a num",
    ):
        train(root, tmp_path / "x", "data.batch_seconds=auto", "training.processes=1")


def test_settings_that_exclude_each_other():
    with pytest.raises(ValueError, match="ema: can't be had with shard"):
        LoopSettings(epochs=1, shard=True, ema=0.9)


FAULTS = [
    (
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:1] . DefaultCPUAllocator: can't allocate memory: you"
        ),
        "out of memory",
    ),
    (MemoryError(), "out of memory"),
    (
        RuntimeError("DataLoader worker (pid 12) is killed by signal: Killed. "),
        "data worker was killed.*data.workers",
    ),
    (
        RuntimeError("DataLoader worker (pid(s) 12, 13) exited unexpectedly"),
        "data worker was killed.*data.workers",
    ),
]


@pytest.mark.parametrize("fault, told", FAULTS)
def test_memory_that_is_out_anywhere_is_told_in_one_line(root, tmp_path, monkeypatch, fault, told):
    """Within the loop with what stays; and before it."""
    fail = lambda *_: (_ for _ in ()).throw(fault)  # noqa: E731
    with (
        monkeypatch.context() as patched,
        pytest.raises(UserError, match=f"^training: .*{told}[^\n]*no training state"),
    ):
        patched.setattr(torch.optim.AdamW, "step", fail)
        train(root, tmp_path / "x")
    with (
        monkeypatch.context() as patched,
        pytest.raises(UserError, match=f"^training: .*{told}[^\n]*$"),
    ):
        patched.setattr("asr.training.run.WholeModel", fail)
        train(root, tmp_path / "x")


def test_so_many_data_workers_are_refused(root, tmp_path):
    with pytest.raises(UserError, match="data.workers: got 100000, expected at most 256"):
        train(root, tmp_path / "x", "data.workers=100000")


def test_shared_memory_that_is_out_is_told():
    with pytest.raises(UserError, match="/dev/shm.*--shm-size.*data.workers"), memory.explain_oom():
        raise RuntimeError(
            "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible …"
        )
