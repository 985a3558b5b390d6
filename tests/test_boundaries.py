"""Boundaries of words: the best path is that of brute force; boundaries that were drawn are learned and found again."""

import itertools
import math

import pytest
import torch
from pretended_gpu import pretended_gpu

from asr.errors import UserError
from asr.models import boundaries
from asr.models.boundaries import Boundaries, Example, WordSpan, learn
from asr.transcript import Word
from asr.transcription.times import _groups

MELS = 12


def every_path(emissions, words):
    """(score, frames of each word) of the best way through all states; silence may stand around words."""
    T, best = len(emissions), (-math.inf, [])
    states = [(n, s, lo, hi) for n, (ids, lo, hi) in enumerate(words) for s in ids]
    for cuts in itertools.combinations_with_replacement(range(T + 1), 2 * len(states)):
        spans = list(zip(cuts[::2], cuts[1::2], strict=True))
        if any(a == b for a, b in spans) or any(
            a < lo or b > hi for (a, b), (*_, lo, hi) in zip(spans, states, strict=True)
        ):
            continue
        if any(
            one[1] != next[0] and a[0] == b[0]
            for (one, a), (next, b) in itertools.pairwise(zip(spans, states, strict=True))
        ):
            continue
        label = [0] * T
        for (a, b), (_, s, *_) in zip(spans, states, strict=True):
            label[a:b] = [s] * (b - a)
        score = sum(emissions[t, s].double().item() for t, s in enumerate(label))
        if score > best[0]:
            of = [
                [span for span, s in zip(spans, states, strict=True) if s[0] == n]
                for n in range(len(words))
            ]
            best = score, [(rows[0][0], rows[-1][1]) for rows in of]
    return best


def test_the_best_path_is_that_of_brute_force_alone_and_in_company(monkeypatch):
    """Emissions are features themselves here: slopes have no weight, and the mean is the same for all states."""
    monkeypatch.setattr(boundaries, "NEAR", 2)
    monkeypatch.setattr(boundaries, "STATES", 1)
    rng = torch.Generator().manual_seed(0)
    model = Boundaries("AB", torch.cat([torch.eye(4), torch.zeros(8, 4)]), torch.zeros(4))
    cases = []
    for T in (5, 7, 8):
        for words in (
            [WordSpan("a", 2, 3)],
            [WordSpan("ab", 1, 3), WordSpan("b", 3, 5)],
            [WordSpan("x", 0, 1), WordSpan("a", 4, 5)],
        ):
            cases.append((torch.randn(T, 4, generator=rng) * 3, words))
    X = torch.nn.utils.rnn.pad_sequence(
        [x for x, _ in cases], batch_first=True, padding_value=math.nan
    )
    lens = torch.tensor([len(x) for x, _ in cases])
    together = model.refine(X, lens, [words for _, words in cases])
    for (x, words), found in zip(cases, together, strict=True):
        assert model.refine(x[None], torch.tensor([len(x)]), [words]) == [found]
        windows = [
            (model.states(w.text), max(0, w.first - 2), min(len(x), w.end + 2)) for w in words
        ]
        assert every_path(x - x.mean(0), windows)[1] == [tuple(place[1:]) for place in found]


def test_words_without_room_stay_where_ctc_has_them():
    model = Boundaries("A", torch.randn(3 * MELS, 5), torch.zeros(5))
    words = [WordSpan("AAAAAAAA", n, n + 1) for n in range(4)]  # 96 states
    assert model.refine(torch.randn(1, 50, MELS), torch.tensor([50]), [words]) == [words]
    assert model.refine(torch.randn(1, 50, MELS), torch.tensor([50]), [[]]) == [[]]


def spoken(rng, sounds, words):
    """Features of words, each letter of 4 to 12 frames, and where these are; pauses are of any length."""
    frames, places = [sounds[" "]] * int(torch.randint(5, 20, (), generator=rng)), []
    for word in words:
        first = len(frames)
        for letter in word:
            frames += [sounds[letter]] * int(torch.randint(4, 13, (), generator=rng))
        places.append(WordSpan(word, first, len(frames)))
        frames += [sounds[" "]] * int(torch.randint(0, 25, (), generator=rng))
    X = torch.stack([*frames, *[sounds[" "]] * 5])
    return X + 0.7 * torch.randn(X.shape, generator=rng), places


