"""Prove that texts become the sentences they are: files are constructed, and read back by the tokenizer's decode."""

import gzip

import numpy as np
import pytest
import torch
from refusals import refused
from runs import assert_same
from torch.nn.utils.rnn import pad_sequence

from asr.data import manifest
from asr.data.batches import collate_sentences
from asr.data.manifest import Utterance
from asr.data.texts import tokenize
from asr.data.tokens import stored
from asr.text import tokenizer


@pytest.fixture(scope="module")
def letters():
    return tokenizer.train("characters", ["a b c d é"])


def decoded(sentences, letters):
    return [letters.decode(sentence) for sentence in sentences]


def spoken(path, *texts):
    manifest.write(
        path, [Utterance(f"u{n}", "x.wav", 8000, 9, 1, 0.0, 1.0, t) for n, t in enumerate(texts)]
    )


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
    (tmp_path / "x.txt").write_text("a b\n\nc d\n")
    (tmp_path / "x.txt.gz").write_bytes(gzip.compress(b"a b\n\nc d\n"))
    spoken(tmp_path / "x.jsonl.gz", "a b", "", "c d")
    for name in ("x.txt", "x.txt.gz", "x.jsonl.gz"):
        read = tokenize(tmp_path / name, letters)
        assert decoded(read, letters) == ["a b", "c d"] and read.lines.tolist() == [1, 3]
        assert (read.words, read.empty) == (4, 1)


def test_too_long_sentences_are_left_out_and_listed(tmp_path, letters):
    path = tmp_path / "x.txt"
    path.write_text("abcd\nabcda\nab cd\na\n")
    sentences = tokenize(path, letters, max_tokens=4)
    assert decoded(sentences, letters) == ["abcd", "a"] and sentences.words == 2
    assert sentences.message.endswith("5 tokens; 2 too long ones left out (lines 2, 3)")
    listed = [line.split("\t")[0] for line in sentences.dropped.splitlines()]
    assert listed == [f"{path}:2", f"{path}:3"]


def test_tokens_take_as_many_bytes_as_they_need(tmp_path):
    characters = [chr(0x4E00 + n) for n in range(700)]
    (tmp_path / "x.txt").write_text("\n".join(characters), "utf-8")
    large = tokenizer.train("characters", characters)
    sentences = tokenize(tmp_path / "x.txt", large)
    assert sentences.labels.values.dtype == np.uint16 and decoded(sentences, large) == characters


@pytest.mark.parametrize(
    "name, content, says",
    [
        ("no.txt", None, "no such text file; expected one sentence per line, or a manifest"),
        ("no.jsonl.gz", None, "no such manifest"),
        ("x.txt", b"a b\n\nc x d\n", r"3: character 'x' \(U\+0078\) of 'c x d' is not in"),
        ("x.txt", b"a b\nc \xff d\n", r"2: not UTF-8 text \(byte 3 of the line\)$"),
        ("x.txt", b"\n \n", "holds no sentence to use$"),
        ("x.txt", b"abcabc\n", r"holds .*; 1 sentences are longer than max_tokens=5$"),
        ("x.txt.gz", b"a b\n", "damaged after line 0"),
        ("x.txt.gz", gzip.compress(b"a b\n" * 9, mtime=0)[:-9], r"damaged after line \d"),
        ("x.jsonl", b"{}\n", "1: expected a lhotse MonoCut with a recording"),
        ("x.jsonl.gz", "a z", r"u0: character 'z' \(U\+007A\) of 'a z'"),
        (".", None, "can't be read"),
    ],
)
def test_a_mistake_names_file_and_line_whether_or_not_tokens_are_stored(
    tmp_path, letters, name, content, says
):
    path = tmp_path / name
    if isinstance(content, str):
        spoken(path, content)
    elif content is not None:
        path.write_bytes(content)
    letters.save(tmp_path / "t")
    refused(rf"^{path}: ?{says}", tokenize, path, letters, max_tokens=5)
    refused(rf"^{path}: ?{says}", stored, str(path), str(tmp_path / "t"), tmp_path / "ids", 5)


def test_collate_pads_with_minus_one_and_halves_are_trimmed(tmp_path, letters):
    (tmp_path / "x.txt").write_text("a\nab\nabc\nb\nabcd\n")
    sentences = tokenize(tmp_path / "x.txt", letters)
    order = [2, 1, 0, 3, 4]
    batch = collate_sentences(sentences, order)
    parts = order, order[:2], order[2:]
    for made, indices in zip((batch, *batch.halves()), parts, strict=True):
        labels = [torch.tensor(sentences[n].tolist()) for n in indices]
        assert_same(made.Y, pad_sequence(labels, batch_first=True, padding_value=-1))
        assert_same(made.Y_lens, torch.tensor([len(y) for y in labels]))
    with pytest.raises(ValueError, match="a batch of 1 can't be halved"):
        collate_sentences(sentences, [4]).halves()
