"""What keeps a search from loops, deletions and going on; and what it says of its own certainty: constructed models."""

import math
from types import SimpleNamespace

import pytest
import torch
from searches import ctc_scorer, search, tiny

from asr.search.beam import looping
from asr.search.length import LengthBonus
from asr.transcription.options import SearchOptions
from asr.transcription.searcher import Searcher


def stutterer(b, labels):
    """After 1 2 3 it wants to say 4 5 for ever: the end is unlikely, but likelier than anything new."""
    loop = [1, 2, 3] + [4, 5] * 100
    x = [0.001] * 7
    x[loop[len(labels)]] = 0.99
    return [math.log(p) for p in x]


def test_a_loop_is_not_followed():
    [nbest] = search({"a": (stutterer, True, 1.0)}, [150], 7, beam=1)
    assert nbest[0].reason == "loop" and nbest[0].tokens == [1, 2, 3] + [4, 5] * 10
    assert (
        len(search({"a": (stutterer, True, 1.0)}, [15], 7, beam=1)[0][0].tokens) == 15
    )  # no loop yet


@pytest.mark.parametrize("mode", ["joint", "ctc"])
def test_what_was_said_a_dozen_times_is_no_loop_to_ctc(mode):
    model, H, H_lens, _ = tiny(V=6, lens=(200,))
    X, _ = spoken([0, 2] * 12 + [0] * (int(H_lens[0]) - 24), 6)
    model.ctc_log_probs = lambda H: X
    searcher = Searcher(
        SimpleNamespace(model=model, tokenizer=None, parameters=model.parameters),
        SearchOptions(mode),
    )
    [[best]] = searcher.tuned(ctc_weight=0.9).search(H, H_lens)
    assert (best.tokens, best.reason) == ([2] * 12, "end")


@pytest.mark.parametrize("period", [1, 2, 3, 8])
def test_what_a_loop_is(period):
    run = list(range(1, period + 1))
    for before, times, expected in (
        ([], 10, True),
        ([9], 10, True),
        ([9], 9, False),
        ([], 11, True),
    ):
        Y = torch.tensor([[[0, 0] + before + run * times], [[0, 0] + before + run * times]])
        assert looping(Y).tolist() == [[expected]] * 2
    assert looping(torch.tensor([[run * 10 + [11]]])).tolist() == [[False]]
    assert looping(torch.zeros(1, 2, 90, dtype=torch.long)).tolist() == [[False, False]]


def spoken(path, V):
    """CTC posteriors of a clear alignment."""
    X = torch.nn.functional.one_hot(torch.tensor([path]), V).float().mul(9).log_softmax(-1)
    return X, torch.tensor([len(path)])


def test_ctc_keeps_attention_from_loops_deletions_and_going_on():
    """Attention alone stutters, or stops early; with CTC the search reads what was said, and ends where it ends."""
    V, said = 7, [1, 2]
    path = [label for y in (1, 2, 3, 4, 5) for label in (0, y, y)] + [0] * 185
    X, X_lens = spoken(path, V)
    steps = []

    def hasty(b, labels):
        x = [0.02] * 7
        x[6 if len(labels) >= 2 else said[len(labels)]] = 0.9
        return [math.log(p) for p in x]

    def counted(b, labels):
        steps.append(len(labels))
        return stutterer(b, labels)

    ctc = {"ctc": (ctc_scorer(V), False, 0.3)}
    for attention in (counted, hasty):
        [alone] = search({"a": (attention, True, 0.7)}, [200], V, X, X_lens, beam=5)
        assert alone[0].tokens != [1, 2, 3, 4, 5]
        steps.clear()
        [joint] = search({"a": (attention, True, 0.7), **ctc}, [200], V, X, X_lens, beam=5)
        assert joint[0].tokens == [1, 2, 3, 4, 5] and joint[0].reason == "end"
        assert not steps or max(steps) < 20  # of 200: CTC tells that nothing follows


def test_a_length_bonus_keeps_attention_from_deletions():
    def hasty(b, labels):
        """Every label is right with 0.5, but the end has 0.45, until there is nothing more to say."""
        n = len(labels)
        x = [0.01, 0.01, 0.01, 0.01, 0.96] if n == 3 else [0.01, 0.0125, 0.0125, 0.0125, 0.45]
        if n < 3:
            x[n + 1] = 0.5
        return [math.log(p) for p in x]

    attention = {"a": (hasty, True, 1.0)}
    assert search(attention, [20], 5, beam=3)[0][0].tokens == []
    [nbest] = search({**attention, "length": (LengthBonus(0.6, 4), False, 1.0)}, [20], 5, beam=3)
    assert nbest[0].tokens == [1, 2, 3] and nbest[0].scores["length"] == pytest.approx(1.8)


def test_confidence_is_the_share_among_the_candidates():
    def function(b, labels):
        return [math.log(p) for p in ([0.1, 0.6, 0.2, 0.1] if not labels else [0.1, 0.1, 0.1, 0.7])]

    [[best]] = search({"a": (function, True, 1.0)}, [5], 4, beam=2)
    assert best.tokens == [1] and best.confidences == pytest.approx([0.6 / 0.9])
    assert best.confidence == pytest.approx(math.sqrt(0.6 / 0.9 * 0.7 / 0.9))
