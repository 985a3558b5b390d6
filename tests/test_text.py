"""Prove the tokenizers: text → ids → text is the normalized text, ids keep to their places, mistakes are named.

Expected ids are constructed, or laws over generated texts of Latin with apostrophes, Han and mixed scripts.
"""

import pickle
import re
import unicodedata
from collections import Counter
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from asr.text import bpe
from asr.text import tokenizer as tokenizers
from asr.text.characters import Characters
from asr.text.normalize import normalize
from asr.text.sample import draw
from asr.text.tokenizer import sos_eos, train

each = pytest.mark.parametrize
LATIN = """IT'S A TEST OF THE O'CLOCK NEWS
DON'T PANIC THE TEST IS SHORT
THE END'S NEAR
QUICK BROWN FOX JUMPS""".splitlines()
HAN = ["今天天气很好", "我们今天去北京", "北京 的 天气", "语音识别很好"]
MIXED = ["我用 iPhone 打 call", "AA 制 很好", "é voilà ça va", "Straße über Ölmühle", "привет мир"]
CORPORA = {"latin": LATIN, "han": HAN, "mixed": LATIN + HAN + MIXED}
SIZES = {"latin": 60, "han": 40, "mixed": 120}


def make(kind, corpus):
    """Characters are as many as the texts have."""
    return train(kind, CORPORA[corpus], SIZES[corpus] if kind == "bpe" else None)


@each("kind", ["characters", "bpe"])
@each("corpus", CORPORA)
def test_texts_come_back_and_saved_or_pickled_and_loaded_is_equal(kind, corpus, tmp_path):
    tokenizer = make(kind, corpus)
    symbols, end = tokenizer.symbols(), sos_eos(tokenizer)
    assert len(symbols) == len(set(symbols)) == tokenizer.vocabulary == end + 1
    assert (symbols[0], symbols[-1]) == ("<blank>", "<sos/eos>")
    assert all(s.strip() == s != "" for s in symbols)
    tokenizer.save(tmp_path)
    loaded = tokenizers.load(tmp_path)
    assert loaded.symbols() == symbols and type(loaded) is type(tokenizer)
    pickled = pickle.loads(pickle.dumps(tokenizer))  # for another process
    for text in CORPORA[corpus]:
        ids = tokenizer.encode(text)
        assert loaded.encode(text) == pickled.encode(text) == ids and 0 < min(ids) <= max(ids) < end
        assert tokenizer.decode([end, 0, *ids, 0, end]) == tokenizer.decode(ids) == text
    assert tokenizer.decode([]) == "" and tokenizer.encode("") == tokenizer.encode("  ") == []


def test_a_sample_is_drawn_evenly_and_again_the_same():
    texts = [f"t{n}" for n in range(20)]
    assert draw(iter(texts), 20).texts == texts == draw(texts, 30).texts
    samples = [draw(texts, 5, seed).texts for seed in range(2000)]
    assert samples[3] == draw(texts, 5, 3).texts != samples[4]
    assert all(len(set(some)) == 5 and some == sorted(some, key=texts.index) for some in samples)
    counts = Counter(chain(*samples))  # 500 each, with a deviation of 19
    assert all(420 < counts[text] < 580 for text in texts)


def test_bpe_of_a_sample_knows_the_characters_of_all_texts(monkeypatch):
    monkeypatch.setattr(bpe, "SAMPLE", 100)
    texts = ["low lower lowest"] * 1000 + ["ÄÖ"] + ["new newer newest"] * 1000
    sample = draw(texts, 100)
    assert sample.missing == set("ÄÖ") and not draw(texts, 5000).missing
    trained = train("bpe", iter(texts), 30)
    for text in ("low lower", "ÄÖ"):
        assert trained.decode(trained.encode(text)) == text


def test_ids_of_characters():
    tokenizer = train("characters", ["BA'", "A B"])
    assert tokenizer.symbols() == ["<blank>", "▁", "'", "A", "B", "<sos/eos>"]
    assert tokenizer.encode("AB 'A") == [3, 4, 1, 2, 3] and tokenizer.vocabulary == 6


@each("kind", ["characters", "bpe"])
@each("character, code", [("ñ", "00F1"), ("😀", "1F600")])
def test_a_character_out_of_the_vocabulary_names_the_utterance(kind, character, code):
    says = rf"^x-1: character '{character}' \(U\+{code}\) of 'THE{character}' is not in the"
    refused(says, make(kind, "latin").encode, f"THE{character}", "x-1")


def test_normalize():
    assert normalize("  a\tb\n c\u3000d\u00a0e ") == "a b c d e"
    assert normalize("e\u0301\u212b") == "\u00e9\u00c5"  # combining accent; Ångström sign
    assert normalize("Don't ﬁ ½") == "Don't ﬁ ½"  # compatibility forms, case and punctuation stay


