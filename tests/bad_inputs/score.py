"""asr-score: references, hypotheses, units, outputs."""

import gzip
import os

from bad_inputs.case import case

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


CASES = [
    # the files
    case(
        "the reference is an empty name",
        ["asr-score", "", "h.txt"],
        ("empty", "''"),
        ("name", "empty"),
        given=given(),
    ),
    case(
        "the hypothesis is an empty name",
        ["asr-score", "r.txt", ""],
        ("empty", "''"),
        ("name", "empty"),
        given=given(),
    ),
    case(
        "the other hypothesis is an empty name",
        ["asr-score", "r.txt", "h.txt", "--against", ""],
        "--against",
        given=given(),
    ),
    case("the hypothesis isn't there", SCORE, "h.txt", ("no such", "No such"), given=given(None)),
    case(
        "the hypothesis is a broken link",
        SCORE,
        "h.txt",
        given=lambda r: [given(None)(r), r.link("h.txt", "gone.txt")],
    ),
    case(
        "the hypothesis is a folder",
        SCORE,
        "h.txt",
        ("folder", "directory"),
        given=lambda r: [given(None)(r), r.folder("h.txt")],
    ),
    case("the reference is a recording", "asr-score $wav h.txt", "train000.wav", given=given()),
    case(
        "the reference is a table of recordings",
        SCORE,
        "r.txt",
        given=given(ref="id\tpath\ttext\na\ta.wav\tLOW MID\nb\tb.wav\tHIGH\n"),
    ),
    case(
        "the reference is a tokenizer's folder",
        "asr-score $tokenizer h.txt",
        "tokenizer",
        given=given(),
    ),
    case(
        "the hypothesis is closed to this user",
        SCORE,
        "h.txt",
        "Permission denied",
        user=True,
        given=lambda r: [given()(r), (r / "h.txt").chmod(0)],
    ),
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
    # their form
    case(
        "a hypothesis in UTF-16",
        SCORE,
        "h.txt:1",
        ("UTF-16", "UTF-8"),
        given=given(REF.encode("utf-16")),
    ),
    case(
        "a hypothesis in Latin-1",
        SCORE,
        "h.txt:2",
        "UTF-8",
        given=given("a\tLOW MID\nb\tHÖCH\n".encode("latin-1")),
    ),
    case(
        "a byte-order mark is no part of an id",
        SCORE,
        status=0,
        then=right,
        given=given("\ufeff" + REF),
    ),
    case(
        "line ends of Windows are no part of a text",
        SCORE,
        status=0,
        then=right,
        given=given(REF.replace("\n", "\r\n")),
    ),
    case("line ends of old Macs", SCORE, "h.txt", given=given(REF.replace("\n", "\r"))),
    case(
        "a space in place of the tab",
        SCORE,
        "h.txt:1",
        ("tab", "TAB"),
        given=given(REF.replace("\t", " ")),
    ),
    case("another column", SCORE, "h.txt:2", given=given("a\tLOW MID\nb\tHIGH\t-3.5\n")),
    case(
        "texts with their ids behind",
        SCORE,
        "h.txt:1",
        ("tab", "TAB"),
        given=given("LOW MID (a)\nHIGH (b)\n"),
    ),
    case(
        "the lines of --json",
        SCORE,
        "h.txt:1",
        given=given('{"id": "a", "text": "LOW MID"}\n{"id": "b", "text": "HIGH"}\n'),
    ),
    case("a header", SCORE, ("'id'", "(id)"), given=given("id\ttext\n" + REF)),
    case("an id twice", SCORE, "h.txt", ("h.txt:3", "a;"), given=given(REF + "a\tLOW\n")),
    case(
        "an id twice in the reference",
        SCORE,
        "r.txt",
        ("r.txt:3", "b;"),
        given=given(ref=REF + "b\tLOW\n"),
    ),
    case("an empty id", SCORE, "h.txt:2", given=given("a\tLOW MID\n\tHIGH\n")),
    case("a NUL in a text", SCORE, "h.txt:1", given=given("a\tLOW\0MID\nb\tHIGH\n")),
    case(
        "an id with a terminal's commands isn't sent there",
        SCORE,
        "\\x1b",
        given=given(REF + "\x1b[2J\tLOW\n"),
        then=lambda room, done: "\x1b" not in done.err or 1 / 0,
    ),
    case(
        "an id composed in the one and decomposed in the other",
        SCORE,
        "h.txt",
        given=given("e\u0301\tLOW MID\nb\tHIGH\n", "\u00e9\tLOW MID\nb\tHIGH\n"),
    ),
    case(
        "a reference with half a character",
        "asr-score r.jsonl h.txt --json o.json",
        ("dev000", "r.jsonl:1"),
        given=surrogate,
    ),
    # nothing to count
    case("an empty reference", SCORE, "r.txt", given=given(ref="")),
    case(
        "references of which nothing is left",
        f"{SCORE} --normalize plain",
        "r.txt",
        given=given(ref="a\t...\nb\t!\n", hyp="a\t\nb\t\n"),
    ),
    case(
        "the other hypothesis lacks an utterance",
        f"{SCORE} --against o.txt",
        "o.txt",
        "b",
        given=given(**{"o.txt": "a\tLOW\n"}),
    ),
    # options
    case("the unit in capitals", f"{SCORE} --unit WORD", "--unit", "word", given=given()),
    case(
        "a convention that isn't one",
        f"{SCORE} --normalize whisper",
        "--normalize",
        "whisper",
        given=given(),
    ),
    # the output
    case("the counts go to the reference", f"{SCORE} --json r.txt", "r.txt", given=given()),
    case(
        "the counts go to the other hypothesis",
        f"{SCORE} --against o.txt --json ./o.txt",
        "o.txt",
        given=given(**{"o.txt": REF}),
    ),
    case(
        "the counts replace somebody's file",
        f"{SCORE} --json notes.md",
        "notes.md",
        "--force",
        given=given(**{"notes.md": "mine"}),
    ),
    case(
        "the counts go to a folder",
        f"{SCORE} --json counts",
        "counts",
        "folder",
        given=lambda r: [given()(r), r.folder("counts")],
    ),
    case(
        "the counts go to an empty name",
        ["asr-score", "r.txt", "h.txt", "--json", ""],
        "--json",
        given=given(),
    ),
    case(
        "the disk is full",
        f"{SCORE} --json o.json",
        "o.json",
        "too large",
        given=given(),
        file_bytes=20,
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
