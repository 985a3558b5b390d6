"""Several processes train as one does: the same bits, whoever takes which batch; and they fail and end together.

Shards, whose sums PyTorch makes, train as one to rounding.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from partly import partly
from pytest import approx
from refusals import refused
from runs import (
    assert_same,
    assert_uninterrupted,
    dev_losses,
    end,
    history,
    launch,
    status_of,
    stop,
    train,
    wait_for_state,
    weights,
)
from small import each, options, rows, slow
from torch.testing import assert_close

from asr import device as devices
from asr.cli import train as command
from asr.errors import UserError
from asr.models.recognizer import load
from asr.training.checkpoint import Checkpoints
from asr.training.distributed import launch as launching
from asr.training.distributed.fsdp import ShardedModel
from asr.training.distributed.group import Group
from asr.training.session import Session
from asr.training.settings import LoopSettings
from asr.training.signals import Stopped

TWICE = ["training.epochs=2", "training.accumulate=4"]
STILL = [*TWICE, "model.encoder.dropout=0", "model.decoder.dropout=0"]
ENDLESS = [*STILL, "training.save_steps=1", "training.epochs=500"]
LONG = [*ENDLESS, "training.processes=2"]
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(scope="module")
def alone(root):
    return root / "alone", weights(train(root, root / "alone", *STILL, "training.processes=1"))


CHUNKS = ["model.encoder.chunk={frames: [2, whole, 4], left: 1}"]
MUON = ["optimizer={kind: muon, lr: 4e-3}", "training.precision=bf16", "training.clip=0.5"]


@slow
@each("more, size", [(CHUNKS, 4), (MUON, 3)])
def test_the_number_of_processes_changes_no_bit(root, tmp_path, more, size):
    """With dropout, masks and validation; begun by one process, gone on by several."""
    one, x, more = tmp_path / "one", tmp_path / "x", [*more, *TWICE, "training.save_steps=1"]
    alone = one, weights(train(root, one, *more, "training.processes=1"))
    stop(root, x, 1, *more, "training.processes=1")
    assert_uninterrupted(root, x, alone, *more, f"training.processes={size}")


@slow
@each("before", ["true", "false"])
def test_shards_change_nothing_and_continue(root, alone, tmp_path, before):
    """Two processes that hold half of each weight; the last step's third batch has no partner.

    But for rounding, and for the keys' biases, which softmax ignores: their gradient is nothing but rounding.
    """
    out, more = tmp_path / "x", [*STILL, "training.processes=2"]
    process = launch(root, out, *more, "training.save_steps=1", f"training.shard={before}")
    wait_for_state(out, 1, process)
    process.terminate()
    end(process, 128 + signal.SIGTERM)
    after = {"true": "false", "false": "true"}[before]
    made = weights(train(root, out, *more, f"training.shard={after}"))
    assert dev_losses(out) == approx(dev_losses(alone[0]), rel=1e-5)
    counted = [name for name in made if not name.endswith("key.bias")]
    got, expected = ([each[name] for name in counted] for each in (made, alone[1]))
    assert_close(got, expected, rtol=1e-3, atol=1e-4)


@each("size, batches", [(2, 3), (2, 4), (4, 5), (3, 1)])
def test_a_batch_that_a_step_lacks_is_made_up_by_one_without_weight(size, batches):
    """All shares are as long, every batch is in one of them, and its place is one of the step's."""
    step, shards, shares = [[10 + n] for n in range(batches)], object.__new__(ShardedModel), []
    for rank in range(size):
        shards.group = Group(rank, size)
        shares.append(shards.share(step))
    assert len(set(map(len, shares))) == 1
    parts = sum(shares, [])
    weighted = sorted(part for part in parts if part[2])
    assert weighted == [(n, batch, 1.0) for n, batch in enumerate(step)]
    assert all(batch == step[slot] for slot, batch, _ in parts)


@slow
def test_one_process_has_nothing_to_shard(root, alone, tmp_path):
    how = ["training.processes=1", "training.shard=true"]
    assert_uninterrupted(root, tmp_path / "x", alone, *STILL, *how)


@slow
def test_torchrun_changes_nothing(root, alone, tmp_path):
    said = end(launch(root, tmp_path / "x", *STILL, through=TORCHRUN), 0)
    assert said.count("everything goes to") == said.count("finished: ") == 1
    assert_same(weights(load(tmp_path / "x")), alone[1])
    assert history(tmp_path / "x") == history(alone[0])


MISTAKES = """
tokenizer=nowhere     | nowhere/tokenizer.json: no
training.accumulate=1 | training.accumulate: got 1
"""


@pytest.mark.slow
@each("mistake, told", rows(MISTAKES))
def test_a_mistake_under_torchrun_is_said_once(root, tmp_path, mistake, told):
    """One that is found before PyTorch is imported, and one that the first finds while others wait."""
    said = end(launch(root, tmp_path / "x", *STILL, mistake, through=TORCHRUN), 1)
    assert said.count("train.py: ") == 1, said
    assert told in said and "line " not in said.split(told)[0]  # no traceback before it


