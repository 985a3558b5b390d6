"""asr-tokenizer: texts, sizes, folders."""

import gzip
import json
import os

from bad_inputs.case import case
from bad_inputs.tables import rows

CHARACTERS = "asr-tokenizer t.txt out --kind characters"
MADE = ("out/*", "out/.*")


def text(content="LOW MID HIGH\nMID\n", name="t.txt"):
    return lambda r: r.write(name, content)


def learned(*characters):
    """The tokenizer has exactly these characters."""

    def check(room, done):
        if done.status == 0:
            assert json.loads((room / "out/tokenizer.json").read_text())["characters"] == sorted(
                characters
            )

    return check


def manifest(change, name="m.jsonl.gz"):
    return lambda r: r.manifest(name, change)


def without_texts(lines):
    for line in lines:
        line["supervisions"][0]["text"] = " "


def number_as_text(lines):
    lines[2]["supervisions"][0]["text"] = 5


def null_supervisions(lines):
    lines[1]["supervisions"] = None


CASES = rows("tokenizer", globals()) + [
    case(
        "a text from a shell's pipe is read once",
        "asr-tokenizer /dev/stdin out --kind characters",
        status=(0, 2),
        stdin="LOW MID HIGH\n",
        leaves=MADE,
        then=learned(*" DGHILMOW"),
    ),
    case(
        "a packed text is cut",
        "asr-tokenizer t.txt.gz out --kind characters",
        "t.txt.gz",
        "damaged",
        given=text(gzip.compress(os.urandom(3000).hex().encode())[:-200], "t.txt.gz"),
    ),
    case(
        "a byte-order mark is no character",
        CHARACTERS,
        status=0,
        leaves=MADE,
        then=learned("L", "O", "W"),
        given=text("\ufeffLOW\n"),
    ),
    case(
        "a manifest whose name says it is something else",
        "asr-tokenizer m.json out --kind characters",
        "m.json",
        given=manifest(lambda lines: None, "m.json"),
    ),
    case(
        "a manifest without texts",
        "asr-tokenizer m.jsonl.gz out --kind characters",
        ("no text", "no sentence", "device"),
        given=manifest(without_texts),
    ),
    case(
        "a manifest with a number for a text",
        "asr-tokenizer m.jsonl.gz out --kind characters",
        "m.jsonl.gz:3",
        given=manifest(number_as_text),
    ),
    case(
        "a manifest with nothing for supervisions",
        "asr-tokenizer m.jsonl.gz out --kind characters",
        "m.jsonl.gz:2",
        given=manifest(null_supervisions),
    ),
    case(
        "a name that isn't ASCII, where the locale knows nothing else",
        "asr-tokenizer tëxt.txt out --kind characters",
        status=0,
        leaves=MADE,
        then=learned("L", "O", "W"),
        given=text("LOW\n", "tëxt.txt"),
        env={"LANG": "C", "LC_ALL": "C"},
    ),
    case(
        "a name that isn't UTF-8",
        [b"asr-tokenizer", b"caf\xe9.txt", b"out", b"--kind", b"characters"],
        status=0,
        leaves=MADE,
        then=learned("L", "O", "W"),
        given=lambda r: r.write(os.fsdecode(b"caf\xe9.txt"), "LOW\n"),
    ),
]
