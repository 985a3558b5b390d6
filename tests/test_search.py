"""Beam search: against all label sequences on tiny vocabularies, and against a slow reference search written in loops.

A scorer is a function here: (utterance, labels read) → ln p of every next label, the last one the end symbol's.
`Functions` turns it into what the search expects; the references call it directly. Encoder outputs H (B, T, D) carry
the utterance's number in their first feature, and beside it what a real scorer needs.
"""

import functools
import itertools
import math
import random
from types import SimpleNamespace

import pytest
import torch
from test_ctc_prefix import FrameLoop

from asr.models.hybrid import Hybrid, HybridSettings
from asr.search import automaton, ngram
from asr.search import beam as beam_module
from asr.search.beam import BeamSearch, beam_search
from asr.search.ctc_prefix import CTCPrefixScorer
from asr.search.greedy import attention_greedy, ctc_greedy
from asr.search.hotwords import read_phrases
from asr.search.length import LengthBonus
from asr.search.neural import NetworkScorer
from asr.text import kneser_ney
from asr.text.characters import Characters

INF = math.inf


class Functions:
    """A scorer of the beam search, out of a function; its state is the utterances and what each hypothesis has read."""

    def __init__(self, function, full, ceiling=0.0):
        self.function, self.full, self.ceiling = function, full, ceiling

    def start(self, H, H_lens):
        return H[:, 0, 0].long().tolist(), [[()] for _ in H]

    def score(self, state, candidates):
        rows = [[self.function(b, y) for y in ys] for b, ys in zip(*state, strict=True)]
        scores = torch.tensor(rows, dtype=torch.float64)
        return scores if candidates is None else scores.gather(2, candidates)

    def select(self, state, utterances):
        return tuple([part[b] for b in utterances.tolist()] for part in state)

    def reorder(self, state, parents):
        return state[0], [
            [ys[k] for k in row] for ys, row in zip(state[1], parents.tolist(), strict=True)
        ]

    def merge(self, state, other):
        return state[0] + other[0], state[1] + other[1]

    def step(self, y, state):
        rows = zip(state[1], y.tolist(), strict=True)
        return state[0], [[(*g, c) for g, c in zip(ys, row, strict=True)] for ys, row in rows]


def random_function(seed, V, forbidden=0.0, end=0.0):
    """Random log-probabilities by utterance and history; some are -∞; `end` makes the end likelier."""

    @functools.cache
    def function(b, labels):
        draw = random.Random(f"{seed} {b} {labels}")
        x = [draw.gauss(0, 1.5) for _ in range(V)]
        x[-1] += end
        total = math.log(sum(map(math.exp, x)))
        return [-INF if draw.random() < forbidden else v - total for v in x]

    return function


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


def weigh(parts, scorers):
    return sum(w * parts[name] for name, (_, _, w) in scorers.items() if w)


def total_of(scorers, b, labels):
    """Score of one complete label sequence, by scorer."""
    parts = {}
    for name, (function, _, _) in scorers.items():
        parts[name] = 0.0
        for u, c in enumerate(
            [*labels, -1]
        ):  # beyond an impossible label a function needn't know better
            parts[name] = parts[name] + function(b, labels[:u])[c] if parts[name] > -INF else -INF
    return parts


def exhaustive(scorers, b, limit, V):
    """All label sequences of at most `limit` labels with their totals, best first."""
    sequences = (y for n in range(limit + 1) for y in itertools.product(range(1, V - 1), repeat=n))
    scored = [(weigh(total_of(scorers, b, y), scorers), list(y)) for y in sequences]
    return sorted((x for x in scored if x[0] > -INF), reverse=True)


def reference_search(scorers, b, limit, V, beam, nbest, pre_beam):
    """One utterance, one hypothesis at a time, and no early end."""
    C, end = max(1, round(beam * pre_beam)), V - 1
    living, ended = [((), dict.fromkeys(scorers, 0.0))], []
    for u in range(limit + 1):
        candidates = []
        for labels, parts in living:
            gains = {name: function(b, labels) for name, (function, _, _) in scorers.items()}
            by_full = [(name, w) for name, (_, full, w) in scorers.items() if full and w]
            best = sorted(
                range(1, end), key=lambda c: -sum(w * gains[name][c] for name, w in by_full)
            )  # noqa: B023
            best = best[:C] if by_full else best
            for c in [*best, end]:
                new = {name: parts[name] + gains[name][c] for name in scorers}
                candidates.append((weigh(new, scorers), (*labels, c), new))
        candidates = sorted((x for x in candidates if x[0] > -INF), key=lambda x: -x[0])
        for n, (total, labels, parts) in enumerate(candidates):
            if labels[-1] == end and (n < beam or u == limit):
                ended.append((total, list(labels[:-1]), parts, "end" if n < beam else "limit"))
        living = [(labels, parts) for _, labels, parts in candidates if labels[-1] != end][:beam]
    return sorted(ended, key=lambda x: -x[0])[:nbest]


