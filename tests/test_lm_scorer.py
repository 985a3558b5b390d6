"""Prove the language model as a scorer: its log-probabilities are `forward`'s on the whole prefix of each hypothesis.

The reference is `forward`, in float64; the searches are random walks of all that a beam search does to its states.
"""

import pytest
import torch
from scorers import check_walk
from small import each
from test_lm import EOS, SHAPES, build, sizes
from torch.testing import assert_close

from asr.config import dump
from asr.errors import UserError
from asr.models.lm import FolderSettings, LanguageModel
from asr.search.neural import NetworkScorer
from asr.text import tokenizer
from asr.transcription.searcher import load_network


@each("shape", SHAPES)
@torch.no_grad()
def test_step_is_forward_whatever_a_search_does(shape):
    model = build(shape)
    scorer = NetworkScorer(model.decoder, EOS)

    def expected(_, labels):
        logits = model(torch.tensor([labels]).long(), torch.tensor([len(labels)]))
        return logits[0, -1].log_softmax(-1)

    H, H_lens = torch.empty(6, 3, 2, dtype=torch.double), torch.full((6,), 3)
    beams = (1, 4, 4, 2, 5, 5, 5, *[3] * 15, *[7] * 15)
    check_walk(scorer, H, H_lens, expected, beams, rtol=1e-4, atol=1e-5)
    assert scorer.full and scorer.ceiling == 0.0
    state = scorer.start(H, H_lens)
    dense = scorer.score(state, None)
    assert_close(dense[0, 0], expected(0, ()), check_dtype=False, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_folder_is_loaded_for_a_recognizer_of_the_same_tokens(tmp_path):
    letters, others = tokenizer.train("characters", ["abc"]), tokenizer.train("characters", ["abd"])
    model = LanguageModel(sizes(), letters).eval()
    model.save(tmp_path / "lm", dump(FolderSettings(model=sizes())))
    path, cpu = str(tmp_path / "lm"), torch.device("cpu")
    scorer = NetworkScorer(load_network(path, letters, cpu), letters.vocabulary - 1)
    y = torch.tensor([letters.encode("ab")])
    state = scorer.start(torch.empty(1, 3, 2), torch.tensor([3]))
    for label in y[0]:
        state = scorer.step(label.view(1, 1), state)
    expected = model.model(y, torch.tensor([2]))[0, -1].log_softmax(-1)
    assert_close(scorer.score(state, None)[0, 0], expected)
    message = r"lm: a language model of other tokens than the model's \(5 and 5 ids\)"
    with pytest.raises(UserError, match=message):
        load_network(path, others, cpu)
    (tmp_path / "lm/config.yaml").write_text("features: {}\nmodel: {kind: hybrid}\n")
    with pytest.raises(UserError, match=r"lm: holds a recognizer \(model.kind: hybrid\)"):
        load_network(path, letters, cpu)
