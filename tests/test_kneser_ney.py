"""Kneser-Ney estimation: against the equations written as loops over counts, by the law that what can follow a
context has probability 1 in all, and against kenlm's lmplz where that is on the path.

lmplz counts the n-grams that it meets last with their plain counts when it counts counts: the texts that it is given
end in a token of its own, whose n-grams have the count 1 either way.
"""

import gzip
import math
import random
import shutil
import subprocess
from collections import Counter, defaultdict

import numpy as np
import pytest
import torch
from refusals import refused
from scorers import read, start
from small import each, near

from asr.cli import ngram
from asr.search.ngram import NGramScorer, load
from asr.text.kneser_ney import FALLBACK, Order, estimate, write_arpa
from asr.text.tokenizer import train

V = 12
SYMBOLS = ["<blank>", *"▁abcdé的xyz"[: V - 2], "<sos/eos>"]
SOS, EOS = V - 1, V


def zipf(seed, number):
    """Sentences of eight ids, some far more frequent, and another one that stands at the end of the last sentence."""
    draw, ids = random.Random(seed), range(1, V - 3)
    weights = [1 / n**1.5 for n in ids]
    some = [draw.choices(ids, weights, k=draw.randint(0, 9)) for _ in range(number)]
    return [*some, [*draw.choices(ids, weights, k=5), V - 2]]


def discounts(n):
    if not (n[1] and n[2] and n[3]):
        return FALLBACK
    y = n[1] / (n[1] + 2 * n[2])
    D = [c - (c + 1) * y * n[c + 1] / n[c] for c in (1, 2, 3)]
    return tuple(D) if all(0 <= d <= c for c, d in enumerate(D, 1)) else FALLBACK


def equations(sentences, order):
    """Modified Kneser-Ney of one text by the book, an n-gram at a time: p(word, context), and D of each length."""
    raw, before, counts = Counter(), defaultdict(set), defaultdict(Counter)
    for y in sentences:
        words = (SOS, *y, EOS)
        for end in range(1, len(words) + 1):
            raw.update(words[start:end] for start in range(max(0, end - order), end))
    for g in raw:
        before[g[1:]].add(g[0])
    del raw[(SOS,)]
    a = {g: c if len(g) == order or g[0] == SOS else len(before[g]) for g, c in raw.items()}
    for g, c in a.items():
        counts[len(g)][c] += 1
    D = {n: discounts(counts[n]) for n in range(1, order + 1)}

    def p(word, context):
        """p(word | context), and what is left for shorter contexts."""
        following = {g[-1]: c for g, c in a.items() if g[:-1] == context}
        lower = p(word, context[1:]) if context else 1 / V
        if not following:
            return lower
        taken = {w: D[len(context) + 1][min(c, 3) - 1] for w, c in following.items()}
        free = sum(taken.values()) * lower
        return (following.get(word, 0) - taken.get(word, 0) + free) / sum(following.values())

    return p, D


def scorer_of(folder, sentences, order, name="lm.arpa"):
    orders, path = estimate(sentences, V, order), folder / name
    write_arpa(path, orders, SYMBOLS)
    return NGramScorer(load(path, SYMBOLS)), orders


@each("order, number", [(1, 30), (2, 1), (2, 30), (3, 4), (3, 60), (4, 200)])
def test_probabilities_are_those_of_the_equations(order, number, tmp_path):
    sentences = zipf(order, number)
    (p, D), (scorer, orders) = equations(sentences, order), scorer_of(tmp_path, sentences, order)
    for got, of_length in zip(orders, D.values(), strict=True):
        assert got.discounts == pytest.approx(of_length)
        assert got.estimated == (of_length is not FALLBACK)
    draw = random.Random(1)
    for labels in [*sentences[-3:], *(draw.choices(range(1, V - 1), k=4) for _ in range(5))]:
        words = (SOS, *labels, EOS)  # heard and unheard
        expected = [
            math.log(p(word, words[max(0, u - order + 1) : u]))
            for u, word in enumerate(words[1:], 1)
        ]
        assert read(scorer, [list(labels)], V)[0] == pytest.approx(expected, abs=1e-5)


@each("order", [1, 2, 3, 5])
def test_what_can_follow_has_probability_1(order, tmp_path):
    """After heard and unheard contexts: all ids but the blank, in whose place stands <unk>, and the end."""
    sentences = zipf(7, 40)
    scorer, _ = scorer_of(tmp_path, sentences, order)
    draw, B = random.Random(2), 50
    state = start(scorer, B)
    for y in zip(*[draw.choices(range(1, V - 1), k=6) for _ in range(B)], strict=True):
        total = scorer.score(state, None).double().exp().sum(2)
        near(total, torch.ones_like(total), 1e-5)
        state = scorer.step(torch.tensor(y).unsqueeze(1), state)


