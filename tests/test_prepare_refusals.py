"""Each fault of a corpus, or of a manifest, is refused in its own words, and nothing is written."""

import gzip
from importlib import import_module

import pytest
from layouts import aishell, an4, assert_refused, librispeech, sound, tsv

from asr.data import manifest
from asr.data.prepare import prepare
from asr.errors import UserError


@pytest.mark.parametrize(
    "corpus", ["librispeech", "aishell", "an4", "yesno", "common_voice", "kaldi", "folder"]
)
def test_absent_or_wrong_folder_says_what_was_expected(tmp_path, corpus):
    layout = import_module(f"asr.data.corpora.{corpus}").LAYOUT
    assert_refused(
        f"{tmp_path / 'no'}: no such folder; expected {layout}",
        corpus,
        tmp_path / "no",
        tmp_path / "out",
    )
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thing.txt").touch()
    assert_refused(
        f"{tmp_path / 'other'}: holds thing.txt; expected {layout}",
        corpus,
        tmp_path / "other",
        tmp_path / "out",
    )


def test_no_tsv(tmp_path):
    expected = (
        "expected a .tsv file, or a folder with one .tsv per split (train.tsv, dev.tsv, test.tsv), "
        "of `id path text [speaker]`"
    )
    assert_refused(
        f"{tmp_path / 'no'}: no such file or folder; {expected}",
        "tsv",
        tmp_path / "no",
        tmp_path / "out",
    )
    (tmp_path / "empty").mkdir()
    assert_refused(
        f"{tmp_path / 'empty'}: is empty; {expected}", "tsv", tmp_path / "empty", tmp_path / "out"
    )


def test_audio_without_transcript(tmp_path):
    source = librispeech(tmp_path / "c")
    extra = [source / f"train-mini/10/7/10-7-100{n}.flac" for n in range(7)]
    for path in extra:
        sound(path)
    named = ", ".join(map(str, extra[:5]))
    message = f"sound files without a transcript (7): {named} and 2 more; add their transcripts or remove the files"
    assert_refused(message, "librispeech", source, tmp_path / "out")


def test_aishell_transcript_without_audio(tmp_path):
    source = aishell(tmp_path / "c")
    (source / "data_aishell/wav/test/S0003/S0003W1.wav").unlink()
    where = f"{source / 'data_aishell/transcript/aishell_transcript_v0.8.txt'}:3"
    message = f"transcripts without a sound file (1): S0003W1 ({where}); unpack every speaker's archive of wav/*.tar.gz"
    assert_refused(message, "aishell", source, tmp_path / "out")


def test_an4_lists_that_disagree(tmp_path):
    source = an4(tmp_path / "an4", speakers=2, each=2)
    file = source / "etc/an4_train.transcription"
    whole = file.read_text().splitlines(keepends=True)
    file.write_text("".join(whole[1:]))
    message = "ids of an4_train.fileids without a transcript (1): antrain0_0-f00-b; add them"
    assert_refused(message, "an4", source, tmp_path / "out")
    file.write_text("".join(whole) + "<s> GO </s>\n")
    message = f"{file}:5: expected `text (id)` with an id of an4_train.fileids, got '<s> GO </s>'"
    assert_refused(message, "an4", source, tmp_path / "out")


def test_repeated_ids_across_splits(tmp_path):
    a = tsv(tmp_path, "train.tsv", ["u1\tclips/a.wav\tA"])
    b = tsv(tmp_path, "dev.tsv", ["u1\tclips/b.wav\tB"])
    where = f"u1 ({b}:1), u1 ({a}:1)"
    message = f"utterances that share an id with another (2): {where}; give each its own id across all splits"
    assert_refused(message, "tsv", tmp_path, tmp_path / "out")


def test_a_header_of_other_names(tmp_path):
    file = tsv(tmp_path, "a.tsv", ["utt\taudio\ttranscript", "u1\tclips/a.wav\tA"])
    message = f"{file}:1: got utt, audio, transcript, expected a recording, or a header with the names id, path, text, "
    assert_refused(message + "speaker", "tsv", file, tmp_path / "out")


@pytest.mark.parametrize("wish", ["nan", "inf", "-1", "1.5", "0", "1e300"])
def test_a_dev_set_of_no_size(tmp_path, wish):
    file = tsv(tmp_path, "train.tsv", ["u1\tclips/a.wav\tA", "u2\tclips/b.wav\tB"])
    message = f"dev: got {float(wish):g}, expected 1 to 1 of 2 training utterances, or a fraction"
    assert_refused(message, "tsv", file, tmp_path / "out", dev=float(wish))


