"""The error rates of validation count what the mixed error rate counts: cases with the hypotheses given."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from asr.data.batches import collate
from asr.nn.encoder import EncoderOutput
from asr.search.scorer import Hypothesis
from asr.tasks import validation
from asr.text.characters import Characters


@pytest.mark.parametrize(
    "references, attention, ctc, wer, ctc_wer",
    [
        (["GO ON", "STOP"], ["GO", "STOP IT"], ["GO ON", "STOP"], 2 / 3, 0),
        (["我用 GO 打电话"], ["我用 GO 打话"], ["我 用 ON 打电话"], 1 / 6, 1 / 6),
        (["打电话", "GO"], ["", "GO GO"], ["打打电话", "GO"], 4 / 4, 1 / 4),
    ],
)
def test_rates(monkeypatch, references, attention, ctc, wer, ctc_wer):
    model, texts = torch.nn.Linear(1, 1), (references, attention, ctc)
    model.tokenizer = Characters.train(sum(texts, []))
    model.frontend = lambda *_: (None, None)
    model.model = SimpleNamespace(
        encoder=lambda *_: EncoderOutput(None, None),
        loss=lambda *_, **__: SimpleNamespace(total=3.0, correct=1.0, tokens=6.0),
    )
    labels, *found = ([*map(model.tokenizer.encode, each)] for each in texts)
    given = [[Hypothesis(tokens, 0.0) for tokens in each] for each in found]
    monkeypatch.setattr(validation, "_greedy", lambda *_: given)
    n = len(labels)
    batch = collate(["x"] * n, [np.zeros(5, np.float32)] * n, labels, torch.zeros(n))
    figures = validation.metrics(validation.count(model, [batch]).sum(0))
    expected = {"loss": 0.5, "accuracy": 1 / 6, "wer": wer, "ctc_wer": ctc_wer}
    assert figures == pytest.approx(expected)