def decomposed(text):
    return unicodedata.normalize("NFD", text)


TOKENIZERS = {kind: make(kind, "mixed") for kind in ("characters", "bpe")}
WORDS = st.text(st.sampled_from(sorted(set("".join(CORPORA["mixed"])) - {" "})), min_size=1)
TEXTS = st.lists(WORDS, min_size=1, max_size=5)
KINDS = st.sampled_from(list(TOKENIZERS))


@given(TEXTS, st.sampled_from([" ", "  ", "\t", "\u3000"]), KINDS)
def test_any_text_of_known_characters_comes_back_composed(words, space, kind):
    tokenizer, text = TOKENIZERS[kind], space.join(words)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == normalize(" ".join(words))
    assert all(0 < n < tokenizer.vocabulary - 1 for n in ids)
    assert tokenizer.encode(f" {decomposed(text)}  ") == ids
    if kind == "bpe":  # a text is encoded word by word; sentencepiece sees it whole
        assert tokenizer._processor.encode(normalize(text)) == ids


@each("kind", TOKENIZERS)
def test_decomposed_texts_make_the_same_tokenizer(kind):
    texts, size = map(decomposed, CORPORA["mixed"]), SIZES["mixed"] if kind == "bpe" else None
    assert train(kind, texts, size).symbols() == TOKENIZERS[kind].symbols()


@given(st.text(max_size=12))
def test_normalize_is_a_projection(text):
    once = normalize(text)
    assert normalize(once) == once == unicodedata.normalize("NFC", once)
    assert normalize(decomposed(text)) == once


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=9), min_size=1))
def test_characters_of_any_texts(texts):
    tokenizer = Characters.train(texts)
    for text in texts:
        assert tokenizer.decode(tokenizer.encode(text)) == normalize(text)


@given(st.lists(st.integers(0, 119), max_size=12), KINDS)
def test_any_ids_decode(ids, kind):
    """Search may propose whatever ids; the text is normalized."""
    text = TOKENIZERS[kind].decode(ids)
    assert text == normalize(text)


@each(
    "kind, texts, size, says",
    [
        ("characters", ["", "  "], None, "tokenizer: got no text"),
        ("characters", ["A"], 50, "tokenizer: got size 50"),
        ("bpe", [], 10, "tokenizer: got no text"),
        ("words", LATIN, None, "tokenizer: got kind 'words', expected one of characters, bpe"),
        ("bpe", LATIN, None, "size: bpe needs a vocabulary size, .* got None"),
        ("bpe", LATIN, 0, "size: bpe needs a vocabulary size, .* got 0"),
    ],
)
def test_mistakes_of_training(kind, texts, size, says):
    refused(f"^{says}", train, kind, texts, size)


@each("size, reason", [(5000, r"(\d+) is the maximum"), (3, r"their characters alone need (\d+)")])
def test_a_size_that_does_not_fit_names_one_that_does(size, reason):
    said = refused(f"vocabulary of {size} doesn't fit .*{reason}", train, "bpe", LATIN, size)
    fitting = int(re.search(reason, said)[1])
    assert train("bpe", LATIN, fitting).vocabulary == fitting
    refused("", train, "bpe", LATIN, fitting + (1 if size > fitting else -1))


@each("kind, size", [("characters", None), ("bpe", 20)])
@each("character", ["\x1b", "\x01", "\u200b\x7f"])
def test_control_characters_become_no_tokens(kind, size, character):
    texts = [f"IT IS {character} A TEST"] * 9
    refused("token .*, which no text can have; remove it", train, kind, texts, size)


@each(
    "name, content, says",
    [
        ("tokenizer.json", None, "no tokenizer here"),
        ("tokenizer.json", b"\xff\xfe", "damaged"),
        ("tokenizer.json", b" " * 50_000_001, "larger than 50 MB"),
        ("tokenizer.json", b'{"kind": "bpe", "sha255": ""}', "damaged, it holds 'sha255'"),
        ("tokenizer.json", b'{"kind": "bpe", "sha256": ""}', "its tokens aren't those"),
        ("tokenizer.json", b'{"kind": "bpe", "sha256": [1]}', "its tokens aren't those"),
        ("bpe.model", None, "missing"),
        ("bpe.model", b"text", "damaged: not a sentencepiece model"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_damaged_and_missing_files_are_named(tmp_path, name, content, says):
    """More of them: tests/bad_inputs/ngram.yaml."""
    TOKENIZERS["bpe"].save(tmp_path)
    (tmp_path / name).write_bytes(content) if content else (tmp_path / name).unlink()
    refused(f"^{tmp_path / name}: {says}", tokenizers.load, tmp_path)
