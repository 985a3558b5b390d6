"""Memory: what a computation takes is measured, and `batch_seconds: auto` concludes from it."""

import json
import sys
from functools import partial

import pytest
import torch
from refusals import refused
from runs import assert_same, train, weights
from torch.autograd.graph import saved_tensors_hooks

from asr.errors import UserError
from asr.tasks.recognizer import RecognizerTask
from asr.training import memory
from asr.training.checkpoint import RunningAverage
from asr.training.folder import open_folder
from asr.training.identity import stamp_of
from asr.training.settings import LoopSettings

each = pytest.mark.parametrize
CPU = torch.device("cpu")
AUTO, ONE = "data.batch_seconds=auto", ["training.epochs=1", "training.processes=1"]


@pytest.fixture
def measured(monkeypatch):
    """Have a function in the place of the one that measures memory."""
    return partial(monkeypatch.setattr, memory, "peak_bytes")


@pytest.fixture
def noted(monkeypatch):
    """Have a function note each call of the loss."""

    def noted(note):
        loss, notes = RecognizerTask.loss, []

        def noting(self, model, batch, stage):
            notes.append(note(model, batch))
            return loss(self, model, batch, stage)

        monkeypatch.setattr(RecognizerTask, "loss", noting)
        return notes

    return noted


def failing(error):
    def fail(*_):
        raise error

    return fail


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is Linux's")
@each("megabytes", [100, 300, 200])
def test_the_peak_is_measured_anew_each_time(megabytes):
    taken = memory.peak_bytes(CPU, lambda: torch.ones(megabytes << 18))
    assert taken == pytest.approx(megabytes << 20, rel=0.1)


def test_what_comes_later_is_the_gradient_adams_moments_gradients_that_wait_and_the_running_average():
    model = torch.nn.Linear(300, 200)
    model.bias.requires_grad = False
    optimizer = torch.optim.AdamW([model.weight])
    model(torch.ones(1, 300)).sum().backward()
    optimizer.step()
    moments = [t for t in optimizer.state[model.weight].values() if t.numel() > 1]
    size = sum(t.nbytes for t in (model.weight.grad, *moments))
    average = sum(t.nbytes for t in RunningAverage(model, 0.9).averages)
    for wanted, waiting in ((False, 0), (False, 3), (True, 0)):
        expected = size + wanted * average + waiting * model.weight.nbytes
        assert memory.later_bytes(model, average=wanted, waiting=waiting) == expected


def test_free_memory_is_shared_by_processes_on_a_cpu():
    one, four = memory.free_bytes(CPU, 1), memory.free_bytes(CPU, 4)
    assert 1e8 < one < 1e14 and four == pytest.approx(one / 4, rel=0.1)


@pytest.mark.slow
def test_batches_as_large_as_memory_allows(root, tmp_path, monkeypatch, stderr, measured, noted):
    """Where a second of padded audio takes 1 MB, and 12.4 MB are free."""
    sizes = noted(lambda model, batch: batch.elements / 8000)
    monkeypatch.setattr(memory, "free_bytes", lambda device, processes: 12.4e6 / processes)
    monkeypatch.setattr(memory, "later_bytes", lambda *_, **__: 0)
    measured(lambda device, compute: (compute(), sizes[-1] * 1e6)[1])
    made = weights(train(root, tmp_path / "x", AUTO, "training.epochs=1"))
    tried = sizes[: next(n for n, size in enumerate(sizes) if size > 12.4 / 4) + 1]
    assert len(tried) > 2 and tried == sorted(tried)
    assert json.loads((tmp_path / "x/batch_seconds.json").read_text()) == 12.0
    assert "data.batch_seconds: auto: 12 s of audio fit in memory" in stderr()
    expected = train(root, tmp_path / "y", "data.batch_seconds=12", "training.epochs=1")
    assert_same(made, weights(expected))


