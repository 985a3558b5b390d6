"""Prove that texts become the sentences they are: files are constructed, and read back by the tokenizer's decode."""

import gzip

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from asr.cli import tokenizer as command
from asr.data import manifest, texts
from asr.data.dataset import collate_sentences
from asr.data.manifest import Utterance
from asr.data.texts import tokenize
from asr.errors import UserError
from asr.text import tokenizer


@pytest.fixture(scope="module")
def letters():
    return tokenizer.train("characters", ["a b c d é"])


def decoded(sentences, letters):
    return [letters.decode(sentence) for sentence in sentences]


def test_lines_become_sentences_and_empty_ones_are_counted(tmp_path, letters):
    path = tmp_path / "x.txt"
    path.write_bytes(
        "\ufeffa b\r\n\n  \nc   d é\nabc".encode()
    )  # a byte order mark, Windows' ends, no end at all
    sentences = tokenize(path, letters)
    assert decoded(sentences, letters) == ["a b", "c d é", "abc"]
    assert (sentences.words, sentences.empty, sentences.lines.tolist()) == (6, 2, [1, 4, 5])
    assert sentences.lens.tolist() == [3, 5, 3] and sentences.labels.values.dtype == np.uint8
    assert sentences.message == "3 sentences, 6 words, 11 tokens; 2 empty lines skipped"
    assert sentences.dropped == ""


def test_gz_and_manifest_are_the_same_text(tmp_path, letters):
    (tmp_path / "x.txt").write_text("a b\nc d\n")
    with gzip.open(tmp_path / "x.txt.gz", "wt") as file:
        file.write("a b\nc d\n")
    spoken = [
        Utterance(f"u{n}", "x.wav", 8000, 9, 1, 0.0, 1.0, text)
        for n, text in enumerate(["a b", "", "c d"])
    ]
    manifest.write(tmp_path / "x.jsonl.gz", spoken)
    read = [tokenize(tmp_path / name, letters) for name in ("x.txt", "x.txt.gz", "x.jsonl.gz")]
    assert [decoded(sentences, letters) for sentences in read] == [["a b", "c d"]] * 3
    assert [sentences.words for sentences in read] == [4] * 3
    assert read[2].lines.tolist() == [1, 3] and read[2].empty == 1


def test_too_long_sentences_are_left_out_and_listed(tmp_path, letters):
    path = tmp_path / "x.txt"
    path.write_text("abcd\nabcda\nab cd\na\n")
    sentences = tokenize(path, letters, max_tokens=4)
    assert decoded(sentences, letters) == ["abcd", "a"] and sentences.words == 2
    assert (
        sentences.message == "2 sentences, 2 words, 5 tokens; 2 too long ones left out (lines 2, 3)"
    )
    assert (
        sentences.dropped
        == f"{path}:2\tmore tokens than max_tokens\n{path}:3\tmore tokens than max_tokens\n"
    )


def test_tokens_take_as_many_bytes_as_they_need(tmp_path):
    characters = [chr(0x4E00 + n) for n in range(700)]
    (tmp_path / "x.txt").write_text("\n".join(characters), encoding="utf-8")
    large = tokenizer.train("characters", characters)
    sentences = tokenize(tmp_path / "x.txt", large)
    assert sentences.labels.values.dtype == np.uint16 and decoded(sentences, large) == characters


@pytest.mark.parametrize(
    "name, content, message",
    [
        (
            "no.txt",
            None,
            r"no\.txt: no such text file; expected one sentence per line, or a manifest \(\.jsonl\.gz\)$",
        ),
        ("no.jsonl.gz", None, r"no\.jsonl\.gz: no such manifest; asr-prepare makes it$"),
        (
            "x.txt",
            b"a b\n\nc x d\n",
            r"x\.txt:3: character 'x' \(U\+0078\) of 'c x d' is not in the tokenizer's vocab",
        ),
        ("x.txt", b"a b\nc \xff d\n", r"x\.txt:2: not UTF-8 text \(byte 3 of the line\)$"),
        ("x.txt", b"\n \n", r"x\.txt: holds no sentence to use$"),
        (
            "x.txt",
            b"abcabc\n",
            r"x\.txt: holds no sentence to use; 1 sentences are longer than max_tokens=5$",
        ),
        ("x.txt.gz", b"a b\n", r"x\.txt\.gz: damaged after line 0 \(.*\); copy it again$"),
        (
            "x.txt.gz",
            gzip.compress(b"a b\n" * 9, mtime=0)[:-9],
            r"x\.txt\.gz: damaged after line \d \(.*\); copy it again$",
        ),
        ("x.jsonl", b"{}\n", r"x\.jsonl:1: expected a lhotse MonoCut with a recording"),
    ],
)
def test_a_mistake_names_file_and_line(tmp_path, letters, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        tokenize(tmp_path / name, letters, max_tokens=5)
    assert len(str(caught.value).splitlines()) == 1


def test_an_unknown_character_of_a_manifest_names_the_utterance(tmp_path, letters):
    manifest.write(tmp_path / "x.jsonl.gz", [Utterance("u7", "x.wav", 8000, 9, 1, 0.0, 1.0, "a z")])
    with pytest.raises(UserError, match=r"x\.jsonl\.gz: u7: character 'z' \(U\+007A\) of 'a z'"):
        tokenize(tmp_path / "x.jsonl.gz", letters)


def test_a_folder_is_no_text(tmp_path):
    with pytest.raises(UserError, match="can't be read"):
        list(texts.read(tmp_path))


def test_collate_pads_with_minus_one(tmp_path, letters):
    (tmp_path / "x.txt").write_text("a\nabc\nab\n")
    batch = collate_sentences(tokenize(tmp_path / "x.txt", letters), [2, 1])
    a, b, c = (letters.encode(letter)[0] for letter in "abc")
    assert_close(batch.Y, torch.tensor([[a, b, -1], [a, b, c]]))
    assert_close(batch.Y_lens, torch.tensor([2, 3]))


def test_halves_are_trimmed(tmp_path, letters):
    (tmp_path / "x.txt").write_text("a\nab\nabc\nb\nabcd\n")
    sentences = tokenize(tmp_path / "x.txt", letters)
    halves = collate_sentences(sentences, [0, 1, 2, 3, 4]).halves()
    for half, indices in zip(halves, ([0, 1], [2, 3, 4]), strict=True):
        expected = collate_sentences(sentences, indices)
        assert_close((half.Y, half.Y_lens), (expected.Y, expected.Y_lens))
    with pytest.raises(ValueError, match="a batch of 1 can't be halved"):
        collate_sentences(sentences, [4]).halves()


def test_a_tokenizer_is_made_from_text_files(tmp_path, capsys):
    (tmp_path / "x.txt").write_text("ab\n")
    (tmp_path / "y.txt").write_text("cd\n\n")
    command.main(
        [
            str(tmp_path / "x.txt"),
            str(tmp_path / "y.txt"),
            str(tmp_path / "t"),
            "--kind",
            "characters",
        ]
    )
    assert "6 ids from 3 texts" in capsys.readouterr().err
    assert tokenizer.load(tmp_path / "t").decode([1, 2, 3, 4]) == "abcd"