@each("seconds", partly([0.1, 1.0, 2.0], 3))
def test_the_second_process_that_torchrun_ends_says_nothing(root, tmp_path, monkeypatch, seconds):
    """However far it has come until the first has told its mistake."""
    monkeypatch.setenv("LOCAL_RANK", "1")
    process = launch(root, tmp_path / "x", "tokenizer=nowhere")
    time.sleep(seconds)
    process.terminate()
    assert end(process, -signal.SIGTERM) == ""


@slow
def test_a_training_that_is_stopped_under_torchrun_says_so_once(root, tmp_path):
    process = launch(root, tmp_path / "x", *ENDLESS, through=TORCHRUN)
    wait_for_state(tmp_path / "x", 1, process)
    process.terminate()
    said = process.communicate(timeout=90)[1]
    assert said.count("train.py: stopped; ") == 1, said


def test_a_mistake_that_the_second_process_alone_meets_is_said_by_it(monkeypatch):
    monkeypatch.setattr(command, "SPEAKS", False)
    monkeypatch.setattr(command, "WAIT", 0.01)
    with pytest.raises(UserError, match="alone"), command.reported_once():
        raise UserError("alone")


@slow
def test_asked_to_end_all_end_and_their_data_workers_too(root, tmp_path):
    out = tmp_path / "x"
    process = launch(root, out, *LONG, "data.workers=2")
    wait_for_state(out, 1, process)
    os.killpg(process.pid, signal.SIGTERM)
    said = end(process, 128 + signal.SIGTERM)
    assert "Traceback" not in said and said.count("all is saved") == 1


@slow
def test_a_killed_process_ends_all(root, tmp_path):
    process = launch(root, tmp_path / "x", *LONG)
    wait_for_state(tmp_path / "x", 3, process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
    _, second = (pid for pid in children if b"spawn_main" in commands[pid])
    os.kill(int(second), signal.SIGKILL)
    killed = "training process 1 of 2 was killed; out of memory? The same command continues the run"
    assert killed in end(process, 1)


def fail_in_the_second(group):
    if group.rank:
        1 / 0  # noqa: B018
    group.add(torch.zeros(1))


def fail_beside_a_deaf_one(group):
    """As on GPUs: who waits in a reduction hears no signal, and NCCL's groups are destroyed together."""
    dist.destroy_process_group = lambda: time.sleep(50)
    if group.rank:
        1 / 0  # noqa: B018
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(50)


SECOND = r"(?s)training process 1 of 2 failed:.*ZeroDivisionError"


def test_an_error_is_that_of_the_process_that_failed_first():
    with pytest.raises(launching.ProcessFailed, match=SECOND):
        launching.spawn(fail_in_the_second, 2)


@slow
def test_a_failed_process_ends_though_the_others_hear_nothing(monkeypatch):
    monkeypatch.setattr(launching, "GRACE", 0.2)
    began = time.monotonic()
    with pytest.raises(launching.ProcessFailed, match=SECOND):
        launching.spawn(fail_beside_a_deaf_one, 2)
    assert time.monotonic() - began < 45


@slow
def test_a_process_that_is_killed_before_it_has_its_data_ends_all():
    """As by a system without memory for another copy."""
    program = """
import signal
from asr.training.distributed.launch import ProcessFailed, spawn
class Deadly:
    def __reduce__(self): return signal.raise_signal, (signal.SIGKILL,)
try:
    spawn(print, 2, Deadly(), bytes(1_000_000))
except ProcessFailed as failed:
    print(failed)
"""
    run = subprocess.run([sys.executable, "-c", program], timeout=60, capture_output=True)
    assert re.match(rb"training process \d of 2 was killed; out of memory\?", run.stdout), run


def be_interrupted(group):
    raise KeyboardInterrupt


def stop_in_the_first(group):
    """As in a validation, which each process leaves at once, and for which the others fail."""
    if group.leads:
        raise Stopped(signal.SIGTERM)
    group.add(torch.zeros(1))


@pytest.mark.slow
@each("task, number", [(stop_in_the_first, signal.SIGTERM), (be_interrupted, signal.SIGINT)])
def test_an_interrupt_and_a_stop_are_no_success(tmp_path, monkeypatch, task, number):
    """Before training has its handlers, too; and the folder to meet in may have any name."""
    (tmp_path / "two words").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "two words"))
    monkeypatch.setattr(launching, "PATIENCE", launching.PATIENCE / 20_000)
    with pytest.raises(Stopped) as stopped:
        launching.spawn(task, 2)
    assert stopped.value.status == 128 + number


def test_a_gpu_for_each_process(monkeypatch):
    """Which computes as the one that chose the device does."""
    chosen = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    assert Group(5, 8, local=1).device(GPU) == torch.device("cuda", 1) and chosen == [1]
    assert not torch.backends.cudnn.allow_tf32 and not torch.backends.cuda.cudnn_sdp_enabled()
    refused("2 GPUs for 3 processes or more on this machine", Group(2, 3, local=2).device, GPU)