def numbered(H):
    """H (B, T, D) with the utterance's number in front, (B, T, 1 + D)."""
    return torch.cat(
        [torch.arange(len(H), dtype=H.dtype).view(-1, 1, 1).expand(-1, H.size(1), 1), H], 2
    )


def as_scorers(scorers):
    return {
        name: (f if hasattr(f, "start") else Functions(f, full), w)
        for name, (f, full, w) in scorers.items()
    }


def search(scorers, limits, V, H=None, H_lens=None, **options):
    H = torch.zeros(len(limits), 1, 0) if H is None else H
    H_lens = torch.ones(len(limits), dtype=torch.long) if H_lens is None else H_lens
    return beam_search(
        as_scorers(scorers), numbered(H), H_lens, torch.tensor(limits), V - 1, **options
    )


def assert_equal(got, expected):
    """Hypotheses equal the reference's (total, labels[, parts, reason])."""
    assert [h.tokens for h in got] == [x[1] for x in expected]
    assert [h.score for h in got] == pytest.approx([x[0] for x in expected], abs=1e-4)
    for h, x in zip(got, expected, strict=True):
        if len(x) > 2:
            assert h.scores == pytest.approx(x[2], abs=1e-4) and h.reason == x[3]


def ctc_scorer(V, full=False):
    """CTC prefix scores, where H is the log-probabilities."""
    return CTCPrefixScorer(lambda H: H[..., 1:], V - 1, full)


def log_probs(lens, V, seed, fill=math.nan, scale=2.0):
    X = torch.randn(len(lens), max(lens), V, generator=torch.Generator().manual_seed(seed))
    X = (X * scale).log_softmax(-1)
    for row, T in zip(X, lens, strict=True):
        row[T:] = fill
    return X, torch.tensor(lens)


def tiny(V, seed=0, lens=(40, 23, 31, 7, 60, 12)):
    """A tiny Hybrid with peaked posteriors, and its encoder's output of random frames, NaN in the padding."""
    torch.manual_seed(seed)
    stack = {"kind": "transformer", "d_model": 8, "layers": 2, "heads": 2, "ff": 16, "dropout": 0.1}
    model = Hybrid(HybridSettings(kind="hybrid", encoder=stack, decoder=stack), 8, V).eval()
    with torch.no_grad():
        model.decoder.out.weight.mul_(3)
        model.ctc_out.weight.mul_(3)
    X, X_lens = log_probs(lens, 8, seed)
    with torch.no_grad():
        encoded = model.encoder(X, X_lens)
        H, H_lens = encoded.H, encoded.H_lens
        return model, H, H_lens, model.ctc_log_probs(H)


def real_scorers(model, weight, full=False):
    """Attention and CTC of a model; they don't see the utterance's number."""
    network = SimpleNamespace(
        start=lambda H, H_lens: model.decoder.start(H[..., 1:], H_lens), step=model.decoder.step
    )
    return {
        "attention": (NetworkScorer(network, model.sos_eos), True, 1 - weight),
        "ctc": (
            CTCPrefixScorer(lambda H: model.ctc_log_probs(H[..., 1:]), model.sos_eos, full),
            full,
            weight,
        ),
    }


def plain_scorers(model, H, H_lens, ctc, weight):
    """The same, slow: the whole prefix through the decoder of one unpadded utterance, and the frame loop."""

    @functools.cache
    @torch.no_grad()
    def attention(b, labels):
        Y = torch.tensor([[model.sos_eos, *labels]])
        T = int(H_lens[b])
        return (
            model.decoder(Y, H[b : b + 1, :T], H_lens[b : b + 1])
            .logits[0, -1]
            .log_softmax(-1)
            .tolist()
        )

    return {
        "attention": (attention, True, 1 - weight),
        "ctc": (ctc_function(ctc, H_lens), False, weight),
    }