@pytest.mark.parametrize(
    "line, says",
    [
        (
            "u\x1b[2J\tclips/b.wav\tB",
            r"ids that a line of text can't hold (1): 'u\\x1b[2J' (FILE:2) has a control",
        ),
        (
            "u\u20282\tclips/b.wav\tB",
            r"ids that a line of text can't hold (1): 'u\\u20282' (FILE:2) has a control",
        ),
        ("\ufeffu2\tclips/b.wav\tB", "ids that a line of text can't hold (1): "),
        (f"{'u' * 5000}\tclips/b.wav\tB", "ids that a line of text can't hold (1): "),
        (
            "u2\tclips/b.wav\tB\0",
            r"texts with characters that aren't text (1): 'B\\x00' (FILE:2) has a control character (U+0000)",
        ),
        (
            "u2\tclips/b.wav\tB\ts\x07",
            r"speakers that no line can hold (1): 's\\x07' (FILE:2) has a control character",
        ),
    ],
)
def test_what_a_line_of_text_cannot_hold(tmp_path, line, says):
    file = tsv(tmp_path, "a.tsv", ["u1\tclips/a.wav\tA", line])
    with pytest.raises(UserError) as error:
        prepare("tsv", file, tmp_path / "out")
    assert (
        str(error.value).startswith(says.replace("FILE", str(file)))
        and not (tmp_path / "out").exists()
    )


def test_empty_text(tmp_path):
    file = tsv(tmp_path, "a.tsv", ["u1\tclips/a.wav\tA", "u2\tclips/b.wav\t "])
    assert_refused(
        f"empty texts (1): u2 ({file}:2); transcribe or remove them", "tsv", file, tmp_path / "out"
    )


@pytest.mark.parametrize(
    "line,message",
    [
        (
            "u2 clips/b.wav B",
            ":2: 1 tab-separated columns; expected 3 to 4: id, path, text, speaker",
        ),
        (
            "u2\tclips/b.wav\tB\tx\t3.1",
            ":2: 5 tab-separated columns; expected 3 to 4: id, path, text, speaker",
        ),
        ("\tclips/b.wav\tB", ":2: the id is empty"),
        ("u2\t\tB", ":2: the path is empty"),
        (
            "u2,clips/b.wav,B",
            ":2: has commas, expected tabs between its columns; save the table as .tsv",
        ),
        (
            "u2\thttps://x.org/b.wav\tB",
            ":2: path: got https://x.org/b.wav, expected a file; URLs aren't fetched, download it",
        ),
    ],
)
def test_malformed_tsv_line(tmp_path, line, message):
    file = tsv(tmp_path, "a.tsv", ["u1\tclips/a.wav\tA", line])
    assert_refused(f"{file}{message}", "tsv", file, tmp_path / "out")


def test_header_without_a_needed_column(tmp_path):
    file = tsv(tmp_path, "a.tsv", ["id\tpath\ttexts", "u1\tclips/a.wav\tA"])
    assert_refused(
        f"{file}:1: expected a column 'text' in the header, got id, path, texts",
        "tsv",
        file,
        tmp_path / "out",
    )


def test_not_utf8(tmp_path):
    file = tsv(tmp_path, "a.tsv", ["u1\tclips/a.wav\tA"])
    file.write_bytes(file.read_bytes() + "u2\tclips/b.wav\tÄ\n".encode("latin-1"))
    assert_refused(
        f"{file}:2: not UTF-8 (byte 0xc4); convert it, for example with iconv -t UTF-8",
        "tsv",
        file,
        tmp_path / "out",
    )


def test_dev_where_there_is_one(tmp_path):
    tsv(tmp_path, "train.tsv", ["u1\tclips/a.wav\tA"])
    tsv(tmp_path, "dev.tsv", ["u2\tclips/b.wav\tB"])
    message = "dev: got 1, expected a split named train and none named dev; there are dev, train"
    assert_refused(message, "tsv", tmp_path, tmp_path / "out", dev=1)


def test_a_test_set_that_cannot_be_carved(tmp_path):
    table = tsv(tmp_path, "test.tsv", ["u1\tclips/a.wav\tA", "u2\tclips/b.wav\tB"])
    message = "test: got 1, expected a split named train and none named test; there are test"
    assert_refused(message, "tsv", table, tmp_path / "out", test=1)
    lines = [f"u{n}\tclips/a.wav\tA\t{'ab'[n % 2]}" for n in range(10)]
    message = "--test 1: even the speaker with the fewest utterances has 5; request about 5"
    assert_refused(message, "tsv", tsv(tmp_path, "mine.tsv", lines), tmp_path / "out", test=1)


def test_unwritable_output(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(
        UserError, match=r"file/out: can't write into this folder \(Not a directory\)"
    ):
        prepare("librispeech", librispeech(tmp_path / "c"), tmp_path / "file/out")


# manifests that are damaged


def test_damaged_manifests(tmp_path):
    made = prepare("librispeech", librispeech(tmp_path / "c"), tmp_path / "out")
    path = made.manifests["dev-clean"]
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(
        UserError, match=r"dev-clean.jsonl.gz: damaged after line 0 \(.*\); prepare it again"
    ):
        list(manifest.read(path))
    path.write_bytes(gzip.compress(b'{"id": "u1"}\n'))
    with pytest.raises(
        UserError, match=r"gz:1: expected a lhotse MonoCut with a recording \(no 'recording'\)"
    ):
        list(manifest.read(path))
    path.unlink()
    with pytest.raises(
        UserError, match=r"dev-clean.jsonl.gz: no such manifest; asr-prepare makes it"
    ):
        list(manifest.read(path))
