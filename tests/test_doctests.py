"""Run the examples of docstrings in scripts and recipes; pytest itself runs those of the package (pyproject.toml)."""

import doctest
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = [
    path.relative_to(ROOT)
    for folder in ("scripts", "recipes")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


def failures(path, monkeypatch):
    """How many examples of a file are not true."""
    for folder in (ROOT / "recipes", path.parent):
        monkeypatch.syspath_prepend(str(folder))
    spec = importlib.util.spec_from_file_location(f"examples_of_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return doctest.testmod(module).failed


@pytest.mark.parametrize("path", FILES, ids=str)
def test_the_examples_are_true(path, monkeypatch):
    assert failures(ROOT / path, monkeypatch) == 0


def test_an_example_that_is_not_true_is_found(tmp_path, monkeypatch):
    (tmp_path / "x.py").write_text('"""\n>>> 1 + 1\n3\n"""\n')
    assert failures(tmp_path / "x.py", monkeypatch) == 1
    assert len(FILES) >= 5
