"""Prove that the rehearsal at full size rehearses: a hundredth of it, part by part, in this process; that it measures
what it says; and that it tells what is beyond its bounds. Counts are those that were asked for.
"""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from asr.data import columns as table
from asr.data import manifest
from asr.scoring.error_rate import ErrorRate
from asr.text import tokenizer

ROOT = Path(__file__).parents[1]


@pytest.fixture
def rehearsal():
    """The script as a module."""
    return importlib.import_module("scripts.rehearsal")


@pytest.fixture
def rehearsed(rehearsal):
    """Its parts."""
    return importlib.import_module("scripts.rehearsed")


def play(rehearsal, corpus, root):
    """Run the parts of a corpus here; return their names."""
    names = []
    for part in rehearsal.CORPORA[corpus](root, 0.01):
        _, how, name, *arguments = part.command
        assert how == "-m"
        if name == "scripts.rehearsed":
            importlib.import_module(name).PARTS[arguments[0]](*arguments[1:])
        else:
            importlib.import_module(name).main(arguments)
        names.append(part.name)
    return names


def test_librispeech(rehearsal, rehearsed, tmp_path):
    names = play(rehearsal, "librispeech", tmp_path)
    assert names[0] == "prepare" and names[-1] == "score, word errors" and len(names) == 6
    counts = {
        name: len(table.read(tmp_path / f"data/{name}.jsonl.gz")) for name in rehearsed.LIBRISPEECH
    }
    assert counts == {name: round(0.01 * count) for name, count in rehearsed.LIBRISPEECH.items()}
    train = table.read(tmp_path / "train.jsonl.gz")
    assert len(train) == sum(list(counts.values())[:3])
    assert train.durations.mean() == pytest.approx(12.3, abs=0.3)
    assert sum(map(len, train.texts)) / len(train) == pytest.approx(190, abs=15)


def test_aishell(rehearsal, rehearsed, tmp_path):
    assert play(rehearsal, "aishell", tmp_path)[-1] == "score, char errors"
    train = table.read(tmp_path / "train.jsonl.gz")
    assert len(train) == round(0.01 * rehearsed.AISHELL["train"])
    assert train.durations.mean() == pytest.approx(4.5, abs=0.2)
    assert tokenizer.load(tmp_path / "tokenizer").vocabulary > 3000


def test_a_text(rehearsal, rehearsed, tmp_path):
    assert len(play(rehearsal, "text", tmp_path)) == 3
    state = json.loads((tmp_path / "tokens/state.json").read_text())
    assert state["words"] == pytest.approx(
        0.01 * rehearsed.LINES * rehearsed.WORDS_A_LINE, rel=0.02
    )


def test_a_score_that_misses_a_planted_error_fails(rehearsed, tmp_path, monkeypatch):
    u = manifest.Utterance("u", "x.wav", 8000, 9, 1, 0.0, 1.0, "A B C D E F G H " * 9)
    manifest.write(tmp_path / "test.jsonl.gz", [u, manifest.Utterance(**vars(u) | {"id": "v"})])
    monkeypatch.setattr(
        "asr.scoring.report.aligned", lambda refs, hyps, unit: [ErrorRate(72, 0, 0, 0)] * 2
    )
    with pytest.raises(AssertionError):
        rehearsed.score("word", str(tmp_path / "test.jsonl.gz"))


def test_seconds_and_memory_are_those_of_the_part(rehearsal):
    """From a process that is small itself."""
    code = "import time; x = bytes(range(256)) * (200 << 12); time.sleep(0.3)"  # 200 MB
    part = f"rehearsal.Part('x', {[sys.executable, '-c', code]}, 60)"
    measure = f"from scripts import rehearsal; t = rehearsal.measure({part})"
    told = [sys.executable, "-c", f"{measure}; print(t.seconds, t.cpu, t.memory)"]
    out = subprocess.run(told, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    seconds, cpu, memory = map(float, out.split())
    assert 200 <= memory < 300 and seconds > 0.3 and cpu > 0
    part = rehearsal.Part("x", [], 60)
    taken = [
        rehearsal.Taken(part, 99, s, m)
        for s, m in [(60, rehearsal.MEMORY), (61, 10), (1, rehearsal.MEMORY + 1)]
    ]
    assert [each.excess for each in taken] == [False, True, True]
    with pytest.raises(SystemExit, match=r"(?s)x: exit status 1\n.*ZeroDivisionError"):
        rehearsal.measure(rehearsal.Part("x", [sys.executable, "-c", "1 / 0"], 60))


@pytest.mark.parametrize("bound, message", [(60, None), (0, "1 parts are beyond their bounds")])
def test_a_part_beyond_its_bound_ends_it_with_status_1(
    rehearsal, monkeypatch, capsys, bound, message
):
    part = rehearsal.Part("nothing", [sys.executable, "-c", ""], bound)
    monkeypatch.setattr(rehearsal, "CORPORA", {"x": lambda root, scale: iter([part])})
    monkeypatch.setattr(sys, "argv", ["rehearsal.py", "x"])
    if message:
        with pytest.raises(SystemExit, match=message):  # a message is status 1
            rehearsal.main()
    else:
        rehearsal.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("| x | nothing | ") and lines[2].endswith("EXCEEDED") == bool(
        message
    )