def test_processes_wait_for_each_other_shorter_in_a_step_than_in_between(tmp_path, monkeypatch):
    meeting = dist.FileStore(str(tmp_path / "x"), 1)
    dist.init_process_group("gloo", store=meeting, rank=0, world_size=1)
    try:
        options = dist.group.WORLD._get_backend(GPU).options  # gloo, in its place
        before = options._timeout
        launching.limit_steps()
        assert options._timeout == before
        monkeypatch.setattr(launching, "_backend", lambda: "cpu:gloo,cuda:nccl")
        launching.limit_steps()
        assert options._timeout == launching.STEP_PATIENCE < launching.PATIENCE
    finally:
        dist.destroy_process_group()


@slow
def test_several_gpus_are_left_to_the_processes_that_are_to_have_them(monkeypatch):
    """Of a GPU that takes one process at a time the parent must make no use, but it learns whether it works."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: pytest.fail("the parent computes"))
    assert "the GPU can't be used" in devices._gpu_problem(apart=True)  # by a child, which has none


def test_processes_that_find_different_states_are_told(tmp_path, monkeypatch):
    session = object.__new__(Session)
    session.out, session.group = tmp_path, Group(1, 2)
    session.checkpoints = Checkpoints(tmp_path, 2, print)
    monkeypatch.setattr(Group, "share", lambda self, make: {"step": 7})
    said = "process 1 finds no training state there, the first the state of step 7; "
    refused(f"{tmp_path}: {said}", session.load)


def test_threads_do_not_depend_on_the_number_of_processes(monkeypatch):
    """But on that of the batches of a step, since sums depend on threads."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 16)
    assert {launching.threads_each(size, 4, CPU) for size in (1, 2, 3, 4)} == {4}
    assert launching.threads_each(1, 1, CPU) == 16 and launching.threads_each(16, 40, CPU) == 1
    assert [launching.threads_each(size, 8, GPU) for size in (1, 2, 8)] == [16, 8, 2]


@slow
def test_threads_are_those_asked_for():
    before = torch.get_num_threads()
    with launching.computing_with(3):
        check_threads(None, 3)
    launching.spawn(check_threads, 2, 3, threads=3)
    assert torch.get_num_threads() == before


def check_threads(group, expected):
    assert torch.get_num_threads() == expected


def test_no_more_processes_than_batches_in_a_step():
    launching.check(4, 4)
    assert launching.count(8, 3, CPU) == 3


def test_too_many_processes_are_refused():
    batches = "training.accumulate: got 2 batches an optimizer step for 4 processes"
    refused(batches, launching.check, 4, 2)
    cores = "training.processes: got 100000, expected at most .* cores"
    refused(cores, launching.count, 10**5, 3, CPU)
    refused("training.processes: got 99, but there are .* GPUs", launching.count, 99, 99, GPU)


# settings | the device | by a launcher | how many GPUs train
EMPLOYED = """
accumulate: 4                | cuda |     | 4
accumulate: 16               | cuda |     | 8
accumulate: 4, device: cpu   | cuda |     | 0
accumulate: 4, processes: 2  | cuda |     | 0
accumulate: 4                | cuda | yes | 0
accumulate: 4                | cpu  |     | 0
"""


@each("settings, device, launched, expected", rows(EMPLOYED))
def test_all_gpus_are_those_that_a_step_has_work_for(
    monkeypatch, stderr, settings, device, launched, expected
):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.setattr(launching, "choose", lambda **_: (torch.device(device), "chosen"))
    monkeypatch.setattr(launching, "launched", lambda: bool(launched))
    assert launching.employable(LoopSettings(epochs=1, **options(settings))) == int(expected)
    said = "8 GPUs, of which 4 train, one a batch of a step; training.accumulate=8 employs all"
    assert (said in stderr()) == (expected == "4")


# --gpus | how many there are | the device | the processes
GIVEN = """
2   | 3 | cuda | 2
all | 3 | cuda | 3
all | 0 | cpu  | None
"""


@each("given, there, device, processes", rows(GIVEN))
def test_the_command_trains_on_the_gpus_that_it_is_given(
    root, monkeypatch, given, there, device, processes
):
    monkeypatch.setattr(launching, "employable", lambda settings: int(there))
    arguments = ["--config", f"{root}/x.yaml", "--gpus", given]
    training = command.load(command.arguments().parse_args(arguments)).training
    assert (training.device, str(training.processes)) == (device, processes)


@each("given", ["0", "-1", "some"])
def test_a_number_of_gpus_that_is_none_is_refused(root, given, stderr):
    assert status_of(command.main, "--config", f"{root}/x.yaml", f"--gpus={given}") == 2
    assert f"--gpus {given}: expected a number from 1 on, or all" in stderr()
