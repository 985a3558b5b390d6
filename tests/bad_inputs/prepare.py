"""asr-prepare: tables, layouts, sound files, numbers, folders."""

import gzip
import os
import struct

from bad_inputs.case import SOME, both, case, named
from bad_inputs.material import damaged, encoded, table, wav

TSV = "asr-prepare tsv t.tsv out"
EITHER = (2, 3)  # nothing of it can be used: a mistake, or all inputs failed


def tsv(*rows, head="id\tpath\ttext\tspeaker", **sounds):
    """A table, t.tsv, and two good recordings, a.wav and b.wav."""

    def given(r):
        for name in "ab":
            r.write(f"{name}.wav", wav())
        content = table(*rows, head=head)
        r.write("t.tsv", content)

    return given


def with_sound(content, name="bad.wav"):
    """A table of two good recordings and a bad one, in the middle."""

    def given(r):
        for good in "ab":
            r.write(f"{good}.wav", wav())
        r.write("t.tsv", table("a\ta.wav\tLOW\ts", f"x\t{name}\tMID\ts", "b\tb.wav\tHIGH\ts"))
        if content is not None:
            r.write(name, content)

    return given


def ids(room):
    with gzip.open(room / "out/t.jsonl.gz", "rt") as file:
        return [line.split('"id": "', 1)[1].split('"', 1)[0] for line in file]


def others_are_done(room, done):
    """The two good recordings are in the manifest, in order."""
    assert ids(room) == ["a", "b"]


def bad_sound(name, content, *says, file="bad.wav", given=None, **more):
    """A row of the table whose recording is bad: the others are prepared, this is named and listed."""
    return case(
        name,
        TSV,
        file,
        *says,
        given=given or with_sound(content, file),
        status=SOME,
        leaves=("out/*", "out/.*", "*failed.tsv"),
        then=both(others_are_done, named("*failed.tsv", file)),
        **more,
    )


def kaldi(scp="a a.wav\nb b.wav\n", text="a LOW\nb HIGH\n", **files):
    """A data folder of Kaldi."""

    def given(r):
        for name in "ab":
            r.write(f"k/{name}.wav", wav())
        if scp is not None:
            r.write("k/wav.scp", scp)
        if text is not None:
            r.write("k/text", text)
        for name, content in files.items():
            r.write(f"k/{name}", content)

    return given


def common_voice(*rows):
    def given(r):
        for name in "ab":
            r.write(f"cv/clips/{name}.wav", wav())
        r.write("cv/train.tsv", table(*rows, head="client_id\tpath\tsentence\tlocale"))

    return given


def kept_text(room, done):
    with gzip.open(room / "out/t.jsonl.gz", "rt") as file:
        assert '"text": "LOW MID"' in file.read()


def wav_of_no_channels():
    return wav().replace(struct.pack("<HHI", 1, 1, 8000), struct.pack("<HHI", 1, 0, 8000))


def wav_of_no_rate():
    return wav().replace(struct.pack("<HHI", 1, 1, 8000), struct.pack("<HHI", 1, 1, 0))


GOOD = ("a\ta.wav\tLOW\ts", "b\tb.wav\tHIGH\ts")

