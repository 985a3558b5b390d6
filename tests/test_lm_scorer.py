"""Prove the language model as a scorer: its log-probabilities are `forward`'s on the whole prefix of each hypothesis.

The reference is `forward`, in float64; the searches are random walks of all that a beam search does to its states.
"""

import pytest
import torch
from test_lm import EOS, SHAPES, V, build, sizes
from torch.testing import assert_close

from asr.config import dump
from asr.errors import UserError
from asr.models.lm import FolderSettings, LanguageModel
from asr.search.neural import NetworkScorer
from asr.text import tokenizer
from asr.transcription.searcher import load_network


class Walk:
    """A search in small: B utterances with the labels that each hypothesis has read, beside the scorer's state."""

    def __init__(self, model, B, seed):
        self.scorer, self.model = NetworkScorer(model.decoder, EOS), model
        self.rng = torch.Generator().manual_seed(seed)
        self.prefixes = [[[]] for _ in range(B)]  # of utterances and their hypotheses
        self.state = self.scorer.start(
            torch.empty(B, 3, 2, dtype=torch.double), torch.full((B,), 3)
        )

    def draw(self, most, *shape):
        return torch.randint(most, shape, generator=self.rng)

    def check(self):
        """Compare with `forward`, of all labels and of candidates."""
        scores = self.scorer.score(self.state, None)
        for b, hypotheses in enumerate(self.prefixes):
            for k, prefix in enumerate(hypotheses):
                logits = self.model(
                    torch.tensor([prefix], dtype=torch.long), torch.tensor([len(prefix)])
                )
                assert_close(
                    scores[b, k],
                    logits[0, -1].log_softmax(-1),
                    check_dtype=False,
                    rtol=1e-4,
                    atol=1e-5,
                )
        candidates = self.draw(V, *scores.shape[:2], 4)
        assert_close(
            self.scorer.score(self.state, candidates), scores.gather(2, candidates), rtol=0, atol=0
        )

    def reorder(self, K):
        parents = self.draw(len(self.prefixes[0]), len(self.prefixes), K)
        self.prefixes = [
            [u[p] for p in ps] for u, ps in zip(self.prefixes, parents.tolist(), strict=True)
        ]
        self.state = self.scorer.reorder(self.state, parents)

    def select(self, utterances):
        self.prefixes = [self.prefixes[b] for b in utterances]
        self.state = self.scorer.select(self.state, torch.tensor(utterances))

    def merge(self, other):
        self.prefixes = self.prefixes + other.prefixes
        self.state = self.scorer.merge(self.state, other.state)

    def step(self):
        y = 1 + self.draw(EOS - 1, len(self.prefixes), len(self.prefixes[0]))
        self.prefixes = [
            [prefix + [label] for prefix, label in zip(u, labels, strict=True)]
            for u, labels in zip(self.prefixes, y.tolist(), strict=True)
        ]
        self.state = self.scorer.step(y, self.state)


@pytest.mark.parametrize("shape", SHAPES)
@torch.no_grad()
def test_step_is_forward_whatever_a_search_does(shape):
    model = build(**SHAPES[shape])
    walk = Walk(model, 3, seed=1)
    walk.check()
    for step, K in enumerate([4, 4, 2, 5, 5, 5, 5, 3, 3]):
        walk.reorder(K)
        if step == 3:
            walk.select([2, 0])
        if step == 5:  # two that have just begun beside two far ahead
            late = Walk(model, 2, seed=2)
            late.reorder(K)
            late.step()
            late.reorder(K)
            walk.merge(late)
        if step == 7:
            walk.select([3, 1, 0])
        walk.step()
        walk.check()


@torch.no_grad()
def test_many_steps_of_one_hypothesis_and_of_many():
    for K in (1, 7):
        walk = Walk(build(), 2, seed=3)
        for _ in range(30):
            walk.reorder(K)
            walk.step()
        walk.check()


@torch.no_grad()
def test_states_are_values():
    """Two ways can go on from one state."""
    walk = Walk(build(), 2, seed=4)
    walk.reorder(3)
    walk.step()
    scorer, state, y = walk.scorer, walk.state, torch.full((2, 3), 1)
    first = scorer.score(scorer.step(y, state), None)
    scorer.step(y + 1, state)
    assert_close(scorer.score(scorer.step(y, state), None), first, rtol=0, atol=0)


def test_it_is_a_full_scorer_of_probabilities():
    scorer = NetworkScorer(build().decoder, EOS)
    assert scorer.full and scorer.ceiling == 0.0
    state = scorer.start(torch.empty(2, 3, 2), torch.tensor([3, 2]))
    assert_close(scorer.score(state, None).exp().sum(-1), torch.ones(2, 1), rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_a_folder_is_loaded_for_a_recognizer_of_the_same_tokens(tmp_path):
    letters, others = tokenizer.train("characters", ["abc"]), tokenizer.train("characters", ["abd"])
    model = LanguageModel(sizes(), letters).eval()
    model.save(tmp_path / "lm", dump(FolderSettings(model=sizes())))
    scorer = NetworkScorer(
        load_network(str(tmp_path / "lm"), letters, torch.device("cpu")), letters.vocabulary - 1
    )
    y = torch.tensor([letters.encode("ab")])
    state = scorer.start(torch.empty(1, 3, 2), torch.tensor([3]))
    for label in y[0]:
        state = scorer.step(label.view(1, 1), state)
    expected = model.model(y, torch.tensor([2]))[0, -1].log_softmax(-1)
    assert_close(scorer.score(state, None)[0, 0], expected)
    with pytest.raises(
        UserError,
        match=r"lm: a language model of other tokens than the recognizer's \(5 and 5 ids\)",
    ):
        load_network(str(tmp_path / "lm"), others, torch.device("cpu"))
    (tmp_path / "lm/config.yaml").write_text("features: {}\nmodel: {kind: hybrid}\n")
    with pytest.raises(
        UserError, match=r"lm: holds a recognizer \(model.kind: hybrid\), expected a language model"
    ):
        load_network(str(tmp_path / "lm"), letters, torch.device("cpu"))
