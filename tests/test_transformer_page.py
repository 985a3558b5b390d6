"""Prove docs/transformer.md: every line of code that it names stands in the function that it names."""

import importlib
import inspect
import re

import pytest
from checkouts import ROOT

PAGE = (ROOT / "docs/transformer.md").read_text("utf-8")
ROW = re.compile(
    r"^\| (?P<section>[\d.]+) \| .* \| `(?P<line>.+)` \| `(?P<file>\S+)\.py` `(?P<name>[\w.]+)` \|$",
    re.M,
)
ROWS = [found.groupdict() for found in ROW.finditer(PAGE)]


def stands(file, name, line):
    """Whether a line stands in a function or class, however the formatter breaks it."""
    found = importlib.import_module(file.replace("/", "."))
    for part in name.split("."):
        found = getattr(found, part)

    def dense(text):
        return re.sub(r"\s|#.*|,(?=\s*[)\]])", "", text)

    return dense(line) in "".join(map(dense, inspect.getsource(found).splitlines()))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['section']} {row['name']}")
def test_the_line_stands_there(row):
    assert stands(row["file"], row["name"], row["line"])


def test_all_rows_are_read_and_a_line_that_is_gone_is_seen():
    assert len(ROWS) == PAGE.count("| `asr/") == 27
    assert not stands("asr/ops", "causal_mask", "return torch.ones(U, U).tril(1)")
    assert not stands("asr/ops", "key_mask", ROWS[4]["line"])
