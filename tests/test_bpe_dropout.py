"""Prove BPE dropout: p = 0 is sentencepiece's encoding, p = 1 the characters, and between them the paper's shares.

The distribution is computed by following every choice of merges left out of tiny vocabularies; whatever is drawn reads
as the same text.
"""

import itertools
import math
import pickle
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_text import CORPORA, make

from asr.text.bpe_dropout import BPEDropout
from asr.text.normalize import normalize

TOKENIZERS = {corpus: make("bpe", corpus) for corpus in CORPORA}


def no_draw():
    return 0.0


@settings(max_examples=300)
@given(
    st.sampled_from(list(CORPORA)),
    st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
    st.integers(0, 2**62),
    st.data(),
)
def test_whatever_is_drawn_reads_as_the_text(corpus, p, seed, data):
    tokenizer, alphabet = TOKENIZERS[corpus], sorted(set("".join(CORPORA[corpus])))
    text = data.draw(st.one_of(st.text(alphabet, max_size=40), st.sampled_from(CORPORA[corpus])))
    ids = tokenizer.dropout(p).encode(text, Random(seed).random)
    assert tokenizer.decode(ids) == normalize(text)
    assert all(0 < n < tokenizer.vocabulary - 1 for n in ids)
    if p == 0.0:
        assert ids == tokenizer.encode(text) == tokenizer.dropout(p).encode(text, no_draw)
    if p == 1.0:
        symbols = tokenizer.symbols()
        assert [symbols[n] for n in ids] == list("".join("▁" + word for word in text.split()))


def distribution(pieces, scores, p):
    """Cut → probability, by algorithm 1 of the paper: all choices of merges left out, one after the other."""
    places = [n for n in range(len(pieces) - 1) if pieces[n] + pieces[n + 1] in scores]
    total = Counter()
    for left_out in itertools.product([False, True], repeat=len(places)):
        chance = math.prod(p if out else 1 - p for out in left_out)
        kept = [n for n, out in zip(places, left_out, strict=True) if not out]
        if not kept:
            total[tuple(pieces)] += chance
            continue
        n = min(kept, key=lambda n: (-scores[pieces[n] + pieces[n + 1]], n))
        merged = [*pieces[:n], pieces[n] + pieces[n + 1], *pieces[n + 2 :]]
        for cut, share in distribution(merged, scores, p).items():
            total[cut] += chance * share
    return total


@pytest.mark.parametrize("p", [0.1, 0.5])
@pytest.mark.parametrize(
    "word, merges",
    [("abab", ["ab", "▁ab", "abab"]), ("aaaa", ["aa", "aaa", "▁a"]), ("abc", ["bc", "ab", "▁ab"])],
)
def test_the_distribution_is_the_papers(word, merges, p):
    scores = {piece: -float(rank) for rank, piece in enumerate(merges)}
    ids = {piece: n for n, piece in enumerate([*sorted(set("▁" + word)), *merges], start=1)}
    pieces = {n: piece for piece, n in ids.items()}
    expected, found = distribution(list("▁" + word), scores, p), Counter()
    dropout = BPEDropout(ids, scores, p)
    for left_out in itertools.product([False, True], repeat=10):  # all that can be drawn, and more
        draws = iter([math.nextafter(p, 0) if out else p for out in left_out])
        cut = tuple(pieces[n] for n in dropout.encode(word, draws.__next__))
        found[cut] += math.prod(p if out else 1 - p for out in left_out)
    assert found == pytest.approx(expected) and len(found) > 3


def test_a_character_that_is_no_piece_is_0():
    assert BPEDropout({"a": 1, "▁a": 2}, {"▁a": 0.0}, 0.0).encode("ab", no_draw) == [2, 0]


def test_it_travels_to_the_workers():
    dropout = TOKENIZERS["mixed"].dropout(0.3)
    copy = pickle.loads(pickle.dumps(dropout))
    text = CORPORA["mixed"][0]
    assert copy.encode(text, Random(1).random) == dropout.encode(text, Random(1).random)