def test_probabilities_of_0_are_written_as_those_of_an_arpa_file(tmp_path):
    words, probs = np.array([[0], [1], [SOS], [EOS]]), np.array([0.0, 1.0, 0.5, 0.25])
    order = Order(words, probs, np.zeros(4), FALLBACK, True)
    write_arpa(tmp_path / "x.arpa", [order, order], SYMBOLS)
    lines = (tmp_path / "x.arpa").read_text().splitlines()
    assert lines[5:9] == ["-99\t<unk>\t-99", "0\t▁\t-99", "-99\t<s>\t-99", "-0.60206\t</s>\t-99"]


def grams(text):
    """n-gram → log10 probability and back-off weight."""
    rows = (line.split("\t") for line in text.splitlines() if "\t" in line)
    return {words: (float(p), float(*weight or ["0"])) for p, words, *weight in rows}


@each("order, number", [(1, 50), (2, 50), (3, 10), (3, 2000), (5, 300)])
def test_equals_lmplz(order, number, tmp_path):
    if not shutil.which("lmplz"):
        pytest.skip("kenlm's lmplz is not on the path")
    sentences = zipf(order + number, number)
    scorer_of(tmp_path, sentences, order, "ours.arpa")
    lines = "".join(" ".join(SYMBOLS[n] for n in y) + "\n" for y in sentences)
    options = f"-o {order} -S 100M -T {tmp_path} --discount_fallback --vocab_pad {V}"
    theirs = subprocess.check_output(["lmplz", *options.split()], input=lines, text=True)
    ours, theirs = grams((tmp_path / "ours.arpa").read_text()), grams(theirs)
    ours.pop("<s>"), theirs.pop("<s>") if order == 1 else None
    unseen = {s for n, s in enumerate(SYMBOLS) if 0 < n < V - 1 and s not in theirs}
    assert unseen and set(ours) - set(theirs) == unseen
    for words, (p, weight) in ours.items():
        expected = theirs["<unk>" if words in unseen else words]
        assert (p, weight) == pytest.approx(expected, abs=2e-5)


@each("sentences, order, says", [
    ([], 3, "got no text to count"),
    ([[1]], 0, "got order 0, expected 1 to 64"),
    ([[1], [1, 2]], 5, "got order 5, expected at most 4"),
])  # fmt: skip
def test_what_cannot_be_estimated(sentences, order, says):
    """Those of the command: tests/bad_inputs/ngram.yaml."""
    refused(f"^n-gram model: {says}", estimate, sentences, V, order)


def test_a_piece_with_the_name_of_a_special_word_is_refused(tmp_path):
    path, symbols = tmp_path / "x.arpa", ["<blank>", "<s>", "<sos/eos>"]
    refused(f"^{path}: .* '<s>'", write_arpa, path, [], symbols)


def test_the_command_makes_what_the_call_makes_once(tmp_path, stderr):
    (tmp_path / "a.txt").write_text("AB A BA\n\n  BAB  A\nA\n")
    pieces = train("characters", ["A B"])
    pieces.save(tmp_path / "tokenizer")
    out = f"{tmp_path}/lm.arpa.gz"
    arguments = [f"{tmp_path}/a.txt", f"{tmp_path}/tokenizer", out, "--order", "2"]
    ngram.main(arguments)
    orders = estimate(map(pieces.encode, ("AB A BA", "BAB A", "A")), pieces.vocabulary, 2)
    for name in ("ours.arpa.gz", "ours.arpa"):
        write_arpa(tmp_path / name, orders, pieces.symbols())
    packed = (tmp_path / "lm.arpa.gz").read_bytes()
    assert packed == (tmp_path / "ours.arpa.gz").read_bytes() and packed[4:8] == bytes(4)  # no time
    assert gzip.decompress(packed) == (tmp_path / "ours.arpa").read_bytes()
    said = "6 1-grams, discounts 0.333, 0.000, 3.000\n9 2-grams, discounts 0.231, 1.862, 3.000\n"
    assert stderr() == f"{said}{out}\n"
    ngram.main(arguments)
    assert stderr() == f"{out} is up to date\n"
    (tmp_path / "a.txt").write_text("A\n")
    ngram.main(arguments)
    assert "2 2-grams, discounts 0.500, 1.000, 1.500 (defaults: " in stderr()