@pytest.mark.slow
def test_all_layers_are_measured(root, tmp_path, measured, noted):
    """Of those that LayerDrop leaves out in training, too."""
    dropouts = noted(lambda model, batch: model.model.encoder.layer_dropout)

    def measure(device, compute):
        dropouts.clear()
        compute()
        assert dropouts == [0.0]
        return 1e15

    measured(measure)
    train(root, tmp_path / "x", AUTO, *ONE, "model.encoder.layer_dropout=0.5")
    assert len(dropouts) > 1 and set(dropouts[1:]) == {0.5}


@pytest.mark.slow
def test_what_recomputing_saves_is_measured(root, tmp_path, measured):
    """The memory that the forward pass keeps for the backward pass, of two layers with dropout."""
    kept = {"false": 0, "true": 0}

    def measure(device, compute):
        with saved_tensors_hooks(lambda x: sizes.append(x.numel()) or x, lambda x: x):
            compute()
        return 1e15

    measured(measure)
    for name in kept:
        sizes = []
        train(root, tmp_path / name, AUTO, *ONE, f"training.activation_checkpointing={name}")
        kept[name] = sum(sizes)
    assert 0 < kept["true"] < 0.8 * kept["false"]


@pytest.mark.slow
def test_what_was_settled_stays_when_a_run_goes_on(root, tmp_path, measured):
    out, epoch = tmp_path / "x", "training.epochs=1"
    overrides = [f"out={out}", "training.epochs=3", AUTO, epoch]
    open_folder(out, stamp_of(root / "x.yaml", overrides))[1].close()
    (out / "batch_seconds.json").write_text("8.0")
    measured(lambda *_: pytest.fail("it was settled"))
    made, plain = train(root, out, AUTO, epoch), train(root, tmp_path / "y", epoch)
    assert_same(weights(made), weights(plain))  # whose batches have 8 s


UNTOLD = "this system doesn't tell .*clear_refs.*give a num"


@each("error, told", [
    (torch.OutOfMemoryError("no"), "the longest utterance doesn't fit in memory; lower"),
    (FileNotFoundError(2, "No", "/proc/clear_refs"), UNTOLD),
])  # fmt: skip
def test_what_cannot_be_measured_is_told(root, tmp_path, measured, error, told):
    measured(failing(error))
    refused(f"data.batch_seconds: auto: {told}", train, root, tmp_path / "x", AUTO, *ONE)


def test_settings_that_exclude_each_other():
    with pytest.raises(ValueError, match="ema: can't be had with shard"):
        LoopSettings(epochs=1, shard=True, ema=0.9)


ALLOCATOR = "[enforce fail at alloc_cpu.cpp:1] . DefaultCPUAllocator: can't allocate memory: you"
WORKER = "data worker was killed.*data.workers"


@each("place", ["torch.optim.AdamW.step", "asr.training.run.WholeModel"])
@each("fault, told", [
    (RuntimeError(ALLOCATOR), "out of memory"),
    (MemoryError(), "out of memory"),
    (RuntimeError("DataLoader worker (pid 12) is killed by signal: Killed. "), WORKER),
    (RuntimeError("DataLoader worker (pid(s) 12, 13) exited unexpectedly"), WORKER),
])  # fmt: skip
def test_memory_that_is_out_anywhere_is_told_in_one_line(
    root, tmp_path, monkeypatch, place, fault, told
):
    """Within the loop with what stays; and before it."""
    monkeypatch.setattr(place, failing(fault))
    stays = "no training state" if "step" in place else ""
    refused(rf"^training: .*{told}[^\n]*{stays}[^\n]*\Z", train, root, tmp_path / "x")


def test_a_great_number_of_data_workers_is_refused(root, tmp_path):
    refused(
        "data.workers: got 100000, expected at most 256",
        train,
        root,
        tmp_path / "x",
        "data.workers=100000",
    )


def test_shared_memory_that_is_out_is_told():
    error = RuntimeError("DataLoader worker (pid 7) is killed by signal: Bus error. It is …")
    with pytest.raises(UserError, match="/dev/shm.*--shm-size.*data.workers"), memory.explain_oom():
        raise error
