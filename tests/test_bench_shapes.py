"""The benchmark of shapes trains on a configuration's own batches, each row in a process of its own."""

import json

import pytest

from scripts.bench import shapes


def test_each_row_computes_the_batches_of_the_configuration(root, capsys, monkeypatch):
    """The processes are real; what is compared of them is that both rows are there, the first as the measure."""
    asked = []
    run = shapes.run
    monkeypatch.setattr(shapes, "run", lambda *a: asked.append(a) or run(*a))
    words = [str(root / "x.yaml"), "fp32:16", "bf16:16", "--batches", "2", "--repeats", "1"]
    shapes.main(words)
    heads, *rows = capsys.readouterr().out.splitlines()
    assert heads.split() == ["precision", "kept", "seconds", "a", "batch", "ratio", "MB"]
    assert [row.split()[:2] for row in rows] == [["fp32", "16"], ["bf16", "16"]]
    assert rows[0].split()[-2] == "1.00" and all(float(row.split()[2]) > 0 for row in rows)
    assert asked == [(words[0], row, 2) for row in words[1:3]]


def test_the_number_of_operations_reaches_the_process(monkeypatch):
    def process(words, env, **_):
        seen = {"words": words, "kept": env[shapes.KEPT], "threads": env["OMP_NUM_THREADS"]}
        return type("Done", (), {"returncode": 0, "stdout": json.dumps(seen)})

    monkeypatch.setattr(shapes.subprocess, "run", process)
    seen = shapes.run("x.yaml", "bf16:77", 5)
    assert (seen["kept"], seen["threads"]) == ("77", "1")
    assert seen["words"][-4:] == ["--work", "bf16", "--batches", "5"]


def test_a_row_that_names_no_number_is_refused(capsys):
    with pytest.raises(SystemExit) as end:
        shapes.main(["x.yaml", "bf16"])
    assert end.value.code == 2
    assert "got 'bf16', expected fp32:OPERATIONS or bf16:OPERATIONS" in capsys.readouterr().err
