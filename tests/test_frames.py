"""A reader passes few functions between a command and PyTorch: scripts/frames.py counts them in a real training."""

import importlib

import pytest


@pytest.fixture
def frames():
    return importlib.import_module("scripts.frames")


def test_the_ways_are_short_and_one_too_long_is_refused(frames, monkeypatch, capsys):
    monkeypatch.setattr(
        frames, "ENCODERS", {"conformer": frames.ENCODERS["conformer"]}
    )  # where attention lies deepest
    assert frames.main([]) == 0
    shown = capsys.readouterr().out
    assert "asr/training/trainer.py:train_step" in shown and "asr/nn/attention.py:attend" in shown
    monkeypatch.setattr(frames, "LIMITS", dict.fromkeys(frames.LIMITS, 3))
    assert frames.main([]) == 1