WIDE = {
    "beam": 500,
    "pre_beam": 1.0,
    "nbest": 20,
}  # wider than all continuations of the tiny vocabularies


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_full_width_equals_exhaustive_search(weight, seed):
    V, limits, lens = 5, [4, 0, 2, 1, 3], [6, 3, 1, 4, 2]
    X, X_lens = log_probs(lens, V, seed)
    attention = random_function(seed, V, end=-1.0)
    scorers = {"attention": (attention, True, 1 - weight), "ctc": (ctc_scorer(V), False, weight)}
    plain = {**scorers, "ctc": (ctc_function(X, X_lens), False, weight)}
    for b, got in enumerate(search(scorers, limits, V, X, X_lens, **WIDE)):
        assert_equal(got, exhaustive(plain, b, limits[b], V)[:20])


def test_full_width_equals_exhaustive_search_with_impossible_labels_and_three_scorers():
    V, limits = 5, [4, 3, 4, 2, 4, 4]
    scorers = {
        "attention": (random_function(1, V, forbidden=0.4), True, 0.5),
        "lm": (random_function(2, V, forbidden=0.1), True, 0.7),
        "late": (random_function(3, V, forbidden=0.1), False, 1.3),
    }
    for b, got in enumerate(search(scorers, limits, V, **WIDE)):
        assert_equal(got, exhaustive(scorers, b, limits[b], V)[:20])


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.9])
def test_full_width_equals_exhaustive_search_of_a_real_model(weight):
    model, H, H_lens, ctc = tiny(V=5)
    limits = [min(4, T) for T in H_lens.tolist()]
    plain = plain_scorers(model, H, H_lens, ctc, weight)
    for b, got in enumerate(search(real_scorers(model, weight), limits, 5, H, H_lens, **WIDE)):
        assert_equal(got, exhaustive(plain, b, limits[b], 5)[:20])


@pytest.mark.parametrize("case", range(100))
def test_equals_the_reference_search(case):
    """Narrow beams, any weights, impossible labels, mixed lengths."""
    draw = random.Random(case)
    V, B = draw.randint(4, 9), draw.randint(1, 10)
    lens = [draw.randint(1, 9) for _ in range(B)]
    limits = [draw.randint(0, T + 1) for T in lens]
    X, X_lens = log_probs(
        lens, V, case, fill=draw.choice([math.nan, INF, 3.0]), scale=draw.uniform(0.5, 4)
    )
    weight, forbidden = draw.choice([0.0, 0.1, 0.3, 0.5, 0.9, 1.0]), draw.choice([0.0, 0.0, 0.2])
    full = {
        "attention": (random_function(case, V, forbidden, draw.uniform(-2, 1)), True, 1 - weight)
    }
    if draw.random() < 0.3:
        full["lm"] = (random_function(-case, V), True, draw.uniform(0, 1))
    fast = {**full, "ctc": (ctc_scorer(V), False, weight)}
    plain = {**full, "ctc": (ctc_function(X, X_lens), False, weight)}
    options = {
        "beam": draw.randint(1, 6),
        "nbest": draw.randint(1, 4),
        "pre_beam": draw.choice([0.5, 1, 1.5, 20]),
    }
    for b, got in enumerate(search(fast, limits, V, X, X_lens, **options)):
        assert_equal(got, reference_search(plain, b, limits[b], V, **options))


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_equals_the_reference_search_of_a_real_model(weight):
    model, H, H_lens, ctc = tiny(V=12, seed=1)
    limits, options = H_lens.tolist(), {"beam": 4, "nbest": 3, "pre_beam": 1.5}
    plain = plain_scorers(model, H, H_lens, ctc, weight)
    for b, got in enumerate(search(real_scorers(model, weight), limits, 12, H, H_lens, **options)):
        assert_equal(got, reference_search(plain, b, limits[b], 12, **options))


