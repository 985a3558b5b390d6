"""Prove the tokenizers: text → ids → text is the normalized text, ids keep to their places, mistakes are named.

Expected ids are constructed, or laws over generated texts of Latin with apostrophes, Han and mixed scripts.
"""

import unicodedata
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import rows

from asr.errors import UserError
from asr.text import bpe
from asr.text import tokenizer as tokenizers
from asr.text.characters import Characters
from asr.text.normalize import normalize
from asr.text.sample import draw
from asr.text.tokenizer import sos_eos, train

LATIN = [
    "IT'S A TEST OF THE O'CLOCK NEWS",
    "DON'T PANIC THE TEST IS SHORT",
    "THE END'S NEAR",
    "QUICK BROWN FOX JUMPS",
]
HAN = ["今天天气很好", "我们今天去北京", "北京 的 天气", "语音识别很好"]
MIXED = ["我用 iPhone 打 call", "AA 制 很好", "é voilà ça va", "Straße über Ölmühle", "привет мир"]
CORPORA = {"latin": LATIN, "han": HAN, "mixed": LATIN + HAN + MIXED}
SIZES = {"latin": 60, "han": 40, "mixed": 120}


def refused(message, call, *args):
    """In words that begin so."""
    with pytest.raises(UserError) as caught:
        call(*args)
    assert str(caught.value).startswith(message), caught.value


def size_of(kind, corpus):
    """Of a vocabulary to ask for: characters are as many as the texts have."""
    return SIZES[corpus] if kind == "bpe" else None


def make(kind, corpus):
    return train(kind, CORPORA[corpus], size_of(kind, corpus))


@pytest.fixture(
    scope="module", params=[(k, c) for k in ("characters", "bpe") for c in CORPORA], ids="-".join
)
def both(request):
    """A tokenizer and its training texts."""
    return make(*request.param), CORPORA[request.param[1]]


def test_training_texts_come_back(both):
    tokenizer, texts = both
    for text in texts:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert all(0 < n < tokenizer.vocabulary - 1 for n in ids)  # neither blank nor <sos/eos>


def test_a_sample_is_drawn_evenly_and_again_the_same():
    texts = [f"t{n}" for n in range(20)]
    assert draw(iter(texts), 20).texts == texts == draw(texts, 30).texts
    samples = [draw(texts, 5, seed).texts for seed in range(2000)]
    assert samples[3] == draw(texts, 5, 3).texts != samples[4]
    assert all(
        len(set(sample)) == 5 and sample == sorted(sample, key=texts.index) for sample in samples
    )
    counts = Counter(
        text for sample in samples for text in sample
    )  # 500 each, with a deviation of 19
    assert set(counts) == set(texts) and max(abs(count - 500) for count in counts.values()) < 80


def test_bpe_of_a_sample_knows_the_characters_of_all_texts(monkeypatch):
    monkeypatch.setattr(bpe, "SAMPLE", 100)
    texts = ["low lower lowest"] * 1000 + ["ÄÖ"] + ["new newer newest"] * 1000
    sample = draw(texts, 100)
    assert sample.missing == set("ÄÖ") and not draw(texts, 5000).missing
    trained = train("bpe", iter(texts), 30)
    for text in ("low lower", "ÄÖ"):
        assert trained.decode(trained.encode(text)) == text


def test_blank_and_start_are_left_out(both):
    tokenizer, texts = both
    ids, end = tokenizer.encode(texts[0]), sos_eos(tokenizer)
    assert end == tokenizer.vocabulary - 1
    assert tokenizer.decode([end, 0, *ids, 0, end]) == texts[0]
    assert tokenizer.decode([]) == "" and tokenizer.encode("") == tokenizer.encode("  ") == []


def test_symbols(both):
    tokenizer, _ = both
    symbols = tokenizer.symbols()
    assert len(symbols) == len(set(symbols)) == tokenizer.vocabulary
    assert (symbols[0], symbols[-1]) == ("<blank>", "<sos/eos>")
    assert all(s.strip() == s != "" for s in symbols)


def test_saved_and_loaded_is_equal(both, tmp_path):
    tokenizer, texts = both
    tokenizer.save(tmp_path)
    loaded = tokenizers.load(tmp_path)
    assert loaded.symbols() == tokenizer.symbols() and type(loaded) is type(tokenizer)
    assert [loaded.encode(t) for t in texts] == [tokenizer.encode(t) for t in texts]


def test_ids_of_characters():
    tokenizer = train("characters", ["BA'", "A B"])
    assert tokenizer.symbols() == ["<blank>", "▁", "'", "A", "B", "<sos/eos>"]
    assert tokenizer.encode("AB 'A") == [3, 4, 1, 2, 3] and tokenizer.vocabulary == 6


