"""asr-score: references, hypotheses, units, outputs."""

import gzip
import os

from bad_inputs.case import case
from bad_inputs.tables import rows

SCORE = "asr-score r.txt h.txt"
REF = "a\tLOW MID\nb\tHIGH\n"


def given(hyp=REF, ref=REF, **files):
    """Two texts, and others."""

    def make(r):
        if ref is not None:
            r.write("r.txt", ref)
        if hyp is not None:
            r.write("h.txt", hyp)
        for name, content in files.items():
            r.write(name, content)

    return make


def right(room, done):
    """Three words, none of them wrong."""
    assert "WER 0.00 %" in done.out and "of 3 words" in done.out, done.out


def surrogate(r):
    r.manifest("r.jsonl", lambda lines: lines[0]["supervisions"][0].update(text="\ud800"), "dev")
    r.write("h.txt", "".join(f"dev{n:03d}\tLOW\n" for n in range(4)))


CASES = rows("score", globals()) + [
    case(
        "a hypothesis from a shell's pipe is read",
        SCORE,
        status=0,
        then=right,
        given=lambda r: [given(None)(r), r.pipe("h.txt", REF.encode())],
    ),
    case(
        "a packed hypothesis",
        "asr-score r.txt h.txt.gz",
        ("h.txt.gz", "WER"),
        status=(0, 2),
        given=given(None, **{"h.txt.gz": gzip.compress(REF.encode())}),
        then=lambda room, done: done.status == 2 or right(room, done),
    ),
    case(
        "an id with a terminal's commands isn't sent there",
        SCORE,
        "\\x1b",
        given=given(REF + "\x1b[2J\tLOW\n"),
        then=lambda room, done: "\x1b" not in done.err or 1 / 0,
    ),
    case(
        "a reference with half a character",
        "asr-score r.jsonl h.txt --json o.json",
        ("dev000", "r.jsonl:1"),
        given=surrogate,
    ),
    case(
        "texts that aren't ASCII, where the locale knows nothing else",
        SCORE,
        status=0,
        given=given("a\tÄÖÜ 一\n", "a\tÄÖÜ 一\n"),
        env={"LC_ALL": "C", "LANG": None, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        then=lambda room, done: "0.00 %" in done.out or 1 / 0,
    ),
    case(
        "a hypothesis whose name isn't UTF-8 is read",
        [b"asr-score", b"r.txt", b"caf\xe9.txt"],
        status=0,
        then=right,
        given=lambda r: [given(None)(r), r.write(os.fsdecode(b"caf\xe9.txt"), REF)],
    ),
]
