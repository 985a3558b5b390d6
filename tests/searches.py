"""Slow searches written in loops, scorers that are functions, and a tiny model, for tests of the search.

A scorer is a function here: (utterance, labels read) → ln p of every next label, the last one the end symbol's.
`Functions` turns it into what the search expects; the references call it directly. Encoder outputs H (B, T, D) carry
the utterance's number in their first feature, and beside it what a real scorer needs. Scorers are name → (function or
scorer, whether it scores all labels, weight).
"""

import functools
import itertools
import math
import random
from types import SimpleNamespace

import pytest
import torch
from scorers import start
from small import sizes

from asr.models.hybrid import Hybrid
from asr.search import automaton, ngram
from asr.search.beam import beam_search
from asr.search.ctc_prefix import CTCPrefixScorer
from asr.search.hotwords import read_phrases
from asr.search.length import LengthBonus
from asr.search.neural import NetworkScorer
from asr.text import kneser_ney
from asr.text.characters import Characters

INF = math.inf


class Functions:
    """A scorer of the beam search, out of a function; its state: each utterance, and what its hypotheses have read."""

    def __init__(self, function, full, ceiling=0.0):
        self.function, self.full, self.ceiling = function, full, ceiling

    def start(self, H, H_lens):
        return [(b, [()]) for b in H[:, 0, 0].long().tolist()]

    def score(self, state, candidates):
        rows = [[self.function(b, y) for y in ys] for b, ys in state]
        scores = torch.tensor(rows, dtype=torch.float64)
        return scores if candidates is None else scores.gather(2, candidates)

    def select(self, state, utterances):
        return [state[n] for n in utterances.tolist()]

    def reorder(self, state, parents):
        pairs = zip(state, parents.tolist(), strict=True)
        return [(b, [ys[k] for k in row]) for (b, ys), row in pairs]

    def merge(self, state, other):
        return state + other

    def step(self, y, state):
        pairs = zip(state, y.tolist(), strict=True)
        return [(b, [(*g, c) for g, c in zip(ys, row, strict=True)]) for (b, ys), row in pairs]


def random_function(seed, V, forbidden=0.0, end=0.0):
    """Random log-probabilities by utterance and history; some are -∞; `end` makes the end likelier."""

    @functools.cache
    def function(b, labels):
        draw = random.Random(f"{seed} {b} {labels}")
        x = [draw.gauss(0, 1.5) for _ in range(V)]
        x[-1] += end
        total = log_add(*x)
        return [-INF if draw.random() < forbidden else v - total for v in x]

    return function


def log_add(*x):
    """ln Σ exp x."""
    top = max(x)
    return top if top == -INF else top + math.log(sum(math.exp(v - top) for v in x))


class FrameLoop:
    """The recursion of CTC prefixes of one utterance, x (T, V) lists of floats, as written in the paper."""

    def __init__(self, x):
        blanks = list(itertools.accumulate(row[0] for row in x))
        self.x, self.r = x, {(): ([-INF] * len(x), blanks, 0.0)}  # r_n, r_b, ψ

    def read(self, labels):
        if labels not in self.r:
            (old_n, old_b, _), c = self.read(labels[:-1]), labels[-1]
            r_n, r_b, n, b, psi = [], [], -INF, -INF, -INF
            phi = 0.0 if len(labels) == 1 else -INF
            for row, before_n, before_b in zip(self.x, old_n, old_b, strict=True):
                n, b = log_add(n, phi) + row[c], log_add(n, b) + row[0]
                psi = log_add(psi, phi + row[c])
                phi = before_b if labels[-2:] == (c, c) else log_add(before_n, before_b)
                r_n.append(n)
                r_b.append(b)
            self.r[labels] = r_n, r_b, psi
        return self.r[labels]

    def prefix(self, labels):
        return self.read(labels)[2]

    def complete(self, labels):
        r_n, r_b, _ = self.read(labels)
        return log_add(r_n[-1], r_b[-1])