@pytest.mark.parametrize("weight", [0.0, 0.3])
def test_the_batch_changes_nothing(weight):
    """Alone, in any order, in any company: the same labels, scores within 1e-4."""
    model, H, H_lens, ctc = tiny(V=30, seed=2, lens=(90, 23, 55, 7, 130, 12, 47, 300))
    options = {"beam": 5, "nbest": 5}

    def run(rows):
        T = int(H_lens[rows].max())
        return search(
            real_scorers(model, weight),
            H_lens[rows].tolist(),
            30,
            H[rows, :T],
            H_lens[rows],
            **options,
        )

    alone = [run([b])[0] for b in range(8)]
    for rows in ([0, 1, 2, 3, 4, 5, 6, 7], [6, 3, 7, 1], [5, 4, 2], [7, 7, 0]):
        for b, got in zip(rows, run(rows), strict=True):
            assert_equal(got, [(h.score, h.tokens, h.scores, h.reason) for h in alone[b]])


def test_when_utterances_leave_changes_nothing(monkeypatch):
    V, limits = 8, [random.Random(b).randint(0, 9) for b in range(24)]
    X, X_lens = log_probs([n + 1 for n in limits], V, 7)
    scorers = {
        "attention": (random_function(7, V), True, 0.6),
        "ctc": (ctc_scorer(V), False, 0.4),
    }
    found = []
    for share in (0.0, 1 / 8, 1.0):  # at once, when an eighth is done, when all are
        monkeypatch.setattr(beam_module, "REMOVAL_SHARE", share)
        found.append(search(scorers, limits, V, X, X_lens, beam=4, nbest=3))
    for other in found[1:]:
        for got, nbest in zip(other, found[0], strict=True):
            assert_equal(got, [(h.score, h.tokens, h.scores, h.reason) for h in nbest])
    assert all(found[0])


def test_a_limit_cuts_what_would_not_have_ended():
    """Utterance 0 never wants to end, utterance 1 ends after exactly as many labels as the limit allows."""

    def function(b, labels):
        ends = b == 1 and len(labels) == 3
        return [
            math.log(p) for p in ([0.01, 0.01, 0.01, 0.97] if ends else [0.01, 0.9, 0.08, 0.01])
        ]

    scorers = {"a": (function, True, 1.0)}
    cut, complete = search(scorers, [3, 3], 4, beam=2)
    assert (cut[0].tokens, cut[0].reason) == ([1, 1, 1], "limit")
    assert (complete[0].tokens, complete[0].reason) == ([1, 1, 1], "end")
    assert cut[0].score == pytest.approx(3 * math.log(0.9) + math.log(0.01))
    assert [h.tokens for [h] in search(scorers, [0, 0], 4)] == [[], []]


def test_nbest_is_sorted_and_distinct():
    V, limits = 9, [6, 3, 8]
    for nbest in search({"a": (random_function(3, V), True, 1.0)}, limits, V, beam=6, nbest=6):
        assert len(nbest) == 6 == len({tuple(h.tokens) for h in nbest})
        assert nbest == sorted(nbest, key=lambda h: -h.score)
        assert all(h.score == h.scores["a"] for h in nbest)


def test_nothing_possible_gives_empty_lists():
    def function(b, labels):
        return [-INF] * 5 if b == 0 else random_function(0, 5)(b, labels)

    nothing, something = search({"a": (function, True, 1.0)}, [3, 3], 5, beam=3)
    assert nothing == [] and len(something) == 1


def test_a_beam_of_one_is_attention_greedy():
    model, H, H_lens, ctc = tiny(V=20, seed=3)
    state = model.decoder.start(H, H_lens)
    greedy = attention_greedy(model.decoder.step, state, len(H), model.sos_eos, H_lens)
    found = search(real_scorers(model, 0.0), H_lens.tolist(), 20, H, H_lens, beam=1)
    for got, h in zip(found, greedy, strict=True):
        assert [x.tokens for x in got] == [h.tokens] and got[0].reason == h.reason
        assert got[0].score == pytest.approx(h.score, abs=1e-4)


def test_confident_ctc_agrees_in_every_search():
    """Where one alignment has nearly all probability, CTC greedy and the CTC-led beam read the same."""
    path = [1, 1, 0, 1, 2, 0, 3, 3]
    X = torch.nn.functional.one_hot(torch.tensor([path]), 5).float().mul(12).log_softmax(-1)
    lens = torch.tensor([8])
    uniform = {"a": (lambda b, labels: [math.log(0.2)] * 5, True, 0.1)}
    [[best]] = search({**uniform, "ctc": (ctc_scorer(5), False, 0.9)}, [8], 5, X, lens, beam=4)
    assert best.tokens == ctc_greedy(X, lens)[0].tokens == [1, 1, 2, 3]


