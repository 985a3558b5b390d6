"""The error rates of validation count what the mixed error rate counts: cases with the hypotheses given."""

from types import SimpleNamespace

import pytest
import torch

from asr.data.dataset import collate
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
    tokenizer = Characters.train([*references, *attention, *ctc])
    model = torch.nn.Linear(1, 1)
    model.tokenizer = tokenizer
    model.loss = lambda *_: SimpleNamespace(total=3.0, correct=1.0, tokens=6.0)
    given = [
        [Hypothesis(tokenizer.encode(text), 0.0) for text in texts] for texts in (attention, ctc)
    ]
    monkeypatch.setattr(validation, "_greedy", lambda *_: given)
    labels = [tokenizer.encode(text) for text in references]
    waves = [torch.zeros(5).numpy()] * len(labels)
    batch = collate([str(n) for n in range(len(labels))], waves, labels, torch.zeros(len(labels)))
    figures = validation.metrics(validation.count(model, [batch]).sum(0))
    assert figures == pytest.approx(
        {"loss": 0.5, "accuracy": 1 / 6, "wer": wer, "ctc_wer": ctc_wer}
    )
