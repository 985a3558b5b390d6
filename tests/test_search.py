"""Beam search: against all label sequences on tiny vocabularies, and against a slow reference search (searches.py)."""

import itertools
import math
import random
from types import SimpleNamespace

import pytest
from partly import partly
from searches import (
    INF,
    Functions,
    as_scorers,
    assert_equal,
    ctc_function,
    ctc_scorer,
    exhaustive,
    log_probs,
    numbered,
    plain_scorers,
    random_function,
    real_scorers,
    reference_search,
    search,
    small_language,
    tiny,
    walked,
)

from asr.search.beam import BeamSearch, beam_search
from asr.search.length import LengthBonus
from asr.transcription.options import SearchOptions
from asr.transcription.searcher import Searcher

each = pytest.mark.parametrize
WIDE = {"beam": 500, "pre_beam": 1.0}  # wider than all that tiny vocabularies go on


@pytest.fixture(scope="module")
def language(tmp_path_factory):
    """Also rewards for which a hypothesis can make up for a long way behind."""

    def rewards(b, labels):
        return [0.0, 2.0 * (labels[-1:] == (3,)), -1.0, 1.5 * (len(labels) == 3), 0.5]

    return small_language(tmp_path_factory.mktemp("language")) | {
        "rewards": (Functions(rewards, True, ceiling=2.0), True, 1.0),
        "late": (Functions(random_function(3, 5, forbidden=0.1), False), False, 1.3),
    }


COMBINATIONS = [
    *(c for n in range(4) for c in itertools.combinations(("lm", "hotwords", "length"), n)),
    *[("rewards",), ("rewards", "bonus"), ("rewards", "length"), ("late",)],
]


@each("more", COMBINATIONS)
@each("weight", [0.0, 0.4, 1.0])
def test_every_combination_of_scorers_equals_exhaustive_search(weight, more, language):
    V, limits, seed, forbidden = 5, [4, 0, 3, 4, 1], 11 + len(more), 0.4 * (len(more) % 2)
    X, X_lens = log_probs([6, 1, 3, 7, 4], V, seed)
    attention = (random_function(seed, V, forbidden, end=-1.0), True, 1 - weight)
    scorers = {"attention": attention, "ctc": (ctc_scorer(V, weight == 1), weight == 1, weight)}
    scorers |= {name: language[name] for name in more}
    scorers = {name: scorer for name, scorer in scorers.items() if scorer[2]}
    functions = {"attention": attention[0], "ctc": ctc_function(X, X_lens)}
    functions |= {name: walked(language[name][0]) for name in more}
    plain = {name: (functions[name], *facts) for name, (_, *facts) in scorers.items()}
    every = [exhaustive(plain, b, limit, V) for b, limit in enumerate(limits)]
    for nbest in (1, 20) if "rewards" in more else (20,):  # with 1 it would end early
        wide = WIDE | {"nbest": nbest, "patience": INF}
        for got, best in zip(search(scorers, limits, V, X, X_lens, **wide), every, strict=True):
            assert_equal(got, best[:nbest])


@each("case", partly(range(130), 4))
def test_equals_the_reference_search(case):
    """Narrow beams, any weights, impossible labels, mixed lengths; without attention CTC scores all labels."""
    draw, alone = random.Random(case), case >= 100
    V, B = draw.randint(4, 9 + 11 * alone), draw.randint(1, 10)
    lens = [draw.randint(1, 9 + 21 * alone) for _ in range(B)]
    limits = lens if alone else [draw.randint(0, T + 1) for T in lens]
    fill = draw.choice([math.nan, INF, 3.0])
    X, X_lens = log_probs(lens, V, case, fill, scale=draw.uniform(0.5, 4))
    weight, forbidden = draw.choice([0.0, 0.1, 0.3, 0.5, 0.9, 1.0]), draw.choice([0.0, 0.0, 0.2])
    attention = random_function(case, V, forbidden, draw.uniform(-2, 1))
    full = {"attention": (attention, True, 1 - weight)}
    if draw.random() < 0.3:
        full["lm"] = (random_function(-case, V), True, draw.uniform(0, 1))
    full, weight = ({}, 1.0) if alone else (full, weight)
    scorers = {**full, "ctc": (ctc_scorer(V, alone), alone, weight)}
    plain = {**full, "ctc": (ctc_function(X, X_lens), alone, weight)}
    options = {"beam": draw.randint(1, 6), "nbest": draw.randint(1, 4)}
    options["pre_beam"] = draw.choice([0.5, 1, 1.5] + [20] * (not alone))
    patience = {"patience": INF} if alone else {}
    for b, got in enumerate(search(scorers, limits, V, X, X_lens, **options, **patience)):
        assert_equal(got, reference_search(plain, b, limits[b], V, **options))


@each("weight", [0.0, 0.3, 1.0])
def test_equals_the_reference_search_of_a_real_model(weight):
    model, H, H_lens, ctc = tiny(V=12, seed=1)
    limits, options = H_lens.tolist(), {"beam": 4, "nbest": 3, "pre_beam": 1.5}
    plain = plain_scorers(model, H, H_lens, ctc, weight)
    for b, got in enumerate(search(real_scorers(model, weight), limits, 12, H, H_lens, **options)):
        assert_equal(got, reference_search(plain, b, limits[b], 12, **options))


