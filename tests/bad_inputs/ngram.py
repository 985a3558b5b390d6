"""asr-ngram: texts, tokenizers, orders, the file to write."""

import gzip
import json
import lzma
import os

from bad_inputs.case import case

NGRAM = "asr-ngram t.txt tok lm.arpa --order 2"
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


def characters(*characters):
    """A tokenizer.json."""
    return given(
        tokenizer=json.dumps({"kind": "characters", "characters": [*" DGHILMOW", *characters]})
    )


def then(make, after):
    return lambda r: [make(r), after(r)]


def bpe(model):
    return lambda r: [given(tokenizer='{"kind": "bpe"}')(r), r.write("tok/bpe.model", model)]


def whole(room, done):
    """If it was done: both members of the text are counted."""
    lines = (room / "lm.arpa").read_text().splitlines()
    assert any(line.split()[1:2] == ["G"] for line in lines if line.count("\t")), lines


CASES = [
    # the order
    case(
        "an order below nothing",
        "asr-ngram t.txt tok lm.arpa --order=-1",
        "order",
        "-1",
        given=given(),
    ),
    case(
        "an order of twenty digits",
        "asr-ngram t.txt tok lm.arpa --order 99999999999999999999",
        "order",
        "99999999999999999999",
        given=given(),
    ),
    case(
        "an order with a fraction",
        "asr-ngram t.txt tok lm.arpa --order 2.0",
        "--order",
        "2.0",
        given=given(),
    ),
    case("no order", "asr-ngram t.txt tok lm.arpa", "--order", given=given()),
    # arguments in another order, or absent
    case(
        "tokenizer and output in each other's place",
        "asr-ngram t.txt lm.arpa tok --order 2",
        "lm.arpa",
        given=given(),
    ),
    case("no text", "asr-ngram tok lm.arpa --order 2", "OUT", given=given()),
    case(
        "the text is an empty name",
        ["asr-ngram", "", "tok", "lm.arpa", "--order", "2"],
        ("empty", "''"),
        ("name", "empty"),
        given=given(),
    ),
    case(
        "the tokenizer is an empty name",
        ["asr-ngram", "t.txt", "", "lm.arpa", "--order", "2"],
        ("empty", "''"),
        ("name", "empty"),
        given=given(),
    ),
    case(
        "the output is an empty name",
        ["asr-ngram", "t.txt", "tok", "", "--order", "2"],
        ("empty", "''"),
        ("name", "empty"),
        given=given(),
    ),
    # texts
    case(
        "a text with a character that no token has",
        NGRAM,
        "t.txt:2",
        "U+00DF",
        given=given("LOW\nMIß\n"),
    ),
    case("a text of empty lines", NGRAM, "no text", given=given("\n\n")),
    case(
        "a text packed by xz",
        "asr-ngram t.xz tok lm.arpa --order 2",
        "t.xz",
        given=given(lzma.compress(b"LOW\n"), "t.xz"),
    ),
    case(
        "a packed text of two members is read whole",
        "asr-ngram t.txt.gz tok lm.arpa --order 2",
        status=0,
        leaves=MADE,
        then=whole,
        given=given(gzip.compress(b"LOW\n" * 5) + gzip.compress(b"HIGH\n" * 5), "t.txt.gz"),
    ),
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
    # tokenizers
    case(
        "the tokenizer is its file",
        "asr-ngram t.txt tok/tokenizer.json lm.arpa --order 2",
        "tok/tokenizer.json",
        "folder",
        given=given(),
    ),
    case(
        "the tokenizer's description is a folder",
        NGRAM,
        "tokenizer.json",
        given=then(
            given(), lambda r: [(r / "tok/tokenizer.json").unlink(), r.folder("tok/tokenizer.json")]
        ),
    ),
    case(
        "the tokenizer's description is closed to this user",
        NGRAM,
        "tokenizer.json",
        "Permission denied",
        user=True,
        given=then(given(), lambda r: (r / "tok/tokenizer.json").chmod(0)),
    ),
    case(
        "a tokenizer of another toolkit",
        NGRAM,
        "tok/tokenizer.json",
        given=given(tokenizer='{"version": "1.0", "model": {"type": "BPE"}}'),
    ),
    case(
        "a tokenizer of an unknown kind",
        NGRAM,
        "tok/tokenizer.json",
        "wordpiece",
        given=given(tokenizer='{"kind": "wordpiece"}'),
    ),
    case(
        "a tokenizer whose kind is a list",
        NGRAM,
        "tok/tokenizer.json",
        given=given(tokenizer='{"kind": ["bpe"]}'),
    ),
    case(
        "a tokenizer with a character twice",
        NGRAM,
        "tok/tokenizer.json",
        "'L'",
        given=characters("L"),
    ),
    case(
        "a tokenizer with a line's end for a character",
        NGRAM,
        "tok/tokenizer.json",
        ("U+000A", "'\\n'"),
        given=characters("\n"),
    ),
    case(
        "a tokenizer with half a character",
        NGRAM,
        "tok/tokenizer.json",
        ("U+D800", "\\ud800"),
        given=characters("\ud800"),
    ),
    case(
        "a tokenizer with the space and its sign",
        NGRAM,
        "tok/tokenizer.json",
        "U+2581",
        given=characters("\u2581"),
    ),
    case(
        "a tokenizer with a character of two", NGRAM, "tok/tokenizer.json", given=characters("LO")
    ),
    case(
        "a tokenizer of a million characters that aren't there",
        NGRAM,
        "tok/tokenizer.json",
        given=given(tokenizer='{"kind": "characters", "characters": 1000000}'),
    ),
    case("merges that are a text", NGRAM, "tok/bpe.model", given=bpe("LOW 1\nMID 2\n")),
    case("merges that are empty", NGRAM, "tok/bpe.model", given=bpe("")),
    case("no merges", NGRAM, "tok/bpe.model", given=given(tokenizer='{"kind": "bpe"}')),
    # the output
    case(
        "the output is a folder",
        "asr-ngram t.txt tok models --order 2",
        "models",
        "folder",
        given=then(given(), lambda r: r.folder("models")),
    ),
    case(
        "the output is the tokenizer's description",
        "asr-ngram t.txt tok tok/tokenizer.json --order 2",
        "tok/tokenizer.json",
        given=given(),
    ),
    case(
        "the output is somebody's file",
        NGRAM,
        "lm.arpa",
        "--force",
        given=then(given(), lambda r: r.write("lm.arpa", b"\x89PNG\r\n\x1a\n")),
    ),
    case(
        "the output is a link to the text, which stays",
        NGRAM,
        status=(0, 2),
        leaves=MADE,
        changes=("lm.arpa",),
        given=then(given(), lambda r: r.link("lm.arpa", "t.txt")),
    ),
    case(
        "the output is a named pipe",
        NGRAM,
        "lm.arpa",
        given=then(given(), lambda r: r.pipe("lm.arpa")),
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
        "the output's folder is closed to this user",
        "asr-ngram t.txt tok locked/lm.arpa --order 2",
        "locked",
        "Permission denied",
        user=True,
        given=then(given(), lambda r: r.folder("locked").chmod(0o555)),
    ),
    case(
        "the disk is full while a packed model is written",
        "asr-ngram t.txt tok lm.arpa.gz --order 2",
        "lm.arpa.gz",
        "too large",
        given=given(),
        file_bytes=60,
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
