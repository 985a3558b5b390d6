"""Prove that what is set arrives in training and in search, each against a value of its own.

Runs that are compared with each other share a fault on the way, and are equal all the same.
"""

import math

import pytest
import soundfile
import torch
from pytest import approx
from runs import history, train
from small import each, near, options, rows, slow
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
def model(root):
    """A recognizer of two epochs, which knows next to nothing, and is not sure of it."""
    return train(root, root / "wired", "training.epochs=2")


def batch_of(root, examples, *overrides):
    """A batch of the first epoch."""
    settings = config.load(tasks.Experiment, root / "x.yaml", overrides)
    recognizer = build(settings)
    read = settings.read(recognizer)
    return next(iter(settings.task(recognizer, read.train, read.dev).load(0, [examples])))


def test_the_statistics_are_of_all_training_recordings(root, model):
    fbank, cmvn, frames = load(root / "wired").frontend.extractor, model.frontend.cmvn, []
    for file in (root / "corpus").glob("train*.wav"):
        wave = torch.from_numpy(soundfile.read(file, dtype="float32")[0])
        frames.append(fbank(wave[None], torch.tensor([len(wave)]))[0][0].double())
    expected = [x.float() for x in torch.std_mean(torch.cat(frames), 0, correction=0)]
    assert_close([cmvn.std, cmvn.mean], expected, rtol=1e-4, atol=1e-4)


def test_speeds_and_augmentation_reach_the_waveforms(root):
    twice = "data.augment={volume: {min_gain_db: 6.0206, max_gain_db: 6.0206}}"
    plain, slower, louder = (
        batch_of(root, [3], f"data.speeds=[{speed}]", *more)
        for speed, more in ((1.0, []), (0.8, []), (1.0, [twice]))
    )
    near(slower.wave_lens, (plain.wave_lens / 0.8).round().long(), 1)
    assert_close(louder.waveforms, 2 * plain.waveforms, rtol=1e-3, atol=1e-4)


def test_masks_and_the_flat_start_have_their_epochs(root, tmp_path, monkeypatch):
    """Of five steps each: the first with equal alignments, the first two without masks."""
    met = []

    def spy(owner, name):
        function = getattr(owner, name)
        spied = lambda *inputs, **more: met.append(name) or function(*inputs, **more)  # noqa: E731
        monkeypatch.setattr(owner, name, spied)

    spy(criterion, "ctc")
    spy(criterion, "flat_start")
    spy(SpecAugment, "mask")
    monkeypatch.setattr(RecognizerTask, "validate", lambda *_: {"accuracy": 0.5})
    train(root, tmp_path, "features.specaugment.from_epoch=2", "model.flat_start_epochs=1")
    assert met == ["flat_start"] * 5 + ["ctc"] * 5 + ["mask", "ctc"] * 5


def test_the_rate_of_each_step_is_the_schedules(root, tmp_path):
    """Warm-up follows from the steps, the cosine from the epochs that are done."""
    how = ["schedule={kind: cosine, warmup: 4}", "training.log_every=1", "training.epochs=2"]
    train(root, tmp_path, *how)
    rates = [line["lr"] for line in history(tmp_path) if line["kind"] == "train"]
    cosine = [0.01 + 0.99 * (1 + math.cos(math.pi * done / 10)) / 2 for done in range(10)]
    expected = [LR * min((done + 1) / 4, factor) for done, factor in enumerate(cosine)]
    assert rates == approx(expected, rel=1e-6)


def flat(tensors):
    return torch.cat([tensor.detach().double().flatten() for tensor in tensors])


def test_the_running_average_takes_every_step(root, tmp_path, monkeypatch):
    """Its formula, test_averages.py proves."""
    taken, average, step = [], [], Trainer.train_step

    def spy(self, *arguments):
        weights = self.replicas.model.parameters
        average[:] = average or [flat(weights())]
        report, n = step(self, *arguments), self.progress.step
        average[0] = average[0].lerp(flat(weights()), 1 - min(0.7, (1 + n) / (10 + n)))
        taken[:] = self.average.averages
        return report

    monkeypatch.setattr(Trainer, "train_step", spy)
    train(root, tmp_path, "training.ema=0.7", "training.epochs=2")
    assert_close(flat(taken), average[0], rtol=1e-5, atol=1e-6)