def test_the_size_of_bpe_counts_blank_and_start():
    assert train("bpe", LATIN, 60).vocabulary == 60
    merged = train("bpe", ["THE CAT THE DOG THE END"] * 3, 20)
    assert len(merged.encode("THE")) == 1  # the most frequent word is one piece


@pytest.mark.parametrize("kind", ["characters", "bpe"])
@pytest.mark.parametrize(
    "text, character, code",
    [("THE ñ", "ñ", "U+00F1"), ("的 THE", "的", "U+7684"), ("X\U0001f600", "😀", "U+1F600")],
)
def test_a_character_out_of_the_vocabulary_names_the_utterance(kind, text, character, code):
    with pytest.raises(UserError) as caught:
        make(kind, "latin").encode(text, "1089-134686-0001")
    assert str(caught.value) == (
        f"1089-134686-0001: character {character!r} ({code}) of {text!r} is not in the tokenizer's vocabulary; "
        "train the tokenizer on this text, too, or remove it"
    )


def test_normalize():
    assert normalize("  a\tb\n c\u3000d\u00a0e ") == "a b c d e"
    assert (
        normalize("e\u0301") == "\u00e9" and normalize("\u212b") == "\u00c5"
    )  # combining accent; Ångström sign
    assert normalize("Don't ﬁ ½") == "Don't ﬁ ½"  # compatibility forms, case and punctuation stay


@pytest.mark.parametrize("kind", ["characters", "bpe"])
def test_decomposed_text_is_the_same_text(kind):
    tokenizer = make(kind, "mixed")
    for text in MIXED:
        assert tokenizer.encode(unicodedata.normalize("NFD", f" {text}  ")) == tokenizer.encode(
            text
        )
    decomposed = train(
        kind, [unicodedata.normalize("NFD", t) for t in CORPORA["mixed"]], size_of(kind, "mixed")
    )
    assert decomposed.symbols() == tokenizer.symbols()


def test_texts_of_a_lhotse_cutset(tmp_path):
    """A manifest as lhotse itself writes it gives its texts to a tokenizer."""
    lhotse = pytest.importorskip("lhotse")
    from asr.data import manifest

    source = lhotse.AudioSource("file", [0], "a.wav")
    recording = lhotse.Recording("a", [source], 16000, 16000, 1.0, channel_ids=[0])
    cuts = []
    for n, text in enumerate(MIXED):
        parts = [
            lhotse.SupervisionSegment(
                f"s{n}", "a", 0.0, 1.0, 0, text=unicodedata.normalize("NFD", text)
            )
        ]
        cuts.append(lhotse.MonoCut(f"c{n}", 0.0, 1.0, 0, parts, recording=recording))
    path = tmp_path / "cuts.jsonl.gz"
    lhotse.CutSet.from_cuts(cuts).to_file(path)
    texts = [utterance.text for utterance in manifest.read(path)]
    assert train("characters", texts).symbols() == train("characters", MIXED).symbols()


ALPHABET = sorted(set("".join(CORPORA["mixed"])) - {" "})
WORDS = st.text(st.sampled_from(ALPHABET), min_size=1, max_size=8)
TEXTS = st.lists(WORDS, min_size=1, max_size=5)
TOKENIZERS = {kind: make(kind, "mixed") for kind in ("characters", "bpe")}


@settings(deadline=None, max_examples=100, derandomize=True)
@given(TEXTS, st.sampled_from([" ", "  ", "\t", "\u3000"]), st.sampled_from(["characters", "bpe"]))
def test_any_text_of_known_characters_comes_back(words, space, kind):
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode(space.join(words))
    assert tokenizer.decode(ids) == normalize(" ".join(words))
    assert all(0 < n < tokenizer.vocabulary - 1 for n in ids)


@settings(deadline=None, max_examples=100, derandomize=True)
@given(TEXTS)
def test_ids_of_bpe_are_those_of_sentencepiece(words):
    """A text is encoded word by word; sentencepiece sees it whole."""
    text, bpe = " ".join(words), TOKENIZERS["bpe"]
    assert bpe.encode(text) == bpe.encode(text) == bpe._processor.encode(text)


@settings(deadline=None, max_examples=100, derandomize=True)
@given(st.text(max_size=12))
def test_normalize_is_a_projection(text):
    once = normalize(text)
    assert normalize(once) == once == unicodedata.normalize("NFC", once)
    assert normalize(unicodedata.normalize("NFD", text)) == once


@settings(deadline=None, max_examples=60, derandomize=True)
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=9), min_size=1, max_size=4)
)
def test_characters_of_any_texts(texts):
    tokenizer = Characters.train(texts)
    for text in texts:
        assert tokenizer.decode(tokenizer.encode(text)) == normalize(text)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(st.lists(st.integers(0, 119), max_size=12), st.sampled_from(["characters", "bpe"]))
