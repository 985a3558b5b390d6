"""asr-ngram: texts, tokenizers, orders, the file to write."""

import json
import os

from bad_inputs.case import case
from bad_inputs.tables import rows

MADE = ("lm.arpa", ".lm.arpa.stamp.json")


def given(text="LOW MID HIGH\nMID LOW\n", name="t.txt", tokenizer=None, **files):
    """A text and a tokenizer: a copy of the ready one, or another content of tokenizer.json."""

    def make(r):
        if text is not None:
            r.write(name, text)
        r.copy("tokenizer", "tok")
        (r / "tok/.stamp.json").unlink(missing_ok=True)
        if tokenizer is not None:
            r.write("tok/tokenizer.json", tokenizer)
        for path, content in files.items():
            r.write(path, content)

    return make


def then(make, after):
    return lambda r: [make(r), after(r)]


def whole(room, done):
    """If it was done: both members of the text are counted."""
    lines = (room / "lm.arpa").read_text().splitlines()
    assert any(line.split()[1:2] == ["G"] for line in lines if line.count("\t")), lines


CASES = rows("ngram", globals()) + [
    case(
        "a manifest with a line that is cut",
        "asr-ngram m.jsonl tok lm.arpa --order 2",
        "m.jsonl:4",
        given=then(
            given(),
            lambda r: r.manifest(
                "m.jsonl", lambda lines: [*lines[:3], json.dumps(lines[3])[:40], *lines[4:]]
            ),
        ),
    ),
    case(
        "the output's name is longer than a disk allows",
        f"asr-ngram t.txt tok {'x' * 300}.arpa --order 2",
        "too long",
        given=given(),
    ),
    case(
        "the output's name is as long as a disk allows",
        f"asr-ngram t.txt tok {'x' * 250}.arpa --order 2",
        status=(0, 2),
        leaves=("x*", ".x*"),
        given=given(),
    ),
    case(
        "a text whose name isn't UTF-8 is read",
        [b"asr-ngram", b"caf\xe9.txt", b"tok", b"lm.arpa", b"--order", b"2"],
        status=0,
        leaves=MADE,
        given=given("HIGH LOW\n", os.fsdecode(b"caf\xe9.txt")),
        then=whole,
    ),
]