BEST = {"loss": 2, "accuracy": 1, "wer": 1, "ctc_wer": 2}


@each("best_by", BEST)
@slow
def test_the_best_epoch_is_so_by_the_figure_asked_for(root, tmp_path, monkeypatch, best_by):
    """The figures are given; the last epoch, whose weights are kept as such, is neither best nor worst by any."""
    values = (3.0, 0.3, 0.5, 0.9), (1.0, 0.1, 0.9, 0.5), *[(2.0, 0.2, 0.6, 0.6)] * 99
    figures = (dict(zip(BEST, row, strict=True)) for row in values)
    monkeypatch.setattr(RecognizerTask, "validate", lambda *_: next(figures))
    train(root, tmp_path, "training.average=1", f"training.best_by={best_by}")
    kept = {path.stem for path in (tmp_path / "checkpoints").glob("epoch-*.safetensors")}
    assert kept == {f"epoch-{BEST[best_by]:04d}", "epoch-0003"}


@torch.no_grad()
def encode(model, batch):
    return model.eval().encode(batch.waveforms, batch.wave_lens)


@torch.no_grad()
def test_validation_encodes_once_drops_nothing_and_knows_its_two_searches_apart(root, model):
    batch, calls = batch_of(root, list(range(8))), []
    model.train()
    with model.model.encoder.register_forward_hook(lambda *_: calls.append(1)):
        counts = [validation.count(model, [batch]) for _ in range(2)]
    assert len(calls) == 2
    loss = model.loss(batch.waveforms, batch.wave_lens, batch.Y, batch.Y_lens)
    assert counts[0][0, :3].tolist() == [loss.total, loss.correct, loss.tokens]
    assert not model.training
    near(counts[0], counts[1])
    H, H_lens = encode(model, batch)
    decoder, sos_eos = model.model.decoder, model.model.sos_eos
    start = decoder.start(H, H_lens)
    attention = attention_greedy(decoder.step, start, len(H), sos_eos, H_lens)
    ctc = ctc_greedy(model.model.ctc_log_probs(H), H_lens)
    found = [
        [h.tokens for h in hypotheses]
        for hypotheses in (attention, ctc, *validation._greedy(model.model, H, H_lens))
    ]
    assert found[:2] == found[2:] and found[0] != found[1]


@each("mode, weights", rows("""
    joint     | attention: 0.6, ctc: 0.4
    attention | attention: 1.0
    ctc       | ctc: 1.0
    rescoring | ctc: 1.0
"""))  # fmt: skip
def test_each_mode_has_its_scorers(model, mode, weights):
    searcher = Searcher(model, SearchOptions(mode=mode, ctc_weight=0.4))
    found = {name: weight for name, (_, weight) in searcher.scorers().items()}
    assert found == approx(options(weights))
    loops = "ctc" in weights  # CTC itself rejects repetitions that were not said
    assert searcher.beam(1).allow_loops == loops


def test_rescoring_chooses_from_the_whole_beam_by_both_scores(root, model):
    batch = batch_of(root, list(range(12)))
    settings = {"mode": "rescoring", "beam": 10, "ctc_weight": 0.2}
    ten, one = (
        Searcher(model, SearchOptions(nbest=nbest, **settings)).search(*encode(model, batch))
        for nbest in (10, 1)
    )
    assert [nbest[0].tokens for nbest in one] == [nbest[0].tokens for nbest in ten]
    choices = []
    for nbest in ten:
        ctc = [h.scores["ctc"] for h in nbest]
        scores = [0.8 * h.scores["attention"] + 0.2 * h.scores["ctc"] for h in nbest]
        assert [h.score for h in nbest] == approx(scores, abs=1e-4)
        assert scores == sorted(scores, reverse=True)
        choices.append(ctc[0] < max(ctc))
    assert any(choices)
