"""CTC prefix beam search frame by frame: a wide beam against brute force over all alignments, a narrow one against a
plain search in dictionaries of prefixes; and that neither company nor cutting changes anything."""

import itertools
import math
import os.path
import random

import pytest
import torch
from partly import partly
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
from small import each, near

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
            assert h.score == pytest.approx(score, abs=1e-6)
            assert h.scores == pytest.approx(parts, abs=1e-6)


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
    state = read(search, X, X_lens, sorted(draw.sample(range(25), draw.randint(0, 5))))
    partials, nbests = search.best(state), search.hypotheses(state, ended=False)
    for x, T, partial, nbest in zip(X.double(), lens, partials, nbests, strict=True):
        limit = math.log(threshold) if threshold else -INF
        found = plain_search(x[:T], plain, beam, C, limit)
        expected = {g: total(facts, plain, g) for g, facts in found.items()}
        assert {tuple(h.tokens): h.score for h in nbest} == pytest.approx(expected, abs=1e-6)
        assert [h.score for h in nbest] == sorted((h.score for h in nbest), reverse=True)
        best = nbest[0]
        frames = [*found[tuple(best.tokens)][3]]
        assert (partial.tokens, partial.frames) == (best.tokens, frames)
        rivals = [h.tokens for h in nbest if h.score > best.score - RIVAL]
        assert partial.stable == len(os.path.commonprefix(rivals))
        assert best.confidences == pytest.approx(x[frames, best.tokens].exp().tolist(), abs=1e-6)
        assert best.confidence == pytest.approx(math.exp(best.scores["ctc"] / max(1, T)))


def test_streams_that_come_and_go_are_each_as_if_alone(language):
    """In random company, order and portions, with streams that begin anew in their places."""
    draw, scorers = random.Random(1), scorers_of(language, EXTRA)[0]
    search = CTCBeamSearch(scorers, V - 1, beam=4)
    X, X_lens = posteriors([draw.randint(20, 80) for _ in range(20)], 3, 5.0)
    alone = [read(search, X[b : b + 1, :n], X_lens[b : b + 1]) for b, n in enumerate(X_lens)]
    state, rows, at, seen = search.start(0), [], [], 0
    for new in itertools.chain(range(20), [None] * 200):
        if new is not None:
            state, rows, at = search.stack([state, search.start(1)]), [*rows, new], [*at, 0]
        lens = [min(draw.randint(0, 20), int(X_lens[b]) - n) for b, n in zip(rows, at, strict=True)]
        parts = torch.full((len(rows), 20, V), math.nan)
        for part, b, n, more in zip(parts, rows, at, lens, strict=True):
            part[:more] = X[b, n : n + more]
        state = search.step(parts, torch.tensor(lens), state)
        at = [n + more for n, more in zip(at, lens, strict=True)]
        again = [n > 10 and draw.random() < 0.1 for n in at]
        if rows:  # some begin anew in their places
            pairs = zip(again, search.unstack(state), strict=True)
            state = search.stack([search.start(1) if begins else one for begins, one in pairs])
        at = [0 if begins else n for begins, n in zip(again, at, strict=True)]
        for n, b in enumerate(rows):
            if at[n] == X_lens[b]:
                same(search, search.select(state, torch.tensor([n])), alone[b])
                seen += 1
        going = [n for n, b in enumerate(rows) if at[n] < X_lens[b]]
        draw.shuffle(going)
        state = search.select(state, torch.tensor(going, dtype=torch.long))
        rows, at = [rows[n] for n in going], [at[n] for n in going]
        if not rows and new is None:
            break
    assert seen == 20 and not len(state)


def same(search, got, expected):
    """To rounding, for the width of a batch decides how PyTorch computes a logarithm's last bit."""
    assert search.best(got) == search.best(expected)
    nbests = [search.hypotheses(state)[0] for state in (got, expected)]
    for one, other in zip(*nbests, strict=True):
        assert one.tokens == other.tokens
        assert [one.score, *one.confidences] == pytest.approx([other.score, *other.confidences])


def test_cutting_changes_no_bit():
    search = CTCBeamSearch({}, V - 1, beam=5)
    X, X_lens = posteriors([40, 17, 33], 4, 5.0)
    whole, *others = (read(search, X, X_lens, cuts) for cuts in ((), range(1, 40), (3, 3, 20)))
    for state in others:
        for name, x in state.tensors().items():
            if name != "history":  # beyond a prefix's labels, it is never read
                near(x, whole.tensors()[name])
        assert search.hypotheses(state) == search.hypotheses(whole)
        assert search.best(state) == search.best(whole)


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
