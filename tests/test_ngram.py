"""N-gram models in the search: against the definition of back-off written as a loop, `Definition`, and by laws."""

import gzip
import itertools
import math
import random
import re
from functools import partial

import pytest
import torch
from refusals import refused
from scorers import check_device, check_scorer, read
from small import each, options, rows

from asr.search import arpa
from asr.search.ngram import NGramScorer, load

SYMBOLS = ["<blank>", "▁", "▁a", "b", "c", "é", "的", "<sos/eos>"]
V = len(SYMBOLS)


class Definition:
    """An ARPA file by the book: look the n-gram up, else back off to one word less."""

    def __init__(self, text):
        self.grams = {}
        for line in text.splitlines():
            fields = line.split("\t")
            if len(fields) > 1:
                p, words, weight = [*fields, 0.0][:3]
                self.grams[tuple(words.split(" "))] = float(p), float(weight)
        self.order = text.count("\nngram ")

    def log10(self, word, context):
        """log10 p(word | context), context a tuple of words."""
        word = word if (word,) in self.grams else "<unk>"
        gram = (*context, word)
        if gram in self.grams:
            return self.grams[gram][0]
        if not context:
            return -100.0
        return self.grams.get(context, (0, 0.0))[1] + self.log10(word, context[1:])

    def read(self, labels):
        """Natural log-probabilities of the labels and of the end behind."""
        words = ["<s>", *(SYMBOLS[y] for y in labels), "</s>"]
        words = [w if (w,) in self.grams else "<unk>" for w in words]
        contexts = (tuple(words[max(0, u - self.order + 1) : u]) for u in range(1, len(words)))
        return [self.log10(w, h) * math.log(10) for w, h in zip(words[1:], contexts, strict=True)]


def arpa_text(seed, order=3, share=0.3, unlisted=("é",), unknown=True, foreign=(), closed=True):
    """A model of random numbers with a share of all n-grams; closed: with an n-gram goes what begins and ends it."""
    draw = random.Random(seed)
    words = [*(s for s in SYMBOLS[1:-1] if s not in unlisted), *foreign]
    words += ["<unk>"] if unknown else []
    levels = [{("<s>",), ("</s>",), *((w,) for w in words)}]
    for n in range(2, order + 1):
        some = itertools.product(["<s>", *words], *[words] * (n - 2), [*words, "</s>"])
        some = [g for g in some if draw.random() < share]
        if closed:
            some = [g for g in some if {g[:-1], g[1:]} <= levels[-1]]
        levels.append({*some})
    lines = ["", "\\data\\", *(f"ngram {n}={len(level)}" for n, level in enumerate(levels, 1))]
    for n, level in enumerate(levels, 1):
        lines += ["", f"\\{n}-grams:"]
        for gram in sorted(level):
            weight = f"\t{draw.uniform(-1, 0.3):.5f}" if n < order and draw.random() < 0.8 else ""
            lines.append(f"{draw.uniform(-4, -1.5):.5f}\t{' '.join(gram)}{weight}")
    return "\n".join([*lines, "", "\\end\\", ""])


def sentences(seed, number, longest=12):
    """Random labels, the unlisted among them."""
    draw = random.Random(seed)
    lens = (draw.randint(1, longest) for _ in range(number))
    return [[draw.randint(1, V - 2) for _ in range(length)] for length in lens]


def scorer_of(folder, text, name="lm.arpa"):
    content = text.encode()
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return NGramScorer(load(folder / name, SYMBOLS))


MODELS = options("""
    bigram: {order: 2},
    trigram: {},
    unigram: {order: 1},
    4-gram: {order: 4, share: 0.6},
    no 4-grams: {order: 4, share: 0.1},
    no unknown: {unknown: false},
    gaps: {order: 4, share: 0.1, closed: false},  # n-grams whose beginning or end is none
    other words: {foreign: [X, ▁the], unlisted: [é, b]},
    everything: {share: 1.0, unlisted: []}
""")


@each("name", MODELS)
def test_scores_are_those_of_the_definition(name, tmp_path):
    text, some = arpa_text(1, **MODELS[name]), sentences(2, 500)
    definition = Definition(text)
    for got, labels in zip(read(scorer_of(tmp_path, text), some, V), some, strict=True):
        torch.testing.assert_close(got, definition.read(labels), atol=1e-4, rtol=1e-6)


@each("name", MODELS)
def test_laws(name, tmp_path):
    check_scorer(scorer_of(tmp_path, arpa_text(5, **MODELS[name])))


def test_everything_is_on_the_device(tmp_path):
    check_device(NGramScorer(scorer_of(tmp_path, arpa_text(5)).model.to("meta")), V)


