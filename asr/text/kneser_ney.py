"""Interpolated modified Kneser-Ney n-gram models over tokens (Chen & Goodman 1999, section 3), written as ARPA files.

With a(g) the count of an n-gram g where it is of the highest order or begins with <s>, else the number of different
tokens before it, and g' = g without its first token,

    p(g) = (a(g) - D(a(g))) / Σ_w a(h w) + γ(h) p(g'),    γ(h) = Σ_w D(a(h w)) / Σ_w a(h w),    h = g without its last

where D takes three values an order, for counts of 1, 2 and more, estimated from the counts of counts. Below the
unigrams is the uniform distribution over the V words that may follow: the pieces, </s>, and <unk>, of which the
tokenizer has no use, but readers of ARPA files have. This is what kenlm's `lmplz --vocab_pad V` computes.

N order, T tokens of all sentences, <s> and </s> included, A n-grams of one length.
"""

import gzip
import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np

from asr.errors import UserError
from asr.files import replacing

FALLBACK = (0.5, 1.0, 1.5)  # discounts where a text is too small or too regular to estimate them; lmplz's


@dataclass(frozen=True)
class Order:
    """The n-grams of one length.

    words      (A, n) int64: 0 is <unk>, 1 … V - 2 the pieces, V - 1 is <s>, V is </s>
    probs      (A,) float64, p(last word | words before); of <s>, which nothing foretells, without meaning
    backoffs   (A,) float64, γ; 1 of n-grams that nothing follows
    discounts  of counts 1, 2, and more
    estimated  whether the discounts are the text's, or FALLBACK
    """

    words: np.ndarray
    probs: np.ndarray
    backoffs: np.ndarray
    discounts: tuple[float, float, float]
    estimated: bool


def estimate(sentences: Iterable[Sequence[int]], V: int, order: int) -> list[Order]:
    """Estimate a model of all ids from sentences of ids in 1 … V - 2; returns the n-grams of lengths 1 … order.

    raises   UserError if there is no sentence, or the order is below 1 or above the longest sentence

    All is done in memory: of trigrams, some 120 bytes a token of the text.
    """
    if order < 1:
        raise UserError(f"n-gram model: got order {order}, expected 1 or more")
    levels = _count(_concatenate(sentences, V), V, order)
    if not len(levels[-1].words):
        longest = sum(len(level.words) > 0 for level in levels)
        raise UserError(
            f"n-gram model: got order {order}, expected {longest} at most, the tokens of the longest sentence with its "
            "start and end"
        )
    lower, orders = np.full(1, 1 / V), []
    for n, level in enumerate(levels, 1):
        counts = level.counts if n == order else _adjust(level, levels[n], V)
        counts = np.where(level.words[:, -1] == V - 1, 0, counts)  # nothing foretells <s>
        discounts, estimated = _discounts(counts)
        lower, gammas = _interpolate(level, counts, np.take([0.0, *discounts], np.minimum(counts, 3)), lower)
        if orders:
            orders[-1] = replace(orders[-1], backoffs=gammas)
        orders.append(Order(level.words, lower, np.ones_like(lower), discounts, estimated))
    return orders


@dataclass(frozen=True)
class _Level:
    """The n-grams of one length: words (A, n), how often they stand in the text (A,), and the numbers (A,), among the
    n-grams of n - 1 words, of all but the last word and of all but the first."""

    words: np.ndarray
    counts: np.ndarray
    contexts: np.ndarray
    suffixes: np.ndarray


def _concatenate(sentences: Iterable[Sequence[int]], V: int) -> np.ndarray:
    """(T,) int64: <s>, the tokens, </s>, of every sentence"""
    y = array("q")
    for sentence in sentences:
        y.append(V - 1)
        y.extend(sentence)
        y.append(V)
    if not y:
        raise UserError("n-gram model: got no text to count")
    return np.frombuffer(y, np.int64)