def ctc_function(X, X_lens):
    """The CTC prefix gains by the plain frame loop."""
    loops = [FrameLoop(row[:T].tolist()) for row, T in zip(X, X_lens.tolist(), strict=True)]

    def function(b, labels):
        psi = loops[b].prefix(labels)
        if psi == -INF:
            return [-INF] * X.size(2)
        gains = [loops[b].prefix((*labels, c)) - psi for c in range(1, X.size(2) - 1)]
        return [-INF, *gains, loops[b].complete(labels) - psi]

    return function


def brute_force(log_probs):
    """Of one utterance (T, V): ln P of all that alignments read, and ln ψ of all their prefixes."""
    complete, prefix = {}, {}
    for path in itertools.product(range(log_probs.size(1)), repeat=len(log_probs)):
        score = sum(float(log_probs[t, v]) for t, v in enumerate(path))
        labels = tuple(label for label, _ in itertools.groupby(path) if label != 0)
        complete[labels] = log_add(complete.get(labels, -INF), score)
        for u in range(len(labels) + 1):
            prefix[labels[:u]] = log_add(prefix.get(labels[:u], -INF), score)
    return complete, prefix


def small_language(root):
    """Over the labels "a", "b" and the space: a trigram model, hotwords that begin with another, and bonuses."""
    tokenizer = Characters(["a", "b", " "])
    texts = list(map(tokenizer.encode, ("ab ba", "abba", "b a b", "aa ab")))
    symbols = tokenizer.symbols()
    kneser_ney.write_arpa(root / "lm.arpa", kneser_ney.estimate(texts, 5, 3), symbols)
    (root / "hotwords.txt").write_text("ab\t1.5\nab ba\nb\t0.5\n")
    phrases = read_phrases(root / "hotwords.txt", tokenizer.encode, symbols, 1.0)
    return {
        "lm": (ngram.NGramScorer(ngram.load(root / "lm.arpa", symbols)), False, 0.4),
        "hotwords": (automaton.HotwordScorer(automaton.build(phrases, symbols)), True, 1.1),
        "length": (LengthBonus(-0.3, 4), False, 1.0),
        "bonus": (LengthBonus(0.8, 4), False, 1.0),
    }


def walked(scorer):
    """A scorer as a function of one hypothesis, read label by label."""
    if isinstance(scorer, Functions):
        return scorer.function

    @functools.cache
    def state(labels):
        if not labels:
            return start(scorer, 1)
        return scorer.step(torch.tensor([[labels[-1]]]), state(labels[:-1]))

    @functools.cache
    def scores(labels):
        return scorer.score(state(labels), torch.arange(5).view(1, 1, -1))[0, 0].tolist()

    return lambda b, labels: scores(tuple(labels))


def weigh(parts, scorers):
    return sum(w * parts[name] for name, (_, _, w) in scorers.items() if w)


def total_of(scorers, b, labels):
    """Score of one complete label sequence, by scorer; beyond an impossible label a function needn't know better."""
    parts = dict.fromkeys(scorers, 0.0)
    for u, c in enumerate([*labels, -1]):
        for name, (function, _, _) in scorers.items():
            parts[name] += function(b, labels[:u])[c] if parts[name] > -INF else -INF
    return parts


def exhaustive(scorers, b, limit, V):
    """All label sequences of at most `limit` labels with their totals, best first."""
    sequences = (y for n in range(limit + 1) for y in itertools.product(range(1, V - 1), repeat=n))
    scored = [(weigh(total_of(scorers, b, y), scorers), list(y)) for y in sequences]
    return sorted((x for x in scored if x[0] > -INF), reverse=True)


def reference_search(scorers, b, limit, V, beam, nbest, pre_beam):
    """One utterance, one hypothesis at a time, and no early end."""
    C, end = max(1, round(beam * pre_beam)), V - 1
    full = {name: facts for name, facts in scorers.items() if facts[1] and facts[2]}
    living, ended = [(0.0, ())], []
    for u in range(limit + 1):
        candidates = []
        for total, labels in living:
            gains = {name: function(b, labels) for name, (function, _, _) in scorers.items()}
            columns = [{name: row[c] for name, row in gains.items()} for c in range(V)]
            worth = [-weigh(column, full) for column in columns[:end]]
            chosen = sorted(range(1, end), key=worth.__getitem__)[: C if full else None]
            for c in (*chosen, end):
                candidates.append((total + weigh(columns[c], scorers), (*labels, c)))
        candidates = sorted((x for x in candidates if x[0] > -INF), key=lambda x: -x[0])
        for n, (total, (*labels, last)) in enumerate(candidates):
            if last == end and (n < beam or u == limit):
                reason = "end" if n < beam else "limit"
                ended.append((total, labels, total_of(scorers, b, tuple(labels)), reason))
        living = [x for x in candidates if x[1][-1] != end][:beam]
    return sorted(ended, key=lambda x: -x[0])[:nbest]


