"""asr-tokenizer: texts, sizes, folders."""

import gzip
import json
import os

from bad_inputs.case import case

CHARACTERS = "asr-tokenizer t.txt out --kind characters"
BPE = "asr-tokenizer t.txt out --kind bpe --size 20"
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


CASES = [
    # the texts
    case(
        "a text is an empty name",
        ["asr-tokenizer", "", "out", "--kind", "characters"],
        ("empty", "''"),
        ("name", "empty"),
    ),
    case(
        "a text is a folder",
        "asr-tokenizer texts out --kind characters",
        "texts",
        "directory",
        given=lambda r: r.folder("texts"),
    ),
    case(
        "a text is the empty device",
        "asr-tokenizer /dev/null out --kind characters",
        ("no text", "no sentence", "device"),
    ),
    case(
        "a text from a shell's pipe is read once",
        "asr-tokenizer /dev/stdin out --kind characters",
        status=(0, 2),
        stdin="LOW MID HIGH\n",
        leaves=MADE,
        then=learned(*" DGHILMOW"),
    ),
    case(
        "a text is a recording", "asr-tokenizer $wav out --kind characters", "train000.wav", "UTF-8"
    ),
    case(
        "a text is packed without its name saying so",
        CHARACTERS,
        "t.txt",
        "gzip",
        given=text(gzip.compress(b"LOW MID\n")),
    ),
    case(
        "a text only says that it is packed",
        "asr-tokenizer t.txt.gz out --kind characters",
        "t.txt.gz",
        "gzip",
        given=text("LOW\n", "t.txt.gz"),
    ),
    case(
        "a packed text is cut",
        "asr-tokenizer t.txt.gz out --kind characters",
        "t.txt.gz",
        "damaged",
        given=text(gzip.compress(os.urandom(3000).hex().encode())[:-200], "t.txt.gz"),
    ),
    case(
        "a packed text has other bytes behind it",
        "asr-tokenizer t.txt.gz out --kind characters",
        "t.txt.gz",
        given=text(gzip.compress(b"LOW\n") + b"more", "t.txt.gz"),
    ),
    case(
        "a packed text has a wrong checksum",
        "asr-tokenizer t.txt.gz out --kind characters",
        "t.txt.gz",
        "damaged",
        given=text(gzip.compress(b"LOW MID\n")[:-8] + b"\0" * 4 + b"\x08\0\0\0", "t.txt.gz"),
    ),
    case(
        "a text in UTF-16",
        CHARACTERS,
        "t.txt:1",
        ("UTF-16", "UTF-8"),
        given=text("LOW MID\n".encode("utf-16")),
    ),
    case(
        "a text in Latin-1",
        CHARACTERS,
        "t.txt:2",
        "UTF-8",
        given=text("LOW\nCAFÉ\n".encode("latin-1")),
    ),
    case(
        "a text in UTF-8 with surrogates",
        CHARACTERS,
        "t.txt:1",
        "UTF-8",
        given=text(b"\xed\xa0\xbd\xed\xb8\x80\n"),
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
        "a text with NULs",
        CHARACTERS,
        "t.txt:2",
        ("NUL", "U+0000", "\\x00"),
        given=text("LOW\nMI\0D\n"),
    ),
    case(
        "a text with the sign that tokens write for the space",
        CHARACTERS,
        "t.txt:2",
        "U+2581",
        given=text("LOW\nMID\u2581HIGH\n"),
    ),
    case(
        "the same, for BPE", BPE, "t.txt:2", "U+2581", given=text("LOW MID HIGH\nMID\u2581HIGH\n")
    ),
    case(
        "a text of white space",
        CHARACTERS,
        "no text",
        given=text(" \n\u3000\n\t\n".replace("\t", " ")),
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
    # the kind and the size
    case(
        "the kind in capitals",
        "asr-tokenizer t.txt out --kind BPE --size 20",
        "--kind",
        "bpe",
        given=text(),
    ),
    case(
        "a size of twenty digits",
        "asr-tokenizer t.txt out --kind bpe --size 99999999999999999999",
        "99999999999999999999",
        given=text(),
    ),
    case(
        "a size below nothing", "asr-tokenizer t.txt out --kind bpe --size=-7", "-7", given=text()
    ),
    case(
        "a size with a fraction",
        "asr-tokenizer t.txt out --kind bpe --size 20.5",
        "--size",
        "20.5",
        given=text(),
    ),
    case(
        "a size of two thousand million",
        "asr-tokenizer t.txt out --kind bpe --size 2000000000",
        "2000000000",
        given=text(),
    ),
    case(
        "one letter again and again has no merges",
        "asr-tokenizer t.txt out --kind bpe --size 9",
        "9",
        given=text("A A A\n"),
    ),
    # the output
    case(
        "the output is an empty name",
        ["asr-tokenizer", "t.txt", "", "--kind", "characters"],
        ("empty", "''"),
        ("name", "empty"),
        given=text(),
    ),
    case(
        "the output is the text",
        "asr-tokenizer t.txt t.txt --kind characters",
        "t.txt",
        given=text(),
    ),
    case(
        "the output is a model's folder",
        "asr-tokenizer t.txt m --kind characters",
        "m",
        ("--force", "model"),
        given=lambda r: [text()(r), r.copy("model", "m")],
    ),
    case(
        "the output holds somebody else's tokenizer.json",
        CHARACTERS,
        "out/tokenizer.json",
        "--force",
        given=lambda r: [
            text()(r),
            r.write("out/tokenizer.json", '{"version": "1.0", "model": {"type": "WordPiece"}}'),
        ],
    ),
    case(
        "the output is a broken link",
        CHARACTERS,
        "out",
        given=lambda r: [text()(r), r.link("out", "no/where")],
    ),
    case(
        "the output is the kernel's",
        "asr-tokenizer t.txt /proc/tokenizer --kind characters",
        "/proc/tokenizer",
        given=text(),
    ),
    case(
        "the disk is full while BPE is written",
        BPE,
        "out",
        "too large",
        given=text("LOW MID HIGH\n" * 9),
        file_bytes=100,
        leaves=(),
    ),
    # the surroundings
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
