"""Interpolated modified Kneser-Ney n-gram models over tokens (Chen & Goodman 1999, section 3), written as ARPA files.

Let a(g) be the count of an n-gram g if g has the highest order or begins with <s>, else the number
of different tokens before it, and g' = g without its first token. Then

    p(g) = (a(g) - D(a(g))) / Σ_w a(h w) + γ(h) p(g'),    γ(h) = Σ_w D(a(h w)) / Σ_w a(h w),    h = g without its last

where D has three values per order, for counts of 1, 2 and more, estimated from the counts of
counts. Unigrams back off to the uniform distribution over the V words that can follow: the pieces,
</s>, and <unk>, which the tokenizer doesn't use, but readers of ARPA files do. This is what kenlm's
`lmplz --vocab_pad V` computes.

N order, T tokens of all sentences with <s> and </s>, A n-grams of one length.
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

LONGEST = 64  # tokens of an n-gram
FALLBACK = (0.5, 1.0, 1.5)  # discounts for texts too small or too regular to estimate them; lmplz's


@dataclass(frozen=True)
class Order:
    """The n-grams of one length.

    words      (A, n) int64: 0 is <unk>, 1 … V - 2 the pieces, V - 1 is <s>, V is </s>
    probs      (A,) float64, p(last word | words before); meaningless for <s>, which nothing
               predicts
    backoffs   (A,) float64, γ; 1 for n-grams that nothing follows
    discounts  for counts 1, 2, and more
    estimated  True if the discounts come from the text, False for FALLBACK
    """

    words: np.ndarray
    probs: np.ndarray
    backoffs: np.ndarray
    discounts: tuple[float, float, float]
    estimated: bool


def estimate(sentences: Iterable[Sequence[int]], V: int, order: int) -> list[Order]:
    """Estimate a model from sentences of ids in 1 … V - 2; return the n-grams of lengths 1 … order.

    raises   UserError if there is no sentence, or the order is below 1, above 64 or above the
             longest sentence

    Everything is held in memory: for trigrams some 120 bytes per token of the text.
    """
    if not 1 <= order <= LONGEST:
        raise UserError(f"n-gram model: got order {order}, expected 1 to {LONGEST}")
    levels = _count(_concatenate(sentences, V), V, order)
    if not len(levels[-1].words):
        longest = sum(len(level.words) > 0 for level in levels)
        raise UserError(
            f"n-gram model: got order {order}, expected at most {longest}, the tokens of the longest sentence with its "
            "start and end"
        )
    lower = np.full(1, 1 / V)
    orders: list[Order] = []
    for n, level in enumerate(levels, 1):
        counts = level.counts if n == order else _adjust(level, levels[n], V)
        counts = np.where(level.words[:, -1] == V - 1, 0, counts)  # nothing predicts <s>
        discounts, estimated = _discounts(counts)
        lower, gammas = _interpolate(
            level, counts, np.take([0.0, *discounts], np.minimum(counts, 3)), lower
        )
        if orders:
            orders[-1] = replace(orders[-1], backoffs=gammas)
        orders.append(Order(level.words, lower, np.ones_like(lower), discounts, estimated))
    return orders


@dataclass(frozen=True)
class _Level:
    """The n-grams of one length: words (A, n), their counts in the text (A,), and their indices (A,) among the n-grams
    of n - 1 words, without the last word and without the first."""

    words: np.ndarray
    counts: np.ndarray
    contexts: np.ndarray
    suffixes: np.ndarray


def _concatenate(sentences: Iterable[Sequence[int]], V: int) -> np.ndarray:
    """Join all sentences, each as <s>, its tokens, </s> → (T,) int64."""
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
    # remaining tokens of the sentence
    left = ends[np.searchsorted(ends, np.arange(len(y)))] - np.arange(len(y)) + 1
    words, none = np.arange(V + 1)[:, None], np.zeros(V + 1, np.int64)
    # ids: of the n-gram that starts here
    levels, ids = (
        [_Level(words, np.bincount(y, minlength=V + 1), none, none)],
        y,
    )
    for n in range(2, order + 1):
        starts = np.flatnonzero(left >= n)
        keys = ids[starts] * (V + 1) + y[starts + n - 1]
        keys, first, inverse, counts = np.unique(
            keys, return_index=True, return_inverse=True, return_counts=True
        )
        first = starts[first]
        levels.append(_Level(y[first[:, None] + np.arange(n)], counts, ids[first], ids[first + 1]))
        ids = np.full(len(y), -1)
        ids[starts] = inverse
    return levels


def _adjust(level: _Level, longer: _Level, V: int) -> np.ndarray:
    """Compute a (A,): the number of different tokens before each n-gram, or its count if it begins with <s>."""
    before = np.bincount(longer.suffixes, minlength=len(level.words))
    return np.where(level.words[:, 0] == V - 1, level.counts, before)


def _discounts(counts: np.ndarray) -> tuple[tuple[float, float, float], bool]:
    """Estimate D for counts 1, 2 and more from the counts of counts (equation 26); else FALLBACK and False."""
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
    """Compute p (A,) of n-grams, and γ of those one word shorter, from a (A,), D(a) (A,) and p of the shorter ones."""
    totals, gammas = (np.bincount(level.contexts, x, len(lower)) for x in (counts, taken))
    gammas = np.divide(gammas, totals, out=np.ones_like(gammas), where=totals > 0)
    probs = (counts - taken) / totals[level.contexts] + gammas[level.contexts] * lower[
        level.suffixes
    ]
    return probs, gammas


def write_arpa(path: str | os.PathLike, orders: Sequence[Order], symbols: Sequence[str]) -> None:
    """Write a model as a complete ARPA file, gzipped if its name ends in .gz; the same model gives the same bytes.

    symbols:  the V symbols of the tokenizer, blank first, start/end symbol last
    raises    UserError if a piece of the tokenizer has the name of a special word
    """
    if clash := sorted(set(symbols[1:-1]) & {"<s>", "</s>", "<unk>", "<UNK>"}):
        raise UserError(f"{path}: the tokenizer has a piece {clash[0]!r}, which ARPA files reserve")
    names = ["<unk>", *symbols[1:-1], "<s>", "</s>"]
    with (
        replacing(path) as temporary,
        open(temporary, "wb") as raw,
        _packed(raw, Path(path)) as file,
    ):
        counts = [f"ngram {n}={len(order.words)}\n" for n, order in enumerate(orders, 1)]
        file.write(f"\\data\\\n{''.join(counts)}".encode())
        for n, order in enumerate(orders, 1):
            file.write(f"\n\\{n}-grams:\n".encode())
            file.writelines(line.encode() for line in _lines(order, names, last=n == len(orders)))
        file.write(b"\n\\end\\\n")


def _packed(raw: IO[bytes], path: Path) -> IO[bytes] | gzip.GzipFile:
    """Return the file to write into, which compresses if the path ends in .gz."""
    return (
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0)
        if path.suffix == ".gz"
        else raw
    )


def _lines(order: Order, names: Sequence[str], last: bool) -> Iterator[str]:
    """Write the n-grams of one length as lines; 0 and <s> get the customary -99, the longest n-grams no weight."""
    probs, backoffs = (np.log10(x.clip(1e-99, 1.0)) for x in (order.probs, order.backoffs))
    probs[order.words[:, -1] == len(names) - 2] = -99.0
    rows = zip(order.words.tolist(), probs.tolist(), backoffs.tolist(), strict=True)
    for words, log_prob, backoff in rows:
        weight = "" if last else f"\t{backoff:.7g}"
        yield f"{log_prob:.7g}\t{' '.join(names[word] for word in words)}{weight}\n"