def test_nothing_possible_gives_empty_lists():
    def function(b, labels):
        return [-INF] * 5 if b == 0 else random_function(0, 5)(b, labels)

    nothing, something = search({"a": (function, True, 1.0)}, [3, 3], 5, beam=3)
    assert nothing == [] and len(something) == 1


@each(
    "full, weight, message",
    [(False, 1.0, "got a,"), (True, -1.0, "got {'a': -1.0}"), (True, 0.0, "above")],
)
def test_weights_and_scorers_that_cannot_be_searched(full, weight, message):
    with pytest.raises(ValueError, match=message):
        search({"a": (random_function(0, 5), full, weight)}, [1], 5)


@each("full", [False, True])
@each("seed", partly(range(4), 4))
def test_any_slot_schedule_changes_nothing(seed, full):
    """Utterances enter at random moments, in random groups and order; the results are those of each alone."""
    draw, order = random.Random(seed), list(range(14))
    model, H, H_lens, _ = tiny(V=15, seed=seed, lens=[draw.randint(7, 200) for _ in order])
    length = {"length": (LengthBonus(0.3, 14), False, 1.0)}
    scorers, H = as_scorers(real_scorers(model, 0.4, full) | length), numbered(H)
    options, results, keys = {"beam": 4, "nbest": 3}, {}, []
    running = BeamSearch(scorers, 14, **options)
    draw.shuffle(order)
    while order or len(running):
        if draw.random() < 0.2 and order:
            n = draw.randint(1, 5)
            rows, order = order[:n], order[n:]
            keys += rows
            running.add(H[rows, : H_lens[rows].max()], H_lens[rows], H_lens[rows])
        if len(running):
            running.step()
        results |= {keys[number]: nbest for number, nbest in running.take()}
    assert sorted(results) == list(range(14))
    for b, got in results.items():
        T = H_lens[[b]]
        [alone] = beam_search(scorers, H[[b], : H_lens[b]], T, T, 14, **options)
        assert_equal(got, [(h.score, h.tokens, h.scores, h.reason) for h in alone])
        confidences = [[[h.confidence, *h.confidences] for h in some] for some in (got, alone)]
        for one, other in zip(*confidences, strict=True):
            assert one == pytest.approx(other, abs=1e-4)


@each("seed", range(4))
def test_utterances_enter_where_padding_takes_no_more_than_two_batches(seed, monkeypatch):
    """Batches of a few long utterances and of many short ones, in any order; nothing is lost."""
    draw, frames, step = random.Random(seed), [], BeamSearch.step
    sizes = [2000 // (longest := draw.choice([30, 100, 400])) * [longest] for _ in range(6)]
    model, H, H_lens, _ = tiny(V=6, seed=seed, lens=list(itertools.chain(*sizes)))
    recognizer = SimpleNamespace(model=model, tokenizer=None, parameters=model.parameters)
    searcher = Searcher(recognizer, SearchOptions("joint", beam=3))
    ends = list(itertools.accumulate(map(len, sizes)))
    spans = [range(end - len(size), end) for size, end in zip(sizes, ends, strict=True)]
    batches = [(rows, H[rows, : H_lens[rows].max()], H_lens[rows]) for rows in spans]

    def counted(search):
        frames.append(len(search) * search.batch.states[1].r_n.size(2))
        step(search)

    monkeypatch.setattr(BeamSearch, "step", counted)
    found = dict(searcher.stream(batches))
    assert max(frames) <= 2 * max(len(H) * H.size(1) for _, H, _ in batches)
    for rows, *batch in batches:
        alone = searcher.search(*batch)
        assert [found.pop(n)[0].tokens for n in rows] == [nbest[0].tokens for nbest in alone]
    assert not found


def test_patience_shortens_the_list_but_not_the_best():
    scorers = {"a": (random_function(5, 8, end=2.0), True, 1.0)}
    lists = [search(scorers, [30] * 6, 8, beam=6, nbest=6, patience=p) for p in (INF, 3.0)]
    for patient, hasty in zip(*lists, strict=True):
        near = [h.tokens for h in patient if h.score > patient[0].score - 3]
        assert hasty[0].tokens == near[0] and all(y in [h.tokens for h in hasty] for y in near)
    assert sum(map(len, lists[1])) < sum(map(len, lists[0]))


@each("alpha, labels, score", [(0.0, 0, -1.0), (1.0, 6, -0.8)])
def test_divided_by_its_length_a_long_hypothesis_wins(alpha, labels, score):
    """Each label costs 0.1, an end 1 wherever it comes: undivided, the shortest is the best."""
    costs = {"a": (lambda b, labels: [-INF, -0.1, -9.0, -1.0], True, 1.0)}
    [[best]] = search(costs, [6], 4, beam=2, nbest=1, length_norm=alpha)
    assert best.tokens == [1] * labels and best.score == pytest.approx(score)
