"""Prove that what is set arrives in training and in search, each against a value of its own.

Runs that are compared with each other share a fault on the way, and are equal all the same.
"""

import math
from itertools import chain, repeat

import numpy as np
import pytest
import soundfile
import torch
from runs import history, make_root, train
from torch.testing import assert_close

from asr import config, tasks
from asr.features.specaugment import SpecAugment
from asr.models import loss as criterion
from asr.models.recognizer import load
from asr.search.greedy import attention_greedy, ctc_greedy
from asr.tasks import validation
from asr.tasks.recognizer import RecognizerTask
from asr.training.build import build
from asr.training.trainer import Trainer
from asr.transcription.options import SearchOptions
from asr.transcription.searcher import Searcher

LR = 4e-3  # of the configuration


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make_root(tmp_path_factory.mktemp("wiring"))


@pytest.fixture(scope="module")
def model(root):
    """A recognizer of two epochs, which knows next to nothing, and is not sure of it."""
    return train(root, root / "x", "training.epochs=2")


def task(root, *overrides):
    settings = config.load(tasks.Experiment, root / "x.yaml", overrides)
    recognizer = build(settings)
    examples = settings.read(recognizer)
    return settings.task(recognizer, examples.train, examples.dev)


def test_the_statistics_are_of_all_training_recordings(root, model):
    files = sorted((root / "corpus").glob("train*.wav"))
    waves = [torch.from_numpy(soundfile.read(file, dtype="float32")[0]) for file in files]
    fbank = load(root / "x").frontend.fbank
    frames = (
        torch.cat([fbank(wave.unsqueeze(0), torch.tensor([len(wave)]))[0][0] for wave in waves])
        .double()
        .numpy()
    )
    cmvn = model.frontend.cmvn
    np.testing.assert_allclose(cmvn.mean.numpy(), frames.mean(0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(cmvn.std.numpy(), frames.std(0), rtol=1e-4, atol=1e-4)


def test_speeds_and_augmentation_reach_the_waveforms(root):
    twice = "data.augment={volume: {min_gain_db: 6.0206, max_gain_db: 6.0206}}"
    plain, slower, louder = (
        next(iter(task(root, f"data.speeds=[{speed}]", *more).load(0, [[3]])))
        for speed, more in ((1.0, []), (0.8, []), (1.0, [twice]))
    )
    assert_close(slower.wave_lens, (plain.wave_lens / 0.8).round().long(), rtol=0, atol=1)
    assert_close(louder.waveforms, 2 * plain.waveforms, rtol=1e-3, atol=1e-4)


def test_masks_and_the_flat_start_have_their_epochs(root, tmp_path, monkeypatch):
    """Of five steps each: the first with equal alignments, the first two without masks."""
    met, mask, losses = (
        [],
        SpecAugment.mask,
        {name: getattr(criterion, name) for name in ("ctc", "flat_start")},
    )

    def spy(name, function):
        return lambda *inputs: met.append(name) or function(*inputs)

    for name, function in losses.items():
        monkeypatch.setattr(criterion, name, spy(name, function))
    monkeypatch.setattr(SpecAugment, "mask", spy("mask", mask))
    monkeypatch.setattr(RecognizerTask, "validate", lambda *_: {"accuracy": 0.5})
    train(root, tmp_path / "x", "features.specaugment.from_epoch=2", "model.flat_start_epochs=1")
    assert met == ["flat_start"] * 5 + ["ctc"] * 5 + ["mask", "ctc"] * 5


@pytest.mark.parametrize(
    "schedule, factor",
    [
        ("noam", lambda step: min(step / 4, math.sqrt(4 / step))),
        (
            "cosine",
            lambda step: min(step / 4, 0.01 + 0.99 * (1 + math.cos(math.pi * (step - 1) / 10)) / 2),
        ),
    ],
)
def test_the_rate_of_each_step_is_the_schedules(root, tmp_path, schedule, factor):
    overrides = (
        f"schedule={{kind: {schedule}, warmup: 4}}",
        "training.log_every=1",
        "training.epochs=2",
    )
    train(root, tmp_path / "x", *overrides)
    rates = [line["lr"] for line in history(tmp_path / "x") if line["kind"] == "train"]
    assert rates == pytest.approx([LR * factor(step) for step in range(1, 11)], rel=1e-6)


def test_the_running_average_takes_every_step(root, tmp_path, monkeypatch):
    expected, trainers, step = [], [], Trainer.train_step

    def spy(self, *arguments):
        weights = list(self.replicas.model.parameters())
        if not trainers:
            trainers.append(self)
            expected.extend(p.detach().double() for p in weights)
        report = step(self, *arguments)
        n = self.progress.step
        decay = min(0.7, (1 + n) / (10 + n))
        expected[:] = [
            decay * a + (1 - decay) * p.detach().double()
            for a, p in zip(expected, weights, strict=True)
        ]
        return report

    monkeypatch.setattr(Trainer, "train_step", spy)
    train(root, tmp_path / "x", "training.ema=0.7", "training.epochs=2")
    assert_close(trainers[0].average.averages, [a.float() for a in expected], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "best_by, best", [("loss", 2), ("accuracy", 1), ("wer", 1), ("ctc_wer", 2)]
)
def test_the_best_epoch_is_so_by_the_figure_asked_for(root, tmp_path, monkeypatch, best_by, best):
    """The figures are given; the last epoch, whose weights are kept as such, is neither best nor worst by any."""
    names = ("loss", "accuracy", "wer", "ctc_wer")
    values = (3.0, 0.3, 0.5, 0.9), (1.0, 0.1, 0.9, 0.5), (2.0, 0.2, 0.6, 0.6)
    figures = chain(
        (dict(zip(names, row, strict=True)) for row in values),
        repeat(dict(zip(names, values[2], strict=True))),
    )
    monkeypatch.setattr(RecognizerTask, "validate", lambda *_: next(figures))
    train(root, tmp_path / "x", "training.average=1", f"training.best_by={best_by}")
    kept = {path.stem for path in (tmp_path / "x/checkpoints").glob("epoch-*.safetensors")}
    assert kept == {f"epoch-{best:04d}", "epoch-0003"}


def test_validation_drops_nothing_and_knows_its_two_searches_apart(root, model):
    speech = task(root)
    batch = next(iter(speech.load(0, [list(range(8))])))
    model.train()
    counts = [validation.count(model, [batch]) for _ in range(2)]
    assert not model.training
    assert_close(counts[0], counts[1], rtol=0, atol=0)
    with torch.no_grad():
        H, H_lens = model.encode(batch.waveforms, batch.wave_lens)
        decoder, sos_eos = model.model.decoder, model.model.sos_eos
        attention = attention_greedy(
            decoder.step, decoder.start(H, H_lens), len(H), sos_eos, H_lens
        )
        ctc = ctc_greedy(model.model.ctc_log_probs(H), H_lens)
        found = validation._greedy(model, batch)
    texts = [[h.tokens for h in hypotheses] for hypotheses in (attention, ctc)]
    assert [[h.tokens for h in hypotheses] for hypotheses in found] == texts and texts[0] != texts[
        1
    ]


@pytest.mark.parametrize(
    "mode, weights",
    [
        ("joint", {"attention": 0.6, "ctc": 0.4}),
        ("attention", {"attention": 1.0}),
        ("ctc", {"ctc": 1.0}),
        ("rescoring", {"ctc": 1.0}),
    ],
)
def test_each_mode_has_its_scorers(model, mode, weights):
    searcher = Searcher(model, SearchOptions(mode=mode, ctc_weight=0.4))
    assert {name: weight for name, (_, weight) in searcher.scorers().items()} == pytest.approx(
        weights
    )
    assert searcher._beam(1).allow_loops == (
        "ctc" in weights
    )  # CTC itself rejects repetitions that were not said


def test_rescoring_chooses_from_the_whole_beam_by_both_scores(root, model):
    batch = next(iter(task(root).load(0, [list(range(12))])))
    model.eval()
    with torch.no_grad():
        H, H_lens = model.encode(batch.waveforms, batch.wave_lens)
    ten, one = (
        Searcher(
            model, SearchOptions(mode="rescoring", beam=10, nbest=nbest, ctc_weight=0.2)
        ).search(H, H_lens)
        for nbest in (10, 1)
    )
    assert [nbest[0].tokens for nbest in one] == [nbest[0].tokens for nbest in ten]
    for nbest in ten:
        scores = [0.8 * h.scores["attention"] + 0.2 * h.scores["ctc"] for h in nbest]
        assert [h.score for h in nbest] == pytest.approx(scores, abs=1e-4) and scores == sorted(
            scores, reverse=True
        )
    assert any(
        nbest[0].scores["ctc"] < max(h.scores["ctc"] for h in nbest) for nbest in ten
    )  # it had a choice