def test_any_ids_decode(ids, kind):
    """Search may propose whatever ids; the text is normalized."""
    text = TOKENIZERS[kind].decode(ids)
    assert text == normalize(text)


@pytest.mark.parametrize(
    "kind, texts, size, message",
    [
        ("characters", ["", "  "], None, "tokenizer: got no text to train on"),
        ("characters", ["A"], 50, "tokenizer: got size 50, but the texts determine"),
        ("bpe", [], 10, "tokenizer: got no text to train on"),
        ("words", LATIN, None, "tokenizer: got kind 'words', expected one of characters, bpe"),
        ("bpe", LATIN, None, "size: bpe needs a vocabulary size, such as 500; got None"),
        ("bpe", LATIN, 0, "size: bpe needs a vocabulary size, such as 500; got 0"),
    ],
)
def test_mistakes_of_training(kind, texts, size, message):
    refused(message, train, kind, texts, size)


@pytest.mark.parametrize(
    "size, reason", [(5000, "is the maximum"), (3, "their characters alone need")]
)
def test_a_size_that_does_not_fit_names_one_that_does(size, reason):
    with pytest.raises(UserError) as caught:
        train("bpe", LATIN, size)
    message = str(caught.value)
    assert (
        message.startswith(f"tokenizer: a vocabulary of {size} doesn't fit these texts: ")
        and reason in message
    )
    fitting = int(next(word for word in message.split(": ")[-1].split() if word.isdigit()))
    assert train("bpe", LATIN, fitting).vocabulary == fitting
    with pytest.raises(UserError):
        train("bpe", LATIN, fitting + (1 if size > fitting else -1))


@pytest.mark.parametrize("kind, size", [("characters", None), ("bpe", 20)])
@pytest.mark.parametrize("character", ["\x1b", "\x01", "\u200b\x7f"])
def test_control_characters_become_no_tokens(kind, size, character):
    with pytest.raises(UserError, match="token .*, which no text can have; remove it"):
        train(kind, [f"IT IS {character} A TEST"] * 9, size)


GONE = "damaged, not the description of a tokenizer"
DAMAGED = """
    no json | { | damaged, not the description of a tokenizer; make it
    no mapping | [1] | damaged, not the description of a tokenizer
    no kind | {} | damaged, not the description of a tokenizer
    a kind of later | {"kind": "words"} | got kind 'words', expected one of characters, bpe
    no characters | {"kind": "characters"} | damaged, its characters are not a list of single
    words | {"kind": "characters", "characters": ["ab"]} | damaged, its characters are not a list of single
    a character twice | {"kind": "characters", "characters": ["a", "b", "a"]} | damaged, it has the
    a control character | {"kind": "characters", "characters": ["\\u001b"]} | damaged, it has the token '\\x1b'
    half a pair | {"kind": "characters", "characters": ["\\ud800"]} | damaged, it has the token '\\ud800', which
    a stranger's key | {"kind": "bpe", "sha255": ""} | damaged, it holds 'sha255', which belongs
    another digest | {"kind": "bpe", "sha256": ""} | its tokens aren't those that were written
    no digest at all | {"kind": "bpe", "sha256": [1]} | its tokens aren't those that were written
"""
BROKEN = "damaged: not a sentencepiece model; make it again with asr-tokenizer"


@pytest.mark.parametrize(
    "name, content, message",
    [
        *(("tokenizer.json", content, message) for _, content, message in rows(DAMAGED)),
        ("tokenizer.json", "[" * 100_000, GONE),
        ("tokenizer.json", "1" * 5000, GONE),
        ("tokenizer.json", " " * 50_000_001, "larger than 50 MB"),
        ("bpe.model", "text", BROKEN),
        ("bpe.model", "", BROKEN),
    ],
    ids=lambda value: value[:40],
)
def test_damaged_files(tmp_path, name, content, message):
    TOKENIZERS["bpe"].save(tmp_path)
    (tmp_path / name).write_text(content)
    refused(f"{tmp_path / name}: {message}", tokenizers.load, tmp_path)


def test_missing_and_binary_files(tmp_path):
    described, model = tmp_path / "tokenizer.json", tmp_path / "bpe.model"
    missing = f"{described}: no tokenizer here; asr-tokenizer makes one"
    refused(missing, tokenizers.load, tmp_path)
    TOKENIZERS["bpe"].save(tmp_path)
    model.unlink()
    refused(f"{model}: missing; make it again with asr-tokenizer", tokenizers.load, tmp_path)
    described.write_bytes(b"\xff\xfe")
    refused(f"{described}: damaged", tokenizers.load, tmp_path)