def numbered(H):
    """H (B, T, D) with the utterance's number in front, (B, T, 1 + D)."""
    numbers = torch.arange(len(H), dtype=H.dtype).view(-1, 1, 1)
    return torch.cat([numbers.expand(-1, H.size(1), 1), H], 2)


def as_scorers(scorers):
    return {
        name: (f if hasattr(f, "start") else Functions(f, full), w)
        for name, (f, full, w) in scorers.items()
    }


def search(scorers, limits, V, H=None, H_lens=None, **options):
    limits = torch.tensor(limits)
    if H is None:
        H, H_lens = torch.zeros(len(limits), 1, 0), torch.ones_like(limits)
    return beam_search(as_scorers(scorers), numbered(H), H_lens, limits, V - 1, **options)


def assert_equal(got, expected):
    """Hypotheses equal the reference's (total, labels[, parts, reason])."""
    assert [h.tokens for h in got] == [x[1] for x in expected]
    assert [h.score for h in got] == pytest.approx([x[0] for x in expected], abs=1e-4)
    for h, (_, _, *more) in zip(got, expected, strict=True):
        assert not more or (h.scores == pytest.approx(more[0], abs=1e-4) and h.reason == more[1])


def ctc_scorer(V, full=False):
    """CTC prefix scores, where H is the log-probabilities."""
    return CTCPrefixScorer(lambda H: H[..., 1:], V - 1, full)


def log_probs(lens, V, seed, fill=math.nan, scale=2.0):
    X = torch.randn(len(lens), max(lens), V, generator=torch.Generator().manual_seed(seed))
    X = (X * scale).log_softmax(-1)
    for row, T in zip(X, lens, strict=True):
        row[T:] = fill
    return X, torch.tensor(lens)


@torch.no_grad()
def tiny(V, seed=0, lens=(40, 23, 31, 7, 60, 12)):
    """A tiny Hybrid with peaked posteriors, and its encoder's output of random frames, NaN in the padding."""
    torch.manual_seed(seed)
    model = Hybrid(sizes("both: {d_model: 8, heads: 2}"), 8, V).eval()
    model.decoder.out.weight.mul_(3)
    model.ctc_out.weight.mul_(3)
    encoded = model.encoder(*log_probs(lens, 8, seed))
    return model, encoded.H, encoded.H_lens, model.ctc_log_probs(encoded.H)


def real_scorers(model, weight, full=False):
    """Attention and CTC of a model; they don't see the utterance's number."""
    network = SimpleNamespace(
        start=lambda H, H_lens: model.decoder.start(H[..., 1:], H_lens), step=model.decoder.step
    )
    ctc = CTCPrefixScorer(lambda H: model.ctc_log_probs(H[..., 1:]), model.sos_eos, full)
    return {
        "attention": (NetworkScorer(network, model.sos_eos), True, 1 - weight),
        "ctc": (ctc, full, weight),
    }


def plain_scorers(model, H, H_lens, ctc, weight):
    """The same, slow: the whole prefix through the decoder of one unpadded utterance, and the frame loop."""

    @functools.cache
    @torch.no_grad()
    def attention(b, labels):
        Y, alone = torch.tensor([[model.sos_eos, *labels]]), H[b : b + 1, : H_lens[b]]
        return model.decoder(Y, alone, H_lens[b : b + 1]).logits[0, -1].log_softmax(-1).tolist()

    return {
        "attention": (attention, True, 1 - weight),
        "ctc": (ctc_function(ctc, H_lens), False, weight),
    }
