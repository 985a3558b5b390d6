"""CTC prefix beam search frame by frame: a wide beam against brute force over all alignments, a narrow one against a
plain search in dictionaries of prefixes; and that neither company nor cutting changes anything."""

import itertools
import math
import os.path
import random

import pytest
import torch
from partly import partly
from pytest import approx
from searches import (
    INF,
    as_scorers,
    brute_force,
    log_add,
    log_probs,
    small_language,
    total_of,
    walked,
    weigh,
)
from small import each

from asr.search.ctc_beam import RIVAL, CTCBeamSearch

EXTRA = ("lm", "hotwords", "bonus")
COMBINATIONS = [c for n in range(4) for c in itertools.combinations(EXTRA, n)]
V = 5


@pytest.fixture(scope="module")
def language(tmp_path_factory):
    return small_language(tmp_path_factory.mktemp("language"))


def scorers_of(language, names):
    """For the search, and for the references."""
    chosen = {name: language[name] for name in names}
    plain = {name: (walked(scorer), *facts) for name, (scorer, *facts) in chosen.items()}
    return as_scorers(chosen), plain


def posteriors(lens, seed, blank=0.0, **options):
    """Some frames are nearly certain blanks."""
    X, X_lens = log_probs(lens, V, seed, **options)
    generator = torch.Generator().manual_seed(seed)
    X[..., 0] += blank * (torch.rand(X.shape[:2], generator=generator) < 0.5)
    return X.log_softmax(-1), X_lens


def plain_search(x, plain, beam, candidates, threshold):
    """One stream x (T, V): {prefix: [r_n, r_b, most that entered at once, frames]}."""
    prefixes = {(): [-INF, 0.0, -INF, ()]}
    for t, row in enumerate(x.tolist()):
        labels = sorted(range(1, len(row) - 1), key=lambda c: -row[c])[:candidates]  # noqa: B023
        labels = [c for c in labels if row[c] >= threshold]
        new = {}
        for g, (n, b, peak, frames) in prefixes.items():
            stay = n + row[g[-1]] if g else -INF
            new[g] = [stay, log_add(n, b) + row[0], peak, frames]
        for g, (n, b, _, frames) in prefixes.items():
            for c in range(1, len(row) - 1):
                grown = (*g, c)
                if c not in labels and grown not in prefixes:
                    continue
                entering = row[c] + (b if g[-1:] == (c,) else log_add(n, b))
                into = new.setdefault(grown, [-INF, -INF, -INF, ()])
                into[0] = log_add(into[0], entering)
                if labels and entering > into[2]:
                    into[2:] = entering, (*frames, t)
        new = {g: facts for g, facts in new.items() if max(facts[:2]) > -INF}
        kept = sorted(new, key=lambda g: -total(new[g], plain, g))[: beam if labels else None]  # noqa: B023
        prefixes = {g: new[g] for g in kept}
    return prefixes


def total(found, plain, labels, ended=False):
    """CTC's score and the weighted others, with those of the end or without."""
    parts = total_of(plain, 0, labels)
    ends = {name: function(0, labels)[-1] for name, (function, *_) in plain.items()}
    kept = parts if ended else {name: parts[name] - ends[name] for name in parts}
    return log_add(*found[:2]) + weigh(kept, plain)


def read(search, X, X_lens, cuts=()):
    """Read in portions that end at `cuts`."""
    state, begin = search.start(len(X)), 0
    for end in (*cuts, X.size(1)):
        state = search.step(X[:, begin:end], (X_lens.clamp(max=end) - begin).clamp(min=0), state)
        begin = end
    return state


@each("names", COMBINATIONS)
def test_a_wide_beam_finds_the_sums_over_all_alignments_in_order(names, language):
    scorers, plain = scorers_of(language, names)
    X, X_lens = posteriors([4, 1, 5, 3, 0], len(names), fill=math.nan)
    search = CTCBeamSearch(scorers, V - 1, beam=364, candidates=None, threshold=0.0)
    for b, got in enumerate(search.hypotheses(read(search, X, X_lens))):
        sums, _ = brute_force(X[b, : X_lens[b]].double())
        expected = [
            (total((-INF, ctc), plain, g, ended=True), g, total_of(plain, b, g) | {"ctc": ctc})
            for g, ctc in sums.items()
            if V - 1 not in g
        ]
        expected.sort(key=lambda x: -x[0])
        assert [tuple(h.tokens) for h in got] == [g for _, g, _ in expected]
        for h, (score, _, parts) in zip(got, expected, strict=True):
            assert h.score == approx(score, abs=1e-6)
            assert h.scores == approx(parts, abs=1e-6)