def _count(y: np.ndarray, V: int, order: int) -> list[_Level]:
    """Count the n-grams of lengths 1 … order within the sentences of y (T,)."""
    ends = np.flatnonzero(y == V)
    left = ends[np.searchsorted(ends, np.arange(len(y)))] - np.arange(len(y)) + 1  # tokens of the sentence from here on
    words, none = np.arange(V + 1)[:, None], np.zeros(V + 1, np.int64)
    levels, ids = [_Level(words, np.bincount(y, minlength=V + 1), none, none)], y  # ids: of the n-gram from here on
    for n in range(2, order + 1):
        starts = np.flatnonzero(left >= n)
        keys = ids[starts] * (V + 1) + y[starts + n - 1]
        keys, first, inverse, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        first = starts[first]
        levels.append(_Level(y[first[:, None] + np.arange(n)], counts, ids[first], ids[first + 1]))
        ids = np.full(len(y), -1)
        ids[starts] = inverse
    return levels


def _adjust(level: _Level, longer: _Level, V: int) -> np.ndarray:
    """a (A,): the number of different tokens before each n-gram, but the count of those that begin with <s>."""
    before = np.bincount(longer.suffixes, minlength=len(level.words))
    return np.where(level.words[:, 0] == V - 1, level.counts, before)


def _discounts(counts: np.ndarray) -> tuple[tuple[float, float, float], bool]:
    """D of counts 1, 2 and more from the counts of counts (equation 26), or FALLBACK, and which."""
    n1, n2, n3, n4 = np.bincount(np.minimum(counts, 5), minlength=6)[1:5].tolist()
    if not n1 * n2 * n3:
        return FALLBACK, False
    y = n1 / (n1 + 2 * n2)
    found = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    good = all(0 <= x <= count for count, x in enumerate(found, 1))
    return (found, True) if good else (FALLBACK, False)


def _interpolate(
    level: _Level, counts: np.ndarray, taken: np.ndarray, lower: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """p (A,) of n-grams, and γ of those one word shorter: a (A,), D(a) (A,), p of those one word shorter."""
    totals, gammas = (np.bincount(level.contexts, x, len(lower)) for x in (counts, taken))
    gammas = np.divide(gammas, totals, out=np.ones_like(gammas), where=totals > 0)
    probs = (counts - taken) / totals[level.contexts] + gammas[level.contexts] * lower[level.suffixes]
    return probs, gammas


def write_arpa(path: str | os.PathLike, orders: Sequence[Order], symbols: Sequence[str]) -> None:
    """Write a model as an ARPA file in one piece, gzip if it ends in .gz; the same model gives the same bytes.

    symbols:  the tokenizer's, V of them, blank first, start/end symbol last
    raises    UserError if a piece of the tokenizer has the name of a special word
    """
    if clash := sorted(set(symbols[1:-1]) & {"<s>", "</s>", "<unk>", "<UNK>"}):
        raise UserError(f"{path}: the tokenizer has a piece {clash[0]!r}, which an ARPA file keeps for its own use")
    names = ["<unk>", *symbols[1:-1], "<s>", "</s>"]
    with replacing(path) as temporary, open(temporary, "wb") as raw, _packed(raw, Path(path)) as file:
        counts = [f"ngram {n}={len(order.words)}\n" for n, order in enumerate(orders, 1)]
        file.write(f"\\data\\\n{''.join(counts)}".encode())
        for n, order in enumerate(orders, 1):
            file.write(f"\n\\{n}-grams:\n".encode())
            file.writelines(line.encode() for line in _lines(order, names, last=n == len(orders)))
        file.write(b"\n\\end\\\n")


def _packed(raw: IO, path: Path) -> IO:
    """The file to write into, which packs what it is given if the path ends in .gz."""
    return gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0) if path.suffix == ".gz" else raw


def _lines(order: Order, names: Sequence[str], last: bool) -> Iterator[str]:
    """The lines of the n-grams of one length; 0, and <s>, have the customary -99, the longest n-grams no weight."""
    probs, backoffs = (np.log10(x.clip(1e-99, 1.0)) for x in (order.probs, order.backoffs))
    probs[order.words[:, -1] == len(names) - 2] = -99.0
    rows = zip(order.words.tolist(), probs.tolist(), backoffs.tolist(), strict=True)
    for words, log_prob, backoff in rows:
        weight = "" if last else f"\t{backoff:.7g}"
        yield f"{log_prob:.7g}\t{' '.join(names[word] for word in words)}{weight}\n"
