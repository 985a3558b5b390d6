"""Prove that the rehearsal at full size rehearses: a hundredth of it, part by part, in this process; that it measures
what it says; and that it tells what is beyond its bounds. Counts are those that were asked for.
"""

import importlib
import json
import sys

import pytest
from checkouts import ROOT, bash
from pytest import approx
from runs import status_of

from asr.data import columns as table
from asr.data import manifest
from asr.scoring.error_rate import ErrorRate
from asr.text import tokenizer
from scripts import rehearsal, rehearsed


def play(corpus, root):
    """Run the parts of a corpus here; return their names."""
    names = []
    for part in rehearsal.CORPORA[corpus](root, 0.01):
        _, how, name, *arguments = part.command
        assert how == "-m"
        if name == "scripts.rehearsed":
            rehearsed.PARTS[arguments[0]](*arguments[1:])
        else:
            importlib.import_module(name).main(arguments)
        names.append(part.name)
    return names


@pytest.mark.slow
def test_librispeech(tmp_path):
    names = play("librispeech", tmp_path)
    assert names[0] == "prepare" and names[-1] == "score, word errors" and len(names) == 6
    counts = [len(table.read(tmp_path / f"data/{name}.jsonl.gz")) for name in rehearsed.LIBRISPEECH]
    assert counts == [round(0.01 * count) for count in rehearsed.LIBRISPEECH.values()]
    train = table.read(tmp_path / "train.jsonl.gz")
    assert len(train) == sum(counts[:3])
    assert train.durations.mean() == approx(12.3, abs=0.3)
    assert sum(map(len, train.texts)) / len(train) == approx(190, abs=15)


def test_aishell(tmp_path):
    assert play("aishell", tmp_path)[-1] == "score, char errors"
    train = table.read(tmp_path / "train.jsonl.gz")
    assert len(train) == round(0.01 * rehearsed.AISHELL["train"])
    assert train.durations.mean() == approx(4.5, abs=0.2)
    assert tokenizer.load(tmp_path / "tokenizer").vocabulary > 3000


def test_a_text(tmp_path):
    assert len(play("text", tmp_path)) == 3
    words = json.loads((tmp_path / "tokens/state.json").read_text())["words"]
    assert words == approx(0.01 * rehearsed.LINES * rehearsed.WORDS_A_LINE, rel=0.02)


def test_a_score_that_misses_a_planted_error_fails(tmp_path, monkeypatch):
    test = tmp_path / "test.jsonl.gz"
    spoken = "x.wav", 8000, 9, 1, 0.0, 1.0, "A B C D E F G H " * 9
    manifest.write(test, [manifest.Utterance(name, *spoken) for name in "uv"])
    perfect = [ErrorRate(72, 0, 0, 0)] * 2
    monkeypatch.setattr("asr.scoring.report.aligned", lambda refs, hyps, unit: perfect)
    with pytest.raises(AssertionError):
        rehearsed.score("word", str(test))


MEASURE = """
import sys
from scripts import rehearsal
code = "import time; x = bytes(range(256)) * (200 << 12); time.sleep(0.3)"  # 200 MB
taken = rehearsal.measure(rehearsal.Part("x", [sys.executable, "-c", code], 60))
print(taken.seconds, taken.cpu, taken.memory)
"""


def test_seconds_and_memory_are_those_of_the_part():
    """From a process that is small itself."""
    status, out, err = bash(ROOT, "-c", f"python - <<'END'{MEASURE}END")
    assert status == 0, err
    seconds, cpu, memory = map(float, out.split())
    assert 200 <= memory < 300 and seconds > 0.3 and cpu > 0
    with pytest.raises(SystemExit, match=r"(?s)x: exit status 1\n.*ZeroDivisionError"):
        rehearsal.measure(rehearsal.Part("x", [sys.executable, "-c", "1 / 0"], 60))


@pytest.mark.parametrize("cpu, more, excess", [(60, 0, False), (61, 0, True), (1, 1, True)])
def test_a_bound_is_of_the_processors_seconds_and_of_memory(cpu, more, excess):
    part = rehearsal.Part("x", [], 60)
    assert rehearsal.Taken(part, 99, cpu, rehearsal.MEMORY + more).excess == excess


@pytest.mark.parametrize("bound, exceeded", [(60, False), (0, True)])
def test_a_part_beyond_its_bound_ends_it_with_status_1(monkeypatch, capsys, bound, exceeded):
    part = rehearsal.Part("nothing", [sys.executable, "-c", ""], bound)
    monkeypatch.setattr(rehearsal, "CORPORA", {"x": lambda root, scale: iter([part])})
    monkeypatch.setattr(sys, "argv", ["rehearsal.py", "x"])
    ended = status_of(lambda _: rehearsal.main())  # a message is status 1
    assert ended == ("1 parts are beyond their bounds" if exceeded else 0)
    row = capsys.readouterr().out.splitlines()[2]
    assert row.startswith("| x | nothing | ") and row.endswith("EXCEEDED") == exceeded