@each("case", partly(range(60), 4))
def test_a_narrow_beam_equals_the_plain_search_however_it_is_cut(case, language):
    """Prefixes leave the beam and come back; labels repeat; frames are quiet; streams end and begin at any time."""
    draw = random.Random(case)
    scorers, plain = scorers_of(language, draw.sample(EXTRA, draw.randint(0, 3)))
    lens = [draw.randint(0, 25) for _ in range(draw.randint(1, 6))] + [25]
    options = {"fill": draw.choice([math.nan, INF, 3.0]), "scale": draw.uniform(0.3, 3)}
    X, X_lens = posteriors(lens, case, draw.choice([0.0, 4.0, 9.0]), **options)
    beam, C, threshold = draw.randint(1, 7), draw.randint(1, 3), draw.choice([0.0, 0.01, 0.1])
    search = CTCBeamSearch(scorers, V - 1, beam, C, threshold)
    cuts = (), sorted(draw.choices(range(25), k=draw.randint(0, 5))), range(1, 25)
    results = []
    for state in (read(search, X, X_lens, where) for where in cuts):
        results.append((search.best(state), search.hypotheses(state, ended=False)))
    assert results[0] == results[1] == results[2]  # to the bit
    partials, nbests = results[0]
    for x, T, partial, nbest in zip(X.double(), lens, partials, nbests, strict=True):
        limit = math.log(threshold) if threshold else -INF
        found = plain_search(x[:T], plain, beam, C, limit)
        expected = {g: total(facts, plain, g) for g, facts in found.items()}
        assert {tuple(h.tokens): h.score for h in nbest} == approx(expected, abs=1e-6)
        assert [h.score for h in nbest] == sorted((h.score for h in nbest), reverse=True)
        best = nbest[0]
        frames = [*found[tuple(best.tokens)][3]]
        assert (partial.tokens, partial.frames) == (best.tokens, frames)
        rivals = [
            h.tokens
            for h in nbest
            if h.score > best.score - RIVAL or h.scores["ctc"] > best.scores["ctc"] - RIVAL
        ]
        assert partial.stable == len(os.path.commonprefix(rivals))
        assert best.confidences == approx(x[frames, best.tokens].exp().tolist(), abs=1e-6)
        assert best.confidence == approx(math.exp(best.scores["ctc"] / max(1, T)))


def test_streams_that_come_and_go_are_each_as_if_alone(language):
    """In random company, order and portions, with streams that begin anew in their places."""
    draw, scorers = random.Random(1), scorers_of(language, EXTRA)[0]
    search = CTCBeamSearch(scorers, V - 1, beam=4)
    X, X_lens = posteriors([draw.randint(20, 80) for _ in range(20)], 3, 5.0)
    alone = [read(search, X[b : b + 1, :n], X_lens[b : b + 1]) for b, n in enumerate(X_lens)]
    state, streams, coming, seen = search.start(0), [], list(range(20)), 0
    while coming or streams:  # each: its number, and how many of its frames have been read
        if coming:
            state = search.stack([state, search.start(1)])
            streams.append([coming.pop(), 0])
        parts, lens = torch.full((len(streams), 20, V), math.nan), []
        for part, stream in zip(parts, streams, strict=True):
            b, n = stream
            more = min(draw.randint(0, 20), int(X_lens[b]) - n)
            part[:more] = X[b, n : n + more]
            stream[1] += more
            lens.append(more)
        states = search.unstack(search.step(parts, torch.tensor(lens), state))
        for n, stream in enumerate(streams):
            if stream[1] > 10 and draw.random() < 0.1:  # some begin anew in their places
                stream[1], states[n] = 0, search.start(1)
        for one, (b, n) in zip(states, streams, strict=True):
            if n == X_lens[b]:
                same(search, one, alone[b])
                seen += 1
        going = [n for n, (b, at) in enumerate(streams) if at < X_lens[b]]
        draw.shuffle(going)
        state = search.select(search.stack(states), torch.tensor(going, dtype=torch.long))
        streams = [streams[n] for n in going]
    assert seen == 20 and not len(state)


def same(search, got, expected):
    """To rounding, for the width of a batch decides how PyTorch computes a logarithm's last bit."""
    assert search.best(got) == search.best(expected)
    nbests = [search.hypotheses(state)[0] for state in (got, expected)]
    for one, other in zip(*nbests, strict=True):
        assert one.tokens == other.tokens
        assert [one.score, *one.confidences] == approx([other.score, *other.confidences])


def test_labels_have_the_frames_of_their_spikes():
    """A label that goes on for two frames, one that comes again after a blank, and faint forerunners of each."""
    X = torch.full((1, 22, V), 0.002)
    frames, labels = torch.tensor([[3, 4, 8, 12, 17, 18], [1, 1, 1, 3, 2, 2]])
    X[0, frames - 1, labels] = 0.01
    X[0, frames, labels] = 0.9
    X[..., 0] = 1 - X[..., 1:].sum(-1)
    search = CTCBeamSearch({}, V - 1, beam=8)
    [partial] = search.best(read(search, X.log(), torch.tensor([22])))
    assert (partial.tokens, partial.frames) == ([1, 1, 3, 2], [3, 8, 12, 17])


def test_a_negative_weight_is_refused(language):
    with pytest.raises(ValueError, match="got {'lm': -1.0}"):
        CTCBeamSearch({"lm": (language["lm"][0], -1.0)}, V - 1)