def test_weights_and_scorers_that_cannot_be_searched():
    function = random_function(0, 5)
    with pytest.raises(
        ValueError, match="scorers: got ctc, expected one or more that score all labels"
    ):
        search({"ctc": (function, False, 1.0)}, [1], 5)
    with pytest.raises(ValueError, match=r"weights: got \{'a': -1.0\}, expected none below 0"):
        search({"a": (function, True, -1.0)}, [1], 5)
    with pytest.raises(ValueError, match="and one or more above"):
        search({"a": (function, True, 0.0)}, [1], 5)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_any_slot_schedule_changes_nothing(seed, full):
    """Utterances enter at random moments, in random groups and order; the results are those of each alone."""
    draw = random.Random(seed)
    lens = [draw.randint(7, 200) for _ in range(14)]
    model, H, H_lens, _ = tiny(V=15, seed=seed, lens=lens)
    scorers = as_scorers(
        {**real_scorers(model, 0.4, full), "length": (LengthBonus(0.3, 14), False, 1.0)}
    )
    options, order, found, keys = {"beam": 4, "nbest": 3}, list(range(14)), {}, []
    H = numbered(H)
    running = BeamSearch(scorers, 14, **options)
    draw.shuffle(order)
    while order or len(running):
        rows, order = (
            (order[: (n := draw.randint(1, 5))], order[n:]) if draw.random() < 0.2 else ([], order)
        )
        if rows:
            keys += rows
            running.add(H[rows, : H_lens[rows].max()], H_lens[rows], H_lens[rows])
        if len(running):
            running.step()
        found |= {keys[number]: nbest for number, nbest in running.take()}
    assert sorted(found) == list(range(14))
    for b in range(14):
        rows = [b]
        [alone] = beam_search(
            scorers, H[rows, : H_lens[b]], H_lens[rows], H_lens[rows], 14, **options
        )
        assert_equal(found[b], [(h.score, h.tokens, h.scores, h.reason) for h in alone])
        for got, h in zip(found[b], alone, strict=True):
            assert got.confidences == pytest.approx(h.confidences, abs=1e-4)
            assert got.confidence == pytest.approx(h.confidence, abs=1e-4)


@pytest.mark.parametrize("weight", [0.3, 1.0])
@pytest.mark.parametrize("bonus", [-0.7, 0.0, 0.8])
def test_scores_above_zero_still_find_the_best(weight, bonus):
    """Rewards, as hotwords and length bonuses give them, can make up for a long way behind."""
    V, limits = 5, [4, 3, 4, 2]

    def rewards(b, labels):
        return [0.0, 2.0 * (labels[-1:] == (3,)), -1.0, 1.5 * (len(labels) == 3), 0.5]

    scorers = {
        "attention": (random_function(4, V, end=-1.0), True, 1.0),
        "rewards": (Functions(rewards, True, ceiling=2.0), True, weight),
        "length": (LengthBonus(bonus, V - 1), False, 1.0),
    }
    plain = {
        **scorers,
        "rewards": (rewards, True, weight),
        "length": (lambda b, y: [bonus] * 4 + [0.0], False, 1.0),
    }
    for b, got in enumerate(search(scorers, limits, V, patience=INF, **WIDE)):
        assert_equal(got, exhaustive(plain, b, limits[b], V)[:20])


def test_patience_shortens_the_list_but_not_the_best():
    V, limits = 8, [30] * 6
    scorers = {"a": (random_function(5, V, end=2.0), True, 1.0)}
    lists = [search(scorers, limits, V, beam=6, nbest=6, patience=p) for p in (INF, 3.0)]
    for patient, hasty in zip(*lists, strict=True):
        assert [h.tokens for h in hasty[:1]] == [h.tokens for h in patient[:1]]
        assert {tuple(h.tokens) for h in patient if h.score > patient[0].score - 3} <= {
            tuple(h.tokens) for h in hasty
        }
    assert sum(map(len, lists[1])) < sum(map(len, lists[0]))


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_beam_of_ctc_alone_equals_exhaustive_search(seed, full):
    V, limits, lens = 5, [4, 0, 2, 1, 3], [6, 3, 1, 4, 2]
    X, X_lens = log_probs(lens, V, seed)
    lm = {"lm": (random_function(seed, V), True, 0.5)}
    scorers = {"ctc": (ctc_scorer(V, full=True), True, 1.0), **(lm if full else {})}
    plain = {"ctc": (ctc_function(X, X_lens), True, 1.0), **(lm if full else {})}
    for b, got in enumerate(search(scorers, limits, V, X, X_lens, **WIDE)):
        assert_equal(got, exhaustive(plain, b, limits[b], V)[:20])


