"""Each fault of a corpus, or of a manifest, is refused with its place, got and expected, and nothing is written."""

import math
from importlib import import_module

import pytest
from layouts import aishell, an4, librispeech, refused, sound, tsv

from asr.data import manifest
from asr.data.prepare import prepare
from asr.errors import UserError

LINES = ["u1\tclips/a.wav\tA", "u2\tclips/b.wav\tB"]
CORPORA = ["librispeech", "aishell", "an4", "yesno", "common_voice", "kaldi", "folder", "tsv"]


@pytest.mark.parametrize("corpus", CORPORA)
def test_absent_or_wrong_folder_says_what_was_expected(tmp_path, corpus):
    layout = import_module(f"asr.data.corpora.{corpus}").LAYOUT
    refused(corpus, tmp_path / "no", f"{tmp_path}/no: no such f", f"; expected {layout}")
    (tmp_path / "other").mkdir()
    refused(corpus, tmp_path / "other", f"{tmp_path}/other: is empty; expected {layout}")
    (tmp_path / "other/thing.txt").touch()
    refused(corpus, tmp_path / "other", f"{tmp_path}/other: holds thing.txt; expected {layout}")


def test_audio_without_transcript(tmp_path):
    source = librispeech(tmp_path / "c")
    extra = [source / f"train-mini/10/7/10-7-100{n}.flac" for n in range(7)]
    for path in extra:
        sound(path)
    named = ", ".join(map(str, extra[:5]))
    refused("librispeech", source, f"files without a transcript (7): {named} and 2 more; ")


def test_aishell_transcript_without_audio(tmp_path):
    source = aishell(tmp_path / "c")
    (source / "data_aishell/wav/test/S0003/S0003W1.wav").unlink()
    where = f"{source}/data_aishell/transcript/aishell_transcript_v0.8.txt:3"
    refused("aishell", source, f"transcripts without a sound file (1): S0003W1 ({where}); ")


def test_an4_lists_that_disagree(tmp_path):
    source = an4(tmp_path / "an4", speakers=2, each=2)
    file = source / "etc/an4_train.transcription"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[1:]))
    refused("an4", source, "an4_train.fileids without a transcript (1): antrain0_0-f00-b; ")
    file.write_text("".join(lines) + "<s> GO </s>\n")
    refused("an4", source, f"{file}:5: expected `text (id)` with an id of ", "got '<s> GO </s>'")


def test_repeated_ids_across_splits(tmp_path):
    files = [tsv(tmp_path, f"{split}.tsv", LINES[:1]) for split in ("dev", "train")]
    refused("tsv", tmp_path, "share an id", f"(2): u1 ({files[0]}:1), u1 ({files[1]}:1); ")


CANT_HOLD = "ids that a line of text can't hold (1): "
NO_TEXT = "texts with characters that aren't text (1): "
NO_SPEAKER = "speakers that no line can hold (1): "


@pytest.mark.parametrize(
    "line, says",
    [
        ("u\x1b[2J\tclips/b.wav\tB", rf"{CANT_HOLD}'u\\x1b[2J' (FILE:2) has a control"),
        ("u\u20282\tclips/b.wav\tB", rf"{CANT_HOLD}'u\\u20282' (FILE:2) has a control"),
        ("\ufeffu2\tclips/b.wav\tB", CANT_HOLD),
        (f"{'u' * 5000}\tclips/b.wav\tB", CANT_HOLD),
        ("u2\tclips/b.wav\tB\0", rf"{NO_TEXT}'B\\x00' (FILE:2) has a control character (U+0000)"),
        ("u2\tclips/b.wav\tB\ts\x07", rf"{NO_SPEAKER}'s\\x07' (FILE:2) has a control character"),
        ("u2\tclips/b.wav\t ", "empty texts (1): u2 (FILE:2)"),
        ("u2\tclips/b.wav\t\udcc4", "FILE:2: not UTF-8 (byte 0xc4)"),
        ("u2 clips/b.wav B", "FILE:2: 1 tab-separated columns; expected 3 to 4: id, path, text, "),
        ("u2\tclips/b.wav\tB\tx\t3.1", "FILE:2: 5 tab-separated columns; expected 3 to 4: id, "),
        ("\tclips/b.wav\tB", "FILE:2: the id is empty"),
        ("u2\t\tB", "FILE:2: the path is empty"),
        ("u2,clips/b.wav,B", "FILE:2: has commas, expected tabs"),
        ("u2\thttps://x.org/b.wav\tB", "FILE:2: path: got https://x.org/b.wav, expected a file"),
        ("utt\taudio\ttranscript", "FILE:1: got utt, audio, transcript, expected a recording, "),
        ("id\tpath\ttexts", "FILE:1: expected a column 'text' in the header, got id, path, "),
    ],
)
def test_what_a_line_cannot_hold(tmp_path, line, says):
    """The second line, or a header."""
    lines = [line, *LINES] if "FILE:1:" in says else [LINES[0], line]
    file = tsv(tmp_path, "a.tsv", lines)
    refused("tsv", file, says.replace("FILE", str(file)))


@pytest.mark.parametrize("wish", [math.nan, math.inf, -1, 1.5, 0, 1e300])
def test_a_dev_set_of_no_size(tmp_path, wish):
    says = f"dev: got {wish:g}, expected 1 to 1 of 2 training utterances, or a fraction"
    refused("tsv", tsv(tmp_path, "train.tsv", LINES), says, dev=wish)


def test_sets_that_cannot_be_carved(tmp_path):
    table = tsv(tmp_path, "test.tsv", LINES)
    refused("tsv", table, "test: got 1, expected a split named train and none named test", test=1)
    tsv(tmp_path, "train.tsv", ["u3\tclips/a.wav\tA"])
    says = "test: got 1, expected a split named train and none named test; there are test, train"
    refused("tsv", tmp_path, says, test=1)
    lines = [f"u{n}\tclips/a.wav\tA\t{'ab'[n % 2]}" for n in range(10)]
    refused("tsv", tsv(tmp_path, "mine.tsv", lines), "--test 1: ", " has 5; ", test=1)


def test_unwritable_output(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file/out: can't write .* \(Not a directory\)"):
        prepare("tsv", tsv(tmp_path, "train.tsv", LINES), tmp_path / "file/out")


def test_a_damaged_manifest(tmp_path):
    path = tmp_path / "x.jsonl.gz"
    manifest.write(path, [manifest.Utterance("u", "/a.wav", 8000, 8000, 1, 0.0, 1.0, "GO")])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"x.jsonl.gz: damaged after line \d \(.*\)"):
        list(manifest.read(path))
