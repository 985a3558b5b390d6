"""Prove that each setting of scripts/ablation.py is one, and that its trainings keep their shares and their time."""

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from asr import config
from asr.data import manifest
from asr.data.manifest import Utterance
from asr.tasks import Experiment

ROOT = Path(__file__).parents[1]


@pytest.fixture
def ablation():
    return importlib.import_module("scripts.ablation")


def test_every_setting_is_an_experiment_of_its_own(ablation):
    made = [
        config.load(Experiment, ablation.CONFIG, ablation.scaled([*ablation.BASE, *s], 50))
        for s in ablation.SETTINGS.values()
    ]
    assert len({config.dump(experiment) for experiment in made}) == len(made) > 8


def test_what_is_counted_in_epochs_or_steps_keeps_its_share(ablation):
    """The base: 64 epochs, 8 of them unmasked, 200 steps of warm-up."""
    made = config.load(Experiment, ablation.CONFIG, ablation.scaled(ablation.BASE, 50))
    assert (made.training.epochs, made.features.specaugment.from_epoch, made.schedule.warmup) == (
        50,
        6,
        156,
    )
    assert made.model.flat_start_epochs == 1
    without = config.load(
        Experiment,
        ablation.CONFIG,
        ablation.scaled([*ablation.BASE, "model.flat_start_epochs=0"], 50),
    )
    assert without.model.flat_start_epochs == 0
    assert made.training.validate_every == 5
    one = config.load(Experiment, ablation.CONFIG, ablation.scaled(ablation.BASE, 1))
    assert (one.training.epochs, one.training.validate_every, one.schedule.warmup) == (1, 1, 3)


@pytest.mark.parametrize(
    "seconds, epoch, rest, expected", [(600, 5.0, 4.0, 114), (60, 30.0, 10.0, 1), (3600, 9, 0, 400)]
)
def test_epochs_fill_the_time(ablation, seconds, epoch, rest, expected):
    assert ablation.epochs_within(seconds, epoch, rest) == expected


def test_the_pace_is_of_a_late_epoch(ablation, monkeypatch, tmp_path):
    """Neither in order of length, which pads less, nor unmasked, nor of CTC alone; 3 s of it aren't of its steps."""

    def train(folder, overrides):
        trained.append(config.load(Experiment, ablation.CONFIG, overrides))
        (folder / "model").mkdir()
        (folder / "model/metrics.jsonl").write_text(
            '{"kind": "train", "s_per_second": 60.0}\n{"kind": "dev"}\n'
        )
        return 23.0

    trained = []
    monkeypatch.setattr(ablation, "train", train)
    monkeypatch.setattr(ablation, "audio", lambda overrides: 1200.0)
    assert ablation.pace(tmp_path, ["data.sorted_epochs=1"]) == (60.0, 3.0)
    (made,) = trained
    assert (made.training.epochs, made.data.sorted_epochs) == (1, 0)
    assert (made.features.specaugment, made.model.flat_start_epochs) == (
        None,
        0,
    )  # of conf/an4.yaml
    with_masks = [*ablation.BASE, "seed=2"]
    (tmp_path / "masks").mkdir()
    ablation.pace(tmp_path / "masks", with_masks)
    assert trained[1].features.specaugment.from_epoch == 0


def test_a_slower_machine_gives_more_minutes(ablation, monkeypatch, tmp_path):
    """At first the base's epoch took in 90 s of audio a second, beside this setting's own 60."""
    rates = {tmp_path / "base/pace": (90.0, 5.0), tmp_path / "noam/base-pace": (60.0, 7.0)}
    asked = []
    monkeypatch.setattr(
        ablation, "pace", lambda folder, overrides: (asked.append(overrides), rates[folder])[1]
    )
    assert ablation.slowness(tmp_path / "noam", ["seed=1"]) == 1.5
    assert asked == [["seed=1"]] * 2


def test_a_setting_is_told_beside_the_base(ablation, tmp_path):
    """Of twenty words base has 2 wrong, the setting 1 of these: 5 points fewer, or none where it isn't drawn."""
    size = {"rate": 8000, "samples": 80_000, "channels": 1, "start": 0.0, "duration": 10.0}
    spoken = [
        Utterance(id=name, path="a.wav", text="YES YES", speaker="he", **size)
        for name in "abcdefghij"
    ]
    dev, base, out = tmp_path / "dev.jsonl.gz", tmp_path / "base.txt", tmp_path / "setting.txt"
    manifest.write(dev, spoken)
    base.write_text(
        "".join(f"{name}\t{'YES NO' if name in 'ab' else 'YES YES'}\n" for name in "abcdefghij")
    )
    assert ablation.error_rate(dev, base, base) == ["10.00", ""]
    assert ablation.error_rate(dev, base, tmp_path / "not yet") == ["10.00", ""]
    out.write_text(base.read_text().replace("a\tYES NO", "a\tYES YES"))
    rate, difference = ablation.error_rate(dev, out, base)
    value, low, high = (
        float(n) for n in difference.replace("[", "").replace("]", "").replace(",", "").split()
    )
    assert (rate, value, high) == ("5.00", -5.0, 0.0) and -20 < low < -5


def test_ctrl_c_waits_until_the_training_has_saved(tmp_path):
    """With a command in the training's place that takes a second for it; both are sent the signal, as by a terminal."""
    stand_in, ready, saved = (tmp_path / name for name in ("python", "ready", "saved"))
    stand_in.write_text(
        "#!/bin/sh\ntrap 'sleep 1; : >saved; exit 130' INT\n: >ready\nwhile :; do sleep 0.1; done\n"
    )
    stand_in.chmod(0o755)
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from scripts import ablation\n"
    program += f"sys.executable = {str(stand_in)!r}; ablation.run('train')"
    running = subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, start_new_session=True
    )
    try:
        while not ready.exists() and running.poll() is None:
            time.sleep(0.05)
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(60) == 130 and saved.exists()
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