@pytest.mark.parametrize("case", range(30))
def test_a_beam_of_ctc_alone_equals_the_reference_search(case):
    draw = random.Random(case)
    V, B = draw.randint(4, 20), draw.randint(1, 8)
    lens = [draw.randint(1, 30) for _ in range(B)]
    X, X_lens = log_probs(lens, V, case, scale=draw.uniform(0.5, 4))
    options = {
        "beam": draw.randint(1, 6),
        "nbest": draw.randint(1, 4),
        "pre_beam": draw.choice([0.5, 1, 1.5]),
    }
    found = search(
        {"ctc": (ctc_scorer(V, full=True), True, 1.0)}, lens, V, X, X_lens, patience=INF, **options
    )
    for b, got in enumerate(found):
        assert_equal(
            got,
            reference_search(
                {"ctc": (ctc_function(X, X_lens), True, 1.0)}, b, lens[b], V, **options
            ),
        )


@pytest.fixture(scope="module")
def language(tmp_path_factory):
    """Over the labels "a", "b" and the space: a trigram model, and hotwords of which one begins with the other."""
    root, tokenizer = tmp_path_factory.mktemp("language"), Characters(["a", "b", " "])
    orders = kneser_ney.estimate(
        [tokenizer.encode(t) for t in ("ab ba", "abba", "b a b", "aa ab")], 5, 3
    )
    kneser_ney.write_arpa(root / "lm.arpa", orders, tokenizer.symbols())
    (root / "hotwords.txt").write_text("ab\t1.5\nab ba\nb\t0.5\n")
    phrases = read_phrases(root / "hotwords.txt", tokenizer.encode, tokenizer.symbols(), 1.0)
    return {
        "lm": (ngram.NGramScorer(ngram.load(root / "lm.arpa", tokenizer.symbols())), False, 0.4),
        "hotwords": (
            automaton.HotwordScorer(automaton.build(phrases, tokenizer.symbols())),
            True,
            1.1,
        ),
        "length": (LengthBonus(-0.3, 4), False, 1.0),
    }


def walked(scorer):
    """A scorer as a function of one hypothesis, read label by label."""

    @functools.cache
    def state(labels):
        if not labels:
            return scorer.start(torch.zeros(1, 1, 1), torch.ones(1, dtype=torch.long))
        return scorer.step(
            torch.tensor([[labels[-1]]]), scorer.reorder(state(labels[:-1]), torch.tensor([[0]]))
        )

    return lambda b, labels: scorer.score(state(tuple(labels)), torch.arange(5).view(1, 1, -1))[
        0, 0
    ].tolist()


@pytest.mark.parametrize(
    "more", [c for n in range(4) for c in itertools.combinations(("lm", "hotwords", "length"), n)]
)
@pytest.mark.parametrize("base", [("attention",), ("ctc",), ("attention", "ctc")])
def test_every_combination_of_scorers_equals_exhaustive_search(base, more, language):
    V, limits, lens = 5, [5, 3, 4, 1], [6, 3, 7, 4]
    X, X_lens = log_probs(lens, V, 11)
    own = {
        "attention": (random_function(11, V, end=-1.0), True, 0.6),
        "ctc": (ctc_scorer(V, full=True), True, 0.4),
    }
    scorers = {name: own[name] for name in base} | {name: language[name] for name in more}
    plain = dict(scorers)
    if "ctc" in base:
        plain["ctc"] = (ctc_function(X, X_lens), True, 0.4)
    plain |= {name: (walked(language[name][0]), *language[name][1:]) for name in more}
    found = search(scorers, limits, V, X, X_lens, patience=INF, **WIDE)
    for b, got in enumerate(found):
        assert_equal(got, exhaustive(plain, b, limits[b], V)[:20])
