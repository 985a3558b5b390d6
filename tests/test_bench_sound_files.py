"""Prove what scripts/bench/sound_files.py reads: the same recordings in every format, and what it prints of them."""

import numpy as np
import pytest
import soundfile

from asr.data.prepare import prepare
from scripts.bench import sound_files


@pytest.fixture
def source(tmp_path):
    """A manifest of ten recordings of unlike lengths."""
    (tmp_path / "sounds").mkdir()
    for n in range(10):
        wave = np.sin(np.arange(1600 * (n + 1)) / 10) / 2
        soundfile.write(tmp_path / f"sounds/{n}.wav", wave, 16000)
    return prepare("folder", tmp_path / "sounds", tmp_path / "out").manifests["recordings"]


def test_formats_are_timed_over_the_same_seconds(source, monkeypatch, capsys):
    """With a clock that says how many seconds of sound were read, every format has the same rate."""
    load, heard = sound_files.audio.load, [0.0]

    def counted(*what):
        waveform = load(*what)
        heard[0] += len(waveform) / 16000
        return waveform

    monkeypatch.setattr(sound_files.audio, "load", counted)
    monkeypatch.setattr(sound_files.time, "process_time", lambda: heard[0] / 50)
    sound_files.main([str(source), "--files", "4", "--repeats", "2"])
    printed = capsys.readouterr().out.splitlines()
    rows = [line.strip("| ").split(" | ") for line in printed if line.startswith("| ")]
    assert rows[0][0] == "4 files, 2 s"  # of 0.1, 0.4, 0.7 and 1.0 s
    assert [row[0] for row in rows[1:]] == list(sound_files.FORMATS)
    for row in rows[1:]:
        assert int(row[1]) == pytest.approx(50, rel=0.1) and float(row[2]) == pytest.approx(1, 0.1)
    sizes = {row[0]: int(row[3]) for row in rows[1:]}
    assert sizes["wav"] == pytest.approx(16000 * 2 * 3600 / 1e6, rel=0.02)
    assert sizes["flac"] < sizes["wav"]
