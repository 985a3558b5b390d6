"""Training runs on the constructed corpus (tones.py), and what is compared of them."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from unittest import mock

import pytest
import torch
from tones import CONFIG, write_corpus

from asr import config, tasks
from asr.data.prepare import prepare
from asr.text import tokenizer
from asr.training import run
from asr.training.identity import stamp_of
from asr.training.metrics import TIMES, MetricsFile
from asr.training.plots import Plots
from asr.training.trainer import Trainer

PRCTL, PR_SET_PDEATHSIG = ctypes.CDLL(None).prctl if sys.platform == "linux" else None, 1


def make_root(root):
    """A corpus, its manifests and tokenizer, and a configuration: x.yaml."""
    write_corpus(root / "corpus", {"train": 40, "dev": 8})
    prepare("tsv", root / "corpus", root / "data")
    tokenizer.train("characters", ["LOW MID HIGH"]).save(root / "tokenizer")
    (root / "x.yaml").write_text(CONFIG.format(root=root))
    return root


def experiment(root, *overrides, name="x"):
    """The settings of the YAML, unless overridden."""
    return config.load(tasks.Experiment, root / f"{name}.yaml", overrides)


def train(root, out, *overrides, name="x"):
    """Three epochs of five steps, unless overridden, in the folder `out`; the model."""
    return train_as_is(root, out, "training.epochs=3", *overrides, name=name)


def train_as_is(root, out, *overrides, name="x"):
    """As the YAML says, unless overridden, in the folder `out`, without plots, which take longest; the model."""
    arguments = (root / f"{name}.yaml", [f"out={out}", *overrides])
    with mock.patch.object(Plots, "offer"):
        return run.train(config.load(tasks.Experiment, *arguments), stamp_of(*arguments))


def history(out):
    """The lines of metrics.jsonl, without the times in them."""
    lines = MetricsFile(out / "metrics.jsonl").read()
    return [{name: value for name, value in line.items() if name not in TIMES} for line in lines]


def dev_losses(out):
    """The loss of each validation."""
    return [line["loss"] for line in history(out) if line["kind"] == "dev"]


def weights(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_same(got, expected):
    """To the bit."""
    torch.testing.assert_close(got, expected, rtol=0, atol=0)


class Stop(Exception):
    pass


def stopping(monkeypatch, stop_at):
    """Have training fail when `stop_at` steps are done."""
    step = Trainer.train_step

    def stop(self, *arguments):
        if self.progress.step == stop_at:
            raise Stop
        return step(self, *arguments)

    monkeypatch.setattr(Trainer, "train_step", stop)


def stop(root, out, stop_at, *overrides):
    """Train until `stop_at` steps are done, and fail."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stop):
        stopping(patch, stop_at)
        train(root, out, *overrides)


def assert_uninterrupted(root, out, whole, *overrides):
    """Go on with a run: weights and metrics come to be, to the bit, those of `whole`, a folder and its weights."""
    assert_same(weights(train(root, out, *overrides)), whole[1])
    assert history(out) == history(whole[0])


def assert_processes_change_nothing(root, folder, *overrides, counts=(1, 2)):
    """Weights and metrics of several processes are, to the bit, those of one; return the folder of one."""
    accumulate = f"training.accumulate={max(3, *counts)}"
    runs = []
    for n in counts:
        out = folder / str(n)
        model = train_as_is(root, out, accumulate, f"training.processes={n}", *overrides)
        runs.append((weights(model), history(out)))
    for found, lines in runs[1:]:
        assert_same(found, runs[0][0])
        assert lines == runs[0][1]
    return folder / str(counts[0])


def status_of(main, *arguments):
    """Run a command in this process; its exit status."""
    try:
        main([*map(str, arguments)])
    except SystemExit as ended:
        return ended.code
    return 0


LAUNCHED = []  # processes that a test has started, each with a process group of its own


def in_group(command):
    """Start a process in a group of its own, which ends with its test, and with the one that runs the tests."""
    how = {"start_new_session": True, "preexec_fn": end_with_parent}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **how)
    LAUNCHED.append(process)
    return process


def end_with_parent():
    if PRCTL:
        PRCTL(PR_SET_PDEATHSIG, signal.SIGTERM)


def kill_launched():
    """Kill what a test has left running."""
    for process in LAUNCHED:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    LAUNCHED.clear()


def launch(root, out, *overrides, through=()):
    """Start asr-train as a process of its own, in a process group of its own; through: a launcher's arguments."""
    command = [sys.executable, *through, "-m", "asr.cli.train", "--config", f"{root}/x.yaml"]
    return in_group([*command, f"out={out}", "training.epochs=3", *overrides])


def wait_for_state(out, number, process):
    """Wait until a run has written so many training states."""
    while not list((out / "checkpoints").glob(f"state-{number:06d}-*")):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)


def end(process, status, seconds=90):
    """Wait for a process to end with a status; what it said on stderr."""
    _, said = process.communicate(timeout=seconds)
    assert process.returncode == status, said
    return said