@pytest.fixture(scope="module")
def corpus():
    rng = torch.Generator().manual_seed(1)
    sounds = {letter: 2 * torch.randn(MELS, generator=rng) for letter in "ABCDE "}
    made = []
    for _ in range(80):
        names = [
            "".join("ABCDE"[i] for i in torch.randint(0, 5, (n,), generator=rng))
            for n in (1, 3, 4, 2)
        ]
        X, true = spoken(rng, sounds, names)
        # CTC's spikes: somewhere within the word
        heard = [
            WordSpan(
                w.text,
                at := int(torch.randint(w.first, w.end, (), generator=rng)),
                min(w.end, at + 4),
            )
            for w in true
        ]
        made.append((Example(X, heard), true))
    return made


def errors(model, some):
    found = [model.refine(e.X[None], torch.tensor([len(e.X)]), [e.words])[0] for e, _ in some]
    pairs = [
        (w, t)
        for row, (_, true) in zip(found, some, strict=True)
        for w, t in zip(row, true, strict=True)
    ]
    return torch.tensor([(abs(w.first - t.first), abs(w.end - t.end)) for w, t in pairs]).float()


def test_boundaries_are_learned_from_spikes_and_found_again(corpus, tmp_path):
    learned, unseen = corpus[:60], corpus[60:]
    model = learn([example for example, _ in learned])
    off = errors(model, unseen)
    by_ctc = [(w, t) for e, true in unseen for w, t in zip(e.words, true, strict=True)]
    assert sum(abs(w.first - t.first) for w, t in by_ctc) / len(by_ctc) > 5
    # where a letter meets its like, nothing tells them apart
    assert off.mean() < 1 and (off <= 1).float().mean() > 0.9
    model.save(tmp_path)
    again = boundaries.load(tmp_path, MELS)
    assert again.letters == model.letters == "ABCDE" and torch.equal(errors(again, unseen), off)
    assert again.states("é") != again.states("a") == again.states("A")


def test_few_words_teach_nothing_and_a_damaged_file_is_refused(corpus, tmp_path):
    assert learn([example for example, _ in corpus[:3]]) is None
    assert boundaries.load(tmp_path, MELS) is None
    learn([example for example, _ in corpus[:20]]).save(tmp_path)
    with pytest.raises(UserError, match="expected"):
        boundaries.load(tmp_path, MELS + 1)
    path = tmp_path / boundaries.BOUNDARIES
    data = path.read_bytes()
    path.write_bytes(data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])
    with pytest.raises(UserError, match=boundaries.BOUNDARIES):
        boundaries.load(tmp_path, MELS)


def test_groups_of_words_end_at_pauses_and_before_they_are_long():
    at = [0.0, 0.5, 0.9, 0.9, 3.0, *[3.5 + n / 2 for n in range(80)]]
    words = [Word(t, t + (0.4 if n != 3 else 0.0), "w") for n, t in enumerate(at)]
    groups = list(_groups(words))
    assert groups[0] == [0, 1, 2] and groups[1][0] == 4  # word 3 isn't heard
    assert [n for group in groups for n in group] == [n for n in range(len(words)) if n != 3]
    assert all(words[g[-1]].end - words[g[0]].start <= 30.0 for g in groups)


def test_on_a_gpu_the_boundaries_are_the_cpus(corpus):
    model = learn([example for example, _ in corpus[:20]])
    X = torch.nn.utils.rnn.pad_sequence([e.X for e, _ in corpus[:4]], batch_first=True)
    lens, words = torch.tensor([len(e.X) for e, _ in corpus[:4]]), [e.words for e, _ in corpus[:4]]
    expected = model.refine(X, lens, words)
    with pretended_gpu():
        assert model.to("cuda").refine(X.to("cuda"), lens.to("cuda"), words) == expected
