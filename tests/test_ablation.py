"""Prove that each setting of scripts/ablation.py is one, and that its trainings keep their shares and their time."""

import importlib
from pathlib import Path

import pytest

from asr import config
from asr.experiment import Experiment

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.fixture
def ablation(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    return importlib.import_module("ablation")


def test_every_setting_is_an_experiment_of_its_own(ablation):
    made = [
        config.load(Experiment, ablation.CONFIG, ablation.scaled([*ablation.BASE, *s], 50))
        for s in ablation.SETTINGS.values()
    ]
    assert len({config.dump(experiment) for experiment in made}) == len(made) > 8


def test_what_is_counted_in_epochs_or_steps_keeps_its_share(ablation):
    """conf/an4.yaml: 64 epochs, 8 of them unmasked, 800 steps of warm-up."""
    made = config.load(Experiment, ablation.CONFIG, ablation.scaled([], 50))
    assert (made.training.epochs, made.training.mask_after, made.schedule.warmup) == (50, 6, 625)
    assert made.training.flat_start == 1
    without = config.load(Experiment, ablation.CONFIG, ablation.scaled(["training.flat_start=0"], 50))
    assert without.training.flat_start == 0
    assert made.training.validate_every == 5
    one = config.load(Experiment, ablation.CONFIG, ablation.scaled([], 1))
    assert (one.training.epochs, one.training.validate_every, one.schedule.warmup) == (1, 1, 12)


@pytest.mark.parametrize(
    "seconds, epoch, rest, expected", [(600, 5.0, 4.0, 114), (60, 30.0, 10.0, 1), (3600, 9, 0, 400)]
)
def test_epochs_fill_the_time(ablation, seconds, epoch, rest, expected):
    assert ablation.epochs_within(seconds, epoch, rest) == expected