@each(
    "name, fault",
    [
        ("reorder", lambda good, x, parents: x[:, :1].expand_as(parents)),
        ("merge", lambda good, x, other: torch.cat([other, x])),
        ("select", lambda good, x, utterances: x[utterances.sort().values]),
        ("score", lambda good, x, c: good.score(x if c is None else x.flip(0), c)),
        ("score", lambda good, x, c: good.score(x, c) + 9),
        ("step", lambda good, y, x: good.step(y.flip(0), x)),
    ],
)
def test_the_laws_refuse_faults(tmp_path, name, fault):
    good, bad = (scorer_of(tmp_path, arpa_text(5)) for _ in range(2))
    setattr(bad, name, partial(fault, good))
    with pytest.raises((AssertionError, RuntimeError)):
        check_scorer(bad)


def test_gzip_any_spaces_and_parsing_in_pieces_give_the_same(tmp_path, monkeypatch):
    text, some = arpa_text(7), sentences(8, 50)
    expected = read(scorer_of(tmp_path, text), some, V)
    for other in (
        text.replace("\t", " ").replace("\n", "\r\n"),
        text.replace("<unk>", "<UNK>"),
        "# a comment\n" + text,
    ):
        assert read(scorer_of(tmp_path, other), some, V) == expected
    assert read(scorer_of(tmp_path, text, "lm.arpa.gz"), some, V) == expected
    monkeypatch.setattr(arpa, "LINES", 3)
    assert read(scorer_of(tmp_path, text), some, V) == expected


def test_scores_never_pass_the_ceiling(tmp_path):
    """Back-off weights above 0 are common; probabilities above 1 are a file's rounding."""
    text = arpa_text(11).replace("\t-0.", "\t9.")
    scorer = scorer_of(tmp_path, text)
    assert max(itertools.chain(*read(scorer, sentences(12, 50), V))) == scorer.ceiling == 0.0


GOOD = arpa_text(13, order=2, share=0.2)
NUMBER = re.search("ngram 2=(.*)", GOOD)[1]
[*_, LAST] = (line for line in GOOD.splitlines() if line.startswith("-"))
BIGRAM = f"expected 2-gram {NUMBER} of {NUMBER}: a log10 probability, 2 words"


P, WORDS = LAST.split("\t")
TEXTS = {"GOOD": GOOD, "REST": GOOD.partition("2-grams:")[2]}
TEXTS["FOREIGN"] = arpa_text(14, order=2, foreign=[f"WORD{n}" for n in range(9)])
MISTAKES = rf"""
GOOD      |            | : it is empty, expected '\data\'
GOOD      | mmap lm    | : line 1 is 'mmap lm', expected '\data\'
GOOD      | FOREIGN    | : 5 of its 17 words are pieces of the tokenizer, expected most
REST      |            | : ends after line 16, expected 2-gram 1 of {NUMBER}
ngram     | n          | :3: got 'n 1=8', expected 'ngram 1=<number>'
ngram 2   | ngram 3    | :4: got 'ngram 3={NUMBER}', expected 'ngram 2=
\2-grams: | \3-grams:  | :16: got '\\3-grams:', expected \2-grams: after 8 1-gr
ngram 1=8 | ngram 1=9  | :15: got an empty line, expected 1-gram 9 of 9: a log10
ngram 1=8 | ngram 1=7  | :14: got '
\end\     |            | , expected \end\ after {NUMBER} 2-grams
{LAST}    | x{LAST}    | got 'x{P}\t{WORDS}', {BIGRAM}
{LAST}    | nan {WORDS} | got 'nan
{LAST}    | 1.5 {WORDS} | got '1.5 {WORDS}', {BIGRAM}
{LAST}    | {P} b      | {BIGRAM}
<s>       | <S>        | : its 1-grams lack <s>
"""


@each("old, new, says", rows(MISTAKES))
def test_mistakes(old, new, says, tmp_path):
    old, new = (TEXTS.get(text, text) for text in (old, new))
    line = refused(f"^{tmp_path}/lm.arpa", scorer_of, tmp_path, GOOD.replace(old, new))
    assert says in line


def test_words_that_are_no_pieces_are_counted(tmp_path, stderr):
    scorer_of(tmp_path, GOOD)
    assert stderr() == ""
    scorer_of(tmp_path, arpa_text(14, order=2, foreign=["WORD", "OTHER"]))
    assert f"{tmp_path}/lm.arpa: 2 of its 10 words are no pieces" in stderr()


@each(
    "name, content, says",
    [
        ("no.arpa", None, "no such n-gram model"),
        (".", None, r"can't be read \(Is a directory\)"),
        ("x.arpa.gz", GOOD.encode(), r"damaged after line 0 \(Not a gzipped file"),
        ("x.arpa.gz", gzip.compress(GOOD.encode())[:-100], "damaged after line "),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, content, says):
    if content:
        (tmp_path / name).write_bytes(content)
    refused(f"^{tmp_path / name}: {says}", load, tmp_path / name, SYMBOLS)
