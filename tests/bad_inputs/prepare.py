"""asr-prepare: tables, layouts, sound files, numbers, folders."""

import gzip
import os

from bad_inputs.case import case
from bad_inputs.material import table, wav
from bad_inputs.tables import rows

TSV = "asr-prepare tsv t.tsv out"
EITHER = (2, 3)  # nothing of it can be used: a mistake, or all inputs failed


def ids(room):
    with gzip.open(room / "out/t.jsonl.gz", "rt") as file:
        return [line.split('"id": "', 1)[1].split('"', 1)[0] for line in file]


def others_are_done(room, done):
    """The two good recordings are in the manifest, in order."""
    assert ids(room) == ["a", "b"]


def kept_text(room, done):
    with gzip.open(room / "out/t.jsonl.gz", "rt") as file:
        assert '"text": "LOW MID"' in file.read()


GOOD = ("a\ta.wav\tLOW\ts", "b\tb.wav\tHIGH\ts")

CASES = rows("prepare", globals()) + [
    case(
        "the table is UTF-16",
        TSV,
        "t.tsv",
        ("UTF-16", "UTF-8"),
        given=lambda r: r.write("t.tsv", table(*GOOD).encode("utf-16")),
    ),
    case(
        "the only kind of sound is one to convert",
        "asr-prepare folder memos out",
        "ffmpeg",
        "a.m4a",
        status=EITHER,
        leaves=("*failed.tsv", "out/*failed.tsv"),
        given=lambda r: r.write("memos/a.m4a", b"\0\0\0\x18ftypM4A " + b"\0" * 100),
    ),
    case(
        "a table whose name isn't UTF-8",
        [b"asr-prepare", b"tsv", b"caf\xe9.tsv", b"out"],
        "caf",
        status=(0, 2),
        leaves=("out/*", "out/.*"),
        given=lambda r: [
            r.write("a.wav", wav()),
            r.write(os.fsdecode(b"caf\xe9.tsv"), table(GOOD[0])),
        ],
    ),
]
