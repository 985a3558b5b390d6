"""Boundaries of words: the best path is that of brute force; boundaries that were drawn are learned and found again."""

import math

import pytest
import torch
from pretended_gpu import pretended_gpu
from refusals import refused
from torch.nn.utils.rnn import pad_sequence

from asr.models import boundaries
from asr.models.boundaries import Boundaries, Example, WordSpan, learn
from asr.transcript import Word
from asr.transcription.times import _groups

MELS = 12


def refined(model, examples, device="cpu"):
    """The words of utterances in a batch, placed anew."""
    X = pad_sequence([e.X for e in examples], batch_first=True, padding_value=math.nan)
    lens, words = torch.tensor([len(e.X) for e in examples]), [e.words for e in examples]
    return model.to(device).refine(X.to(device), lens.to(device), words)


def every_path(emissions, states, start=0, before=None):
    """(score, [(word, first, end) of each state]) of all ways through the states from a frame on.

    Silence may stand around words, and costs between them. Words' states are (word, state, its window's
    begin and end).
    """
    if not states:
        yield float(emissions[start:, 0].sum()), []
        return
    (word, state, low, high), *rest = states
    for first in range(max(start, low), start + 1 if word == before else high):
        for end in range(first + 1, high + 1):
            score = float(emissions[start:first, 0].sum() + emissions[first:end, state].sum())
            score -= boundaries.PAUSE_COST if before is not None and first > start else 0
            for more, later in every_path(emissions, rest, end, word):
                yield score + more, [(word, first, end), *later]


def test_the_best_path_is_that_of_brute_force_alone_and_in_company(monkeypatch):
    """Emissions are features themselves here: slopes have no weight, and the mean is the same for all states."""
    monkeypatch.setattr(boundaries, "NEAR", 2)
    monkeypatch.setattr(boundaries, "STATES", 1)
    monkeypatch.setattr(boundaries, "PAUSE_COST", 2.0)
    torch.manual_seed(0)
    model = Boundaries("AB", torch.cat([torch.eye(4), torch.zeros(8, 4)]), torch.zeros(4))
    cases = [
        Example(torch.randn(T, 4) * 3, words)
        for T in (5, 7, 8)
        for words in (
            [WordSpan("a", 2, 3)],
            [WordSpan("ab", 1, 3), WordSpan("b", 3, 5)],
            [WordSpan("x", 0, 1), WordSpan("a", 4, 5)],
        )
    ]
    for case, found in zip(cases, refined(model, cases), strict=True):
        assert refined(model, [case]) == [found]
        states = [
            (n, state, max(0, word.first - 2), min(len(case.X), word.end + 2))
            for n, word in enumerate(case.words)
            for state in model.states(word.text)
        ]
        _, best = max(every_path((case.X - case.X.mean(0)).double(), states))
        for n, word in enumerate(found):
            spans = [span for span in best if span[0] == n]
            assert (word.first, word.end) == (spans[0][1], spans[-1][2])


def test_words_without_room_stay_where_ctc_has_them():
    model, X = Boundaries("A", torch.randn(3 * MELS, 5), torch.zeros(5)), torch.randn(50, MELS)
    for words in ([WordSpan("AAAAAAAA", n, n + 1) for n in range(4)], []):  # 96 states
        assert refined(model, [Example(X, words)]) == [words]


def draw(low, high):
    return int(torch.randint(low, high, ()))


def spoken(sounds, words):
    """Features of words, each letter of 4 to 12 frames, and where these are; pauses are of any length."""
    frames, places = [sounds[" "]] * draw(5, 20), []
    for word in words:
        first = len(frames)
        for letter in word:
            frames += [sounds[letter]] * draw(4, 13)
        places.append(WordSpan(word, first, len(frames)))
        frames += [sounds[" "]] * draw(0, 25)
    X = torch.stack([*frames, *[sounds[" "]] * 5])
    return X + 0.7 * torch.randn(X.shape), places


@pytest.fixture(scope="module")
def corpus():
    """Utterances whose words are where CTC's spikes may be, somewhere within them; where they truly are."""
    torch.manual_seed(1)
    made = []
    sounds = {letter: 2 * torch.randn(MELS) for letter in "ABCDE "}
    for _ in range(80):
        names = ["".join("ABCDE"[i] for i in torch.randint(0, 5, (n,))) for n in (1, 3, 4, 2)]
        X, true = spoken(sounds, names)
        spikes = [draw(word.first, word.end) for word in true]
        heard = [
            word._replace(first=spike, end=min(word.end, spike + 4))
            for word, spike in zip(true, spikes, strict=True)
        ]
        made.append((Example(X, heard), true))
    return list(zip(*made, strict=True))


def errors(found, true):
    """Frames by which words begin and end too early or too late, (words, 2)."""
    places = (
        torch.tensor([word[1:] for words in some for word in words]) for some in (found, true)
    )
    return torch.sub(*places).abs().float()


def test_boundaries_are_learned_from_spikes_and_found_again(corpus, tmp_path):
    examples, true = corpus
    model, unseen = learn(examples[:60]), examples[60:]
    found = refined(model, unseen)
    assert errors([e.words for e in unseen], true[60:])[:, 0].mean() > 5
    off = errors(found, true[60:])
    # where a letter meets its like, nothing tells them apart
    assert off.mean() < 1 and (off <= 1).float().mean() > 0.9
    model.save(tmp_path)
    again = boundaries.load(tmp_path, MELS)
    assert again.letters == model.letters == "ABCDE" and refined(again, unseen) == found
    assert again.states("é") != again.states("a") == again.states("A")


def test_few_words_teach_nothing_and_a_damaged_file_is_refused(corpus, tmp_path):
    assert learn(corpus[0][:3]) is None
    assert boundaries.load(tmp_path, MELS) is None
    learn(corpus[0][:20]).save(tmp_path)
    refused("expected", boundaries.load, tmp_path, MELS + 1)
    path = tmp_path / boundaries.BOUNDARIES
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    refused(boundaries.BOUNDARIES, boundaries.load, tmp_path, MELS)


def test_groups_of_words_end_at_pauses_and_before_they_are_long():
    at = [0.0, 0.5, 0.9, 0.9, 3.0, *[3.5 + n / 2 for n in range(80)]]
    words = [Word(t, t + (0.4 if n != 3 else 0.0), "w") for n, t in enumerate(at)]
    groups = list(_groups(words))
    assert groups[0] == [0, 1, 2] and groups[1][0] == 4  # word 3 isn't heard
    assert [n for group in groups for n in group] == [n for n in range(len(words)) if n != 3]
    assert all(words[g[-1]].end - words[g[0]].start <= 30.0 for g in groups)


def test_on_a_gpu_the_boundaries_are_the_cpus(corpus):
    model, some = learn(corpus[0][:20]), corpus[0][:4]
    expected = refined(model, some)
    with pretended_gpu():
        assert refined(model, some, "cuda") == expected
