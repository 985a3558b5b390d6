"""Prove that each setting of scripts/ablation.py is one, and that its trainings keep their shares and their time."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest
from checkouts import ROOT, write_program

from asr import config
from asr.data import manifest
from asr.data.manifest import Utterance
from scripts import ablation

PLANS = {path.stem: config.load(ablation.Plan, path) for path in ablation.PLANS.glob("*.yaml")}
PLAN = PLANS["an4"]


def experiment(*overrides, epochs=50, plan=PLAN):
    return plan.experiment(ablation.scaled(plan, [*plan.base, *overrides], epochs))


@pytest.mark.parametrize("name", PLANS)
def test_every_setting_is_an_experiment_of_its_own(name):
    settings = [[], *PLANS[name].settings.values()]
    made = {config.dump(experiment(*setting, plan=PLANS[name])) for setting in settings}
    assert len(made) == len(settings) > 8


def test_what_is_counted_in_epochs_or_steps_keeps_its_share():
    """The base: 64 epochs, 8 of them unmasked, 200 steps of warm-up."""
    made, one = experiment(), experiment(epochs=1)
    masks = made.features.specaugment
    assert (made.training.epochs, masks.from_epoch, made.schedule.warmup) == (50, 6, 156)
    assert (made.model.flat_start_epochs, made.training.validate_every) == (1, 5)
    assert experiment("model.flat_start_epochs=0").model.flat_start_epochs == 0
    assert experiment("data.concatenate={from_epoch: 32}").data.concatenate.from_epoch == 25
    assert (one.training.epochs, one.training.validate_every, one.schedule.warmup) == (1, 1, 3)


@pytest.mark.parametrize(
    "seconds, epoch, rest, expected", [(600, 5.0, 4.0, 114), (60, 30.0, 10.0, 1), (3600, 9, 0, 400)]
)
def test_epochs_fill_the_time(seconds, epoch, rest, expected):
    assert ablation.epochs_within(seconds, epoch, rest) == expected


def test_the_pace_is_of_a_late_epoch(monkeypatch, tmp_path):
    """Neither in order of length, which pads less, nor unmasked, nor of CTC alone; 3 s of it aren't of its steps."""
    trained, lines = [], '{"kind": "train", "s_per_second": 60.0}\n{"kind": "dev"}\n'

    def train(plan, folder, overrides):
        trained.append(plan.experiment(overrides))
        (folder / "model").mkdir(exist_ok=True)
        (folder / "model/metrics.jsonl").write_text(lines)
        return 23.0

    monkeypatch.setattr(ablation, "train", train)
    monkeypatch.setattr(ablation, "audio", lambda plan, overrides: 1200.0)
    assert ablation.pace(PLAN, tmp_path, ["data.sorted_epochs=1"]) == (60.0, 3.0)
    ablation.pace(PLAN, tmp_path, [*PLAN.base, "seed=2"])
    plain, masked = trained
    assert (plain.training.epochs, plain.data.sorted_epochs) == (1, 0)
    # conf/an4.yaml
    assert plain.model.flat_start_epochs == 0 and plain.features.specaugment is None
    assert masked.features.specaugment.from_epoch == 0


def test_a_slower_machine_gives_more_minutes(monkeypatch, tmp_path):
    """At first the base's epoch took in 90 s of audio a second, beside this setting's own 60."""
    paces = {
        (tmp_path / "base/pace", "seed=1"): (90.0, 5.0),
        (tmp_path / "noam/base-pace", "seed=1"): (60.0, 7.0),
    }
    monkeypatch.setattr(ablation, "pace", lambda _, folder, overrides: paces[(folder, *overrides)])
    assert ablation.slowness(PLAN, tmp_path / "noam", ["seed=1"]) == 1.5


def test_a_setting_that_there_is_not_is_refused(tmp_path, capsys):
    message = "--setting more: no such setting; expected base, another_seed"
    with pytest.raises(SystemExit, match="2"):
        ablation.main([str(tmp_path), "--setting", "more"])
    assert message in capsys.readouterr().err


def test_a_setting_is_told_beside_the_base(tmp_path):
    """Of twenty words base has 2 wrong, the setting 1 of these: 5 points fewer, or none where it isn't drawn."""
    dev, base, out = tmp_path / "dev.jsonl.gz", tmp_path / "base.txt", tmp_path / "setting.txt"
    sound = "a.wav", 8000, 80_000, 1, 0.0, 10.0, "YES YES"
    manifest.write(dev, [Utterance(name, *sound) for name in "abcdefghij"])
    right = "".join(f"{name}\tYES YES\n" for name in "acdefghij")
    base.write_text(right.replace("a\tYES YES", "a\tYES NO") + "b\tYES NO\n")
    for other in (base, out):  # which isn't there yet
        assert ablation.error_rate(dev, base, other) == ["10.00", ""]
    out.write_text(f"{right}b\tYES NO\n")
    rate, difference = ablation.error_rate(dev, out, base)
    value, low, high = map(float, re.findall(r"[\d.+-]+", difference))
    assert (rate, value, high) == ("5.00", -5.0, 0.0) and -20 < low < -5


STAND_IN = """#!/bin/sh
trap 'sleep 1; : >saved; exit 130' INT
: >ready
while :; do sleep 0.1; done
"""


@pytest.mark.slow
def test_ctrl_c_waits_until_the_training_has_saved(tmp_path):
    """With a command in the training's place that takes a second for it; both are sent the signal, as by a terminal."""
    write_program(tmp_path / "python", STAND_IN)
    program = f"""import sys; sys.path.insert(0, {str(ROOT)!r}); from scripts import ablation
sys.executable = {str(tmp_path / "python")!r}; ablation.run('train')"""
    command = [sys.executable, "-c", program]
    running = subprocess.Popen(command, cwd=tmp_path, start_new_session=True)
    try:
        while not (tmp_path / "ready").exists() and running.poll() is None:
            time.sleep(0.05)
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(60) == 130 and (tmp_path / "saved").exists()
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
