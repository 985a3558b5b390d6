"""Strangers' files of any size, depth and number are refused in one line, with file and line where there is one.

Each case is made to be one that took all memory, or ended in a traceback.
"""

import gzip
import json
import re
import tracemalloc
from dataclasses import replace

import pytest
from refusals import refused
from small import rows

from asr import files
from asr.data import manifest, texts
from asr.data.manifest import Utterance
from asr.search import arpa, hotwords
from asr.text.bpe import BPE, LONGEST, parts
from asr.text.characters import Characters

each = pytest.mark.parametrize
GOOD = Utterance("u1", "/a.wav", 16000, 16000, 1, 0.0, 1.0, "GO")
LINE = json.dumps(GOOD.line())
SYMBOLS = ["<blank>", "a", "b", "<sos/eos>"]


def packed(path, *pieces):
    with gzip.open(path, "wb", compresslevel=1) as file:
        for piece in pieces:
            file.write(piece)
    return path


READERS = {
    "manifest": ("x.jsonl.gz", LINE, lambda path: list(manifest.read(path))),
    "text": ("x.txt.gz", "some words", lambda path: list(texts.read(path))),
    "manifest as text": ("x.jsonl.gz", LINE, lambda path: list(texts.read(path))),
    "n-gram model": ("x.arpa.gz", "\\data\\", lambda path: arpa.read_arpa(path, SYMBOLS)),
}


@each("kind", READERS)
def test_a_line_of_any_length_takes_little_memory(tmp_path, kind):
    """200 MB in 200 kB; eight gigabytes would be no different."""
    name, first, read = READERS[kind]
    path = packed(tmp_path / name, f"{first}\n".encode(), *[b"x" * (1 << 20)] * 200)
    tracemalloc.start()
    refused(rf"{name}:2: a line of more than", read, path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 5 * files.LINE


@each("kind", ["manifest", "text"])
def test_an_ordinary_line_of_a_megabyte_is_read(tmp_path, kind):
    name, first, read = READERS[kind]
    long = replace(GOOD, id="u2", text="word " * 200_000)
    second = json.dumps(long.line()) if kind == "manifest" else long.text
    assert len(read(packed(tmp_path / name, f"{first}\n{second}".encode()))) == 2


CHANGES = r"""
    "start": 0.0 | "start": NaN | start: got nan, expected a number
    "start": 0.0 | "start": -Infinity | start: got -inf, expected a number
    "start": 0.0 | "start": 1e999 | start: got inf, expected a number
    16000 | 99999999999 | rate: got 99999999999, expected 1,000 to 1,000,000 Hz
    16000 | -16000 | rate: got -16000, expected
    "u1" | "\ud800" | half a surrogate pair
    "u1" | "a\nb\tc" | control character
    "u1" | "\u001b]0;x\u0007" | control character
    "GO" | "\udfff" | half a surrogate pair
    [0] | [] | channel: got 0
    "/a.wav" | 7 | path: got 7, expected a string
"""


@each(
    "line, says",
    [
        *((LINE.replace(old, new, 1), says) for old, new, says in rows(CHANGES)),
        (LINE.replace("16000", "1" * 5000, 1), "a number of thousands of digits"),
        ("[" * 20000, "nested too deep"),
        ('{"a":' * 20000, "nested too deep"),
        ("\ufeff" * 2 + LINE, "MonoCut"),
        ("null", "MonoCut"),
        ("7", "MonoCut"),
        ('{"recording": null}', "MonoCut"),
        ('{"recording": {"sources": [7]}}', "MonoCut"),
    ],
    ids=lambda value: value[:40],
)
def test_a_hostile_line_of_a_manifest(tmp_path, line, says):
    path = tmp_path / "x.jsonl"
    path.write_text(f"{LINE}\n{line}\n", "utf-8")
    said = refused(f"^{path}:2: .*{re.escape(says)}", list, manifest.read(path))
    assert said.isprintable() and len(said) < 1000 and "set_int_max" not in said


@each(
    "count, says",
    [
        ("9" * 5000, r":2: .*a count of 12 digits at most"),
        ("9" * 13, r":2: .*a count of 12 digits at most"),
        (10**11, r": ends after line 5, expected 1-gram 2 of 100000000000"),
    ],
    ids=["5000 digits", "13 digits", "more than there are"],
)
def test_a_count_of_an_arpa_file_that_cannot_be(tmp_path, count, says):
    (tmp_path / "x.arpa").write_text(f"\\data\\\nngram 1={count}\n\n\\1-grams:\n-1 a\n")
    refused(f"x.arpa{says}", arpa.read_arpa, tmp_path / "x.arpa", SYMBOLS)


def test_a_text_of_one_long_line_is_learned_from_and_no_part_is_left_out():
    long = "ab ba " * 200_000
    assert len(long) > 4 * LONGEST
    divided = list(parts([long.strip(), "short"]))
    assert " ".join(divided) == f"{long}short" and max(map(len, divided)) <= LONGEST
    for others, size in (([], 9), (["c d"] * 3, 11)):
        assert "▁ab" in BPE.train([*others, long], size).symbols()
    said = refused(r"word of more than 262,144 characters \('xxx", BPE.train, ["x" * 3_000_000], 20)
    assert "INTERNAL" not in said


def hotwords_of(folder, known, content):
    (folder / "x.txt").write_text(content)
    made = Characters.train([known])
    return hotwords.read_phrases(folder / "x.txt", made.encode, made.symbols(), 1.0)


@each(
    "known, given, says",
    [("KEANE", "keane", "knows capitals only; write 'KEANE'"), ("keane", "Keane", "'keane'")],
)
def test_a_hotword_in_the_other_case_is_told_so(tmp_path, known, given, says):
    refused(
        rf"x.txt:2: got '{given}'.*{says}", hotwords_of, tmp_path, known, f"{known}\n{given}\t2\n"
    )


@each("weight", ["1e300", "inf", "-1", "9" * 5000])  # others: test_hotwords.py
def test_a_weight_of_a_hotword_that_cannot_be(tmp_path, weight):
    refused(r"x.txt:1: got weight '", hotwords_of, tmp_path, "A", f"A\t{weight}\n")