CASES = [
    # arguments
    case(
        "the corpus is an empty name", ["asr-prepare", "", "t.tsv", "out"], "corpus", "librispeech"
    ),
    case(
        "the source is an empty name",
        ["asr-prepare", "folder", "", "out"],
        ("empty", "''"),
        ("name", "empty"),
        given=lambda r: r.write("a.wav", wav()),
    ),
    case(
        "the output is an empty name",
        ["asr-prepare", "tsv", "t.tsv", ""],
        ("empty", "''"),
        ("name", "empty"),
        given=tsv(*GOOD),
    ),
    case("the output is the table", "asr-prepare tsv t.tsv t.tsv", "t.tsv", given=tsv(*GOOD)),
    case(
        "the output is below a device",
        "asr-prepare tsv t.tsv /dev/null/out",
        "/dev/null",
        given=tsv(*GOOD),
    ),
    case(
        "a manifest would replace somebody's file",
        TSV,
        "out/t.jsonl.gz",
        "--force",
        given=lambda r: [tsv(*GOOD)(r), r.write("out/t.jsonl.gz", "my thesis")],
    ),
    case("dev is no number", f"{TSV} --dev nan", "--dev", "nan", given=tsv(*GOOD)),
    case("test is beyond all numbers", f"{TSV} --test 1e400", "--test", "inf", given=tsv(*GOOD)),
    case("dev is below nothing", f"{TSV} --dev=-3", "--dev", "-3", given=tsv(*GOOD)),
    case(
        "dev and test together are more than all",
        f"{TSV} --dev 0.9 --test 0.9",
        ("--dev", "--test"),
        given=tsv(*GOOD),
    ),
    case(
        "an empty split",
        ["asr-prepare", "tsv", "t.tsv", "out", "--splits", ""],
        "--splits",
        "t",
        given=tsv(*GOOD),
    ),
    case(
        "the folder of work is gone",
        TSV,
        ("folder", "directory"),
        cwd="gone!",
        given=lambda r: r.folder("gone"),
    ),
    # the wrong kind of source
    case("the table is a pipe", TSV, "t.tsv", given=lambda r: r.pipe("t.tsv")),
    case("the table is a device", "asr-prepare tsv /dev/null out", "/dev/null"),
    case("the folder of sounds is a device", "asr-prepare folder /dev/zero out", "/dev/zero"),
    case(
        "a folder has the table's name",
        "asr-prepare tsv tables out",
        "train.tsv",
        given=lambda r: r.folder("tables/train.tsv"),
    ),
    case(
        "the folder is closed to this user",
        "asr-prepare tsv locked out",
        "locked",
        "Permission denied",
        user=True,
        given=lambda r: [r.write("locked/train.tsv", table(*GOOD)), (r / "locked").chmod(0)],
    ),
    case(
        "the table is a spreadsheet",
        TSV,
        "t.tsv",
        given=lambda r: r.write("t.tsv", b"PK\x03\x04\x14\0\x06\0\x08\0\0\0!\0\xd8\xb4"),
    ),
    # the table
    case(
        "the table is UTF-16",
        TSV,
        "t.tsv",
        ("UTF-16", "UTF-8"),
        given=lambda r: r.write("t.tsv", table(*GOOD).encode("utf-16")),
    ),
    case(
        "the table has the line ends of old Macs",
        TSV,
        ("t.tsv:1", "t: has no utterances"),
        given=lambda r: r.write("t.tsv", table(*GOOD).replace("\n", "\r")),
    ),
    case("the table is but a header", TSV, "no utterances", given=tsv()),
    case(
        "the header has a column twice",
        TSV,
        "t.tsv:1",
        "path",
        given=tsv("a\ta.wav\tb.wav\tLOW", head="id\tpath\tpath\ttext"),
    ),
    case(
        "an id with a terminal's commands",
        TSV,
        "t.tsv:3",
        "\\x1b",
        given=tsv(GOOD[0], "\x1b[31mb\tb.wav\tHIGH\ts"),
    ),
    case(
        "a text with a NUL",
        TSV,
        "t.tsv:3",
        ("NUL", "\\x00", "U+0000"),
        given=tsv(GOOD[0], "b\tb.wav\tHI\0GH\ts"),
    ),
    case(
        "a text with a line separator is one line",
        TSV,
        status=0,
        leaves=("out/*", "out/.*"),
        then=kept_text,
        given=tsv("a\ta.wav\tLOW\u2028MID\ts"),
    ),
    case(
        "a path that is an address",
        TSV,
        "https:/",
        "t.tsv:3",
        status=EITHER,
        leaves=("out/*", "out/.*", "*failed.tsv"),
        given=tsv(GOOD[0], "b\thttps://example.com/b.wav\tHIGH\ts"),
    ),
    case(
        "a name for a tar that leaves its folder",
        f"{TSV} --shar",
        "../../b",
        given=tsv(GOOD[0], "../../b\tb.wav\tHIGH\ts"),
    ),
    case(
        "a convention that leaves a text with nothing",
        f"{TSV} --normalize plain",
        "b (",
        "empty",
        given=tsv(GOOD[0], "b\tb.wav\t...!\ts"),
    ),
    case(
        "a speaker's name with a line's end of its own",
        TSV,
        "t.tsv:3",
        given=tsv(GOOD[0], "b\tb.wav\tHIGH\ts\x0bt"),
    ),
    # recordings
    bad_sound("a recording of no channels", wav_of_no_channels()),
    bad_sound("a recording of no rate", wav_of_no_rate()),
    bad_sound("a recording damaged in its middle", damaged(encoded("FLAC")), file="bad.flac"),
    bad_sound(
        "a recording that is a page of a server",
        b"<!DOCTYPE html><html><body>404 Not Found",
        file="bad.flac",
    ),
    bad_sound("a recording within gzip", gzip.compress(wav())),
    bad_sound(
        "a recording that is but a tag",
        b"ID3\x04\0\0\0\0\0\x21" + b"TIT2\0\0\0\x05\0\0\0abcd" + b"\0" * 30,
        file="bad.mp3",
    ),
    bad_sound("a recording's header ends early", wav()[:20]),
    bad_sound(
        "a recording that is a folder",
        None,
        file="bad.wav",
        given=lambda r: [with_sound(None)(r), r.folder("bad.wav")],
    ),
    bad_sound(
        "a recording that is a pipe", None, given=lambda r: [with_sound(None)(r), r.pipe("bad.wav")]
    ),
    bad_sound(
        "a recording closed to this user",
        wav(),
        "Permission denied",
        user=True,
        given=lambda r: [with_sound(wav())(r), (r / "bad.wav").chmod(0)],
    ),
    case(
        "all recordings are bad",
        TSV,
        "a.wav",
        "b.wav",
        status=EITHER,
        leaves=("*failed.tsv", "out/*failed.tsv"),
        given=lambda r: [
            r.write("t.tsv", table(*GOOD)),
            r.write("a.wav", "no"),
            r.write("b.wav", b""),
        ],
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
    # layouts
    case(
        "kaldi: a path into an archive of features",
        "asr-prepare kaldi k out",
        "raw.ark:4711",
        status=EITHER,
        leaves=("out/*", "out/.*", "*failed.tsv"),
        given=kaldi("a a.wav\nb /data/raw.ark:4711\n"),
    ),
    case(
        "kaldi: an id without a path",
        "asr-prepare kaldi k out",
        "wav.scp:2",
        given=kaldi("a a.wav\nb\n"),
    ),
    case(
        "kaldi: text is absent",
        "asr-prepare kaldi k out",
        "k/text",
        "No such file",
        given=kaldi(text=None),
    ),
    case(
        "kaldi: a speaker's line has three fields",
        "asr-prepare kaldi k out",
        "utt2spk:2",
        given=kaldi(utt2spk="a s\nb s t\n"),
    ),
    case(
        "common_voice: a sentence with a tab",
        "asr-prepare common_voice cv out",
        "train.tsv:3",
        given=common_voice("c\ta.wav\tLOW\ten", "c\tb.wav\tLOW\tMID\ten"),
    ),
    case(
        "common_voice: a clip outside of clips",
        "asr-prepare common_voice cv out",
        "train.tsv:2",
        "../",
        given=common_voice("c\t../../../etc/hostname\tLOW\ten"),
    ),
    case(
        "librispeech: transcripts are a folder",
        "asr-prepare librispeech l out",
        "1-2.trans.txt",
        given=lambda r: r.folder("l/dev-clean/1/2/1-2.trans.txt"),
    ),
    case(
        "an4: a list with a path from the root",
        "asr-prepare an4 a out --dev 1",
        ("/etc/train", "/etc/test"),
        given=lambda r: [
            r.write(f"a/etc/an4_{s}.{k}", "".join(line.format(f"{s}{n}") for n in range(3)))
            for s in ("train", "test")
            for k, line in (("fileids", "/etc/{}\n"), ("transcription", "HI ({})\n"))
        ],
    ),
    case(
        "aishell: the speakers aren't unpacked",
        "asr-prepare aishell s out",
        "wav/*.tar.gz",
        given=lambda r: [
            r.write("s/wav/S0002.tar.gz", b"x"),
            r.write("s/transcript/aishell_transcript_v0.8.txt", "BAC 一\n"),
        ],
    ),
    case(
        "yesno: a name of digits that are none here",
        "asr-prepare yesno y out",
        "y",
        given=lambda r: [r.folder("y"), r.write("y/0_1_٠.wav", wav())],
    ),
    # what can't be written
    case("the disk is full", TSV, "out", "too large", given=tsv(*GOOD), file_bytes=40),
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
