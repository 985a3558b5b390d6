"""What keeps a search from loops, deletions and going on; and what it says of its own certainty: constructed models."""

import math
from types import SimpleNamespace

import pytest
import torch
from searches import ctc_scorer, search, tiny
from small import each

from asr.search.beam import looping
from asr.transcription.options import SearchOptions
from asr.transcription.searcher import Searcher


def wanting(label, p, others):
    """Log-probabilities of 7 labels, of which one is likely."""
    return [math.log(p if n == label else others) for n in range(7)]


def stutterer(b, labels):
    """After 1 2 3 it wants to say 4 5 for ever: the end is unlikely, but likelier than anything new."""
    return wanting(([1, 2, 3] + [4, 5] * 100)[len(labels)], 0.99, 0.001)


def test_a_loop_is_not_followed():
    scorers = {"a": (stutterer, True, 1.0)}
    [[best]] = search(scorers, [150], 7, beam=1)
    assert best.reason == "loop" and best.tokens == [1, 2, 3] + [4, 5] * 10
    [[best]] = search(scorers, [15], 7, beam=1)
    assert len(best.tokens) == 15  # no loop yet


@each("mode", ["joint", "ctc"])
def test_what_was_said_a_dozen_times_is_no_loop_to_ctc(mode):
    model, H, H_lens, _ = tiny(V=6, lens=(200,))
    X, _ = spoken([0, 2] * 12 + [0] * (int(H_lens[0]) - 24), 6)
    model.ctc_log_probs = lambda H: X
    recognizer = SimpleNamespace(model=model, tokenizer=None, parameters=model.parameters)
    searcher = Searcher(recognizer, SearchOptions(mode))
    [[best]] = searcher.tuned(ctc_weight=0.9).search(H, H_lens)
    assert (best.tokens, best.reason) == ([2] * 12, "end")


@each("period", [1, 2, 3, 8])
def test_what_a_loop_is(period):
    run = list(range(1, period + 1))
    for labels, expected in (
        (run * 10, True),
        ([9] + run * 10, True),
        ([9] + run * 9, False),
        (run * 11, True),
        (run * 10 + [11], False),
    ):
        assert looping(torch.tensor([[[0, 0] + labels] * 2])).tolist() == [[expected] * 2]
    assert looping(torch.zeros(1, 2, 90, dtype=torch.long)).tolist() == [[False, False]]


def spoken(path, V):
    """CTC posteriors of a clear alignment."""
    X = torch.nn.functional.one_hot(torch.tensor([path]), V).float().mul(9).log_softmax(-1)
    return X, torch.tensor([len(path)])


def hasty(b, labels):
    """Of what was said it wants to say no more than 1 2."""
    return wanting(6 if len(labels) >= 2 else len(labels) + 1, 0.9, 0.02)


@each("attention", [stutterer, hasty])
def test_ctc_keeps_attention_from_loops_deletions_and_going_on(attention):
    """Attention alone stutters, or stops early; with CTC the search reads what was said, and ends where it ends."""
    V, said, steps = 7, [1, 2, 3, 4, 5], []
    X, X_lens = spoken([label for y in said for label in (0, y, y)] + [0] * 185, V)

    def counted(b, labels):
        steps.append(len(labels))
        return attention(b, labels)

    scorers = {"a": (counted, True, 0.7), "ctc": (ctc_scorer(V), False, 0.3)}
    [[alone]] = search({"a": scorers["a"]}, [200], V, X, X_lens, beam=5)
    assert alone.tokens != said
    steps.clear()
    [[joint]] = search(scorers, [200], V, X, X_lens, beam=5)
    assert joint.tokens == said and joint.reason == "end"
    assert max(steps) < 20  # of 200: CTC tells that nothing follows


def test_confidence_is_the_share_among_the_candidates():
    def function(b, labels):
        return [math.log(p) for p in ([0.1, 0.6, 0.2, 0.1] if not labels else [0.1, 0.1, 0.1, 0.7])]

    [[best]] = search({"a": (function, True, 1.0)}, [5], 4, beam=2)
    assert best.tokens == [1] and best.confidences == pytest.approx([0.6 / 0.9])
    assert best.confidence == pytest.approx(math.sqrt(0.6 / 0.9 * 0.7 / 0.9))
