"""Rescoring: against the weighted sum of whole scores, each computed for itself."""

import pytest
from searches import assert_equal, ctc_scorer, plain_scorers, search, tiny, total_of

from asr.search import rescoring
from asr.search.length import LengthBonus


@pytest.mark.parametrize("scores", [1, 1 << 25])  # all at once, and one utterance at a time
def test_rescoring_is_the_weighted_sum_of_whole_scores(scores, monkeypatch):
    monkeypatch.setattr(rescoring, "SCORES", scores)
    model, H, H_lens, ctc = tiny(V=12, seed=4)
    scorers = {
        "ctc": (ctc_scorer(12, full=True), True, 1.0),
        "length": (LengthBonus(0.5, 11), False, 1.0),
    }
    nbests = search(scorers, H_lens.tolist(), 12, ctc, H_lens, beam=5, nbest=5)
    nbests[2], nbests[3] = [], nbests[3][:2]
    plain = plain_scorers(model, H, H_lens, ctc, 0.3)
    got = rescoring.rescore(
        nbests, lambda *inputs: model.decoder(*inputs).logits, H, H_lens, model.sos_eos, 0.7, 12
    )
    for b, nbest in enumerate(nbests):
        expected = []
        for h in nbest:
            attention = total_of({"attention": plain["attention"]}, b, tuple(h.tokens))["attention"]
            total = 0.3 * h.scores["ctc"] + 0.7 * attention + h.scores["length"]
            expected.append((total, h.tokens, {"attention": attention, **h.scores}, h.reason))
        assert_equal(got[b], sorted(expected, key=lambda x: -x[0]))
