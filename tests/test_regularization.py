"""Prove what training adds to the loss and to its data: intermediate CTC, consistency, BPE dropout, sorted epochs.

References: the losses put together by hand, of single views and of encoders cut short; laws: weight 0 = the plain loss
to the bit, alone = in a padded batch, stopped and continued = uninterrupted with all options on.
"""

import itertools
import re
from pathlib import Path

import pytest
import torch
from contracts import encode
from refusals import refused
from runs import assert_same, assert_uninterrupted, history, make_root, stop, train, weights
from small import each, noise, options, rows, slow
from test_model import data, sizes
from torch.testing import assert_close

from asr import config, tasks
from asr.config import check
from asr.data.manifest import read
from asr.features.frontend import FrontendSettings
from asr.models import loss as criterion
from asr.models.hybrid import Hybrid, HybridSettings
from asr.models.recognizer import Recognizer
from asr.models.stage import LATE, Stage
from asr.nn.encoder import WHOLE
from asr.preflight import check as preflight
from asr.tasks.recognizer import RecognizerTask
from asr.text import tokenizer
from asr.training.build import build
from asr.yaml_tree import Origins

MASKS = options(
    "freq_masks: 1, freq_width: 6, time_masks: 2, time_width: 9, time_ratio: 0.3, time_warp: 4"
)
TERMS = ("total", "ctc", "attention", "inter", "cr", "correct", "tokens")
FIRST, SECOND = Stage(epoch=0), Stage(epoch=1)


def settings(both="layers: 3, dropout: 0", encoder="", more=""):
    return sizes(f"both: {{{both}}}, encoder: {{{encoder}}}, {more}")


def hybrid(encoder="", more=""):
    torch.manual_seed(1)
    return Hybrid(settings("layers: 3, dropout: 0", encoder, more), 20, 9).double().train()


INTER, CONSISTENCY = "intermediate_ctc: {layers: [1, 2], weight: 0.3}", "consistency: {weight: 0.2}"


def recognizer(more="", masks=MASKS, both="layers: 3, dropout: 0"):
    torch.manual_seed(1)
    features = FrontendSettings(fbank={"sample_rate": 8000, "mels": 20}, specaugment=masks)
    characters = tokenizer.train("characters", ["A BC", "D'E"])
    return Recognizer(features, settings(both, more=more), characters).train()


def speech():
    """Three utterances, NaN in the padding, and their seeds."""
    lens, waveforms = torch.tensor([9000, 5000, 7000]), noise(3, 9000, seed=1).float() * 0.1
    waveforms[torch.arange(9000) >= lens[:, None]] = torch.nan
    Y, Y_lens = torch.tensor([[1, 2, 3], [4, -1, -1], [5, 5, -1]]), torch.tensor([3, 1, 2])
    return waveforms, lens, Y, Y_lens, torch.tensor([11, 12, 13])


def figures(loss):
    """All of a loss, 0 for terms that it doesn't have."""
    found = {"total": loss.total.detach(), **loss.sums}
    return torch.tensor([float(found.get(name, 0)) for name in TERMS])


def result(model, batch):
    """The loss and all gradients."""
    model.zero_grad()
    torch.manual_seed(7)
    loss = model.loss(*batch)
    loss.total.backward()
    return figures(loss), {name: p.grad for name, p in model.named_parameters()}


# --- intermediate CTC -----------------------------------------------------------------------------


@each("encoder", ["norm: pre", "norm: post", "kind: conformer, kernel: 5"])
def test_intermediate_ctc_is_that_of_an_encoder_cut_short(encoder):
    model, (X, X_lens, Y, Y_lens) = hybrid(encoder, INTER), data()
    loss = model.loss(X, X_lens, Y, Y_lens)
    layers, by_hand = model.encoder.layers, []
    for n in (1, 2, 3):
        model.encoder.layers = layers[:n]
        H, H_lens = encode(model.encoder, X, X_lens)
        by_hand.append(criterion.ctc(model.ctc_log_probs(H), H_lens, Y, Y_lens))
    first, second, last = by_hand
    assert first != second != last
    inter = (first + second) / 2
    total = (
        0.3 * (0.7 * last + 0.3 * inter) + 0.7 * loss.terms["attention"]
    )  # ctc_weight is 0.3 too
    got = loss.terms["inter"], loss.terms["ctc"], loss.total
    assert_close(got, (inter, last, total), rtol=1e-6, atol=1e-6)


def test_layers_are_counted_by_their_place_when_some_are_left_out():
    model = hybrid("layers: 4, layer_dropout: 0.5")
    X, X_lens, *_ = data()
    encoder, layers, met = model.encoder, model.encoder.layers, set()
    for seed in range(12):
        torch.manual_seed(seed)
        taken = (torch.rand(4) >= 0.5).tolist()
        met.add(tuple(taken[:3]))
        torch.manual_seed(seed)
        inner = encoder(X, X_lens, [1, 3]).layers
        encoder.layer_dropout = 0
        for n, Z in zip([1, 3], inner, strict=True):
            encoder.layers = torch.nn.ModuleList(itertools.compress(layers[:n], taken))
            assert_close(Z, encoder(X, X_lens).H)
        encoder.layers, encoder.layer_dropout = layers, 0.5
    assert len(met) > 4


def test_evaluation_knows_nothing_of_it():
    plain, more = (hybrid(more=text).eval().loss(*data()) for text in ("", INTER))
    assert_same((more.total, more.terms), (plain.total, plain.terms))


@each("layers", [[0], [3], [1, 1], [-1], [2, 4]])
def test_layers_that_cannot_be_chosen(layers):
    tree = settings().model_dump() | {"intermediate_ctc": {"layers": layers}}
    expected = re.escape(f"x.yaml: intermediate_ctc: got layers {layers}, expected different ones")
    refused(f"^{expected} from 1 to 2", check, HybridSettings, tree, Origins("x.yaml"))


# --- consistency ----------------------------------------------------------------------------------


def posteriors():
    return noise(2, 2, 5, 4, seed=3).log_softmax(-1)[:, [0, 0]], torch.tensor([5, 2])


def test_consistency_is_the_formula_over_real_frames():
    """½ (KL(q ‖ p) + KL(p ‖ q)) = ½ Σ (p - q) (ln p - ln q)."""
    log_probs, H_lens = posteriors()
    real = torch.arange(5) < H_lens[:, None]
    (p, q), (ln_p, ln_q) = log_probs[:, real].exp(), log_probs[:, real]
    expected = ((p - q) * (ln_p - ln_q)).sum() / 2
    assert_close(criterion.consistency(log_probs, H_lens), expected)
    assert criterion.consistency(log_probs[:1].expand(2, -1, -1, -1), H_lens) == 0


def test_no_gradient_reaches_the_targets_or_the_padding():
    """That of Σ p̄ (ln p̄ - ln q) / 2 to ln q is -p̄ / 2; were p̄ not held fast, there would be more."""
    log_probs, H_lens = posteriors()
    log_probs.requires_grad_()
    criterion.consistency(log_probs, H_lens).backward()
    expected = -log_probs.detach().flip(0).exp() / 2
    expected[:, torch.arange(5) >= H_lens[:, None]] = 0
    assert_close(log_probs.grad, expected)


@each("stage", [FIRST, LATE])
def test_the_loss_of_two_views_is_the_mean_of_theirs_and_their_consistency(stage):
    """Also in a flat start."""
    flat, batch = f"flat_start_epochs: 1, {INTER}", speech()
    model, plain = recognizer(f"{flat}, {CONSISTENCY}"), recognizer(flat)
    loss, (waveforms, lens, Y, Y_lens, seeds) = model.loss(*batch, stage), batch
    X, X_lens = model.frontend(waveforms, lens, seeds, views=2)
    assert not X[:3].equal(X[3:])
    views = [
        figures(plain.model.loss(*view, Y, Y_lens, stage))
        for view in zip(X.split(3), X_lens.split(3), strict=True)
    ]
    H, H_lens = encode(model.model.encoder, X, X_lens)
    log_probs = model.model.ctc_log_probs(H).unflatten(0, (2, 3))
    expected = dict(zip(TERMS, sum(views) / 2, strict=True))
    expected["cr"] = criterion.consistency(log_probs, H_lens[:3]).detach()
    assert expected["cr"] > 0 and loss.tokens == 3 + 1 + 2 + 3
    expected["total"] += 0.3 * 0.2 * expected["cr"]
    assert_close(figures(loss), torch.stack([*expected.values()]), rtol=1e-4, atol=1e-4)


def test_weights_of_0_are_the_plain_loss_to_the_bit():
    plain = result(recognizer(both="layers: 3"), speech())
    for text in ("intermediate_ctc: {layers: [1], weight: 0}", "consistency: {weight: 0}"):
        none = recognizer(text, both="layers: 3")
        assert none.model.term_names == ("ctc", "attention") and none.model.views == 1
        assert_same(result(none, speech()), plain)


def test_views_are_made_in_training_and_where_masks_are():
    model, batch = recognizer(CONSISTENCY, MASKS | {"from_epoch": 1}), speech()
    found = [int(model.loss(*batch, stage).terms["cr"] > 0) for stage in (FIRST, SECOND, LATE)]
    assert found == [0, 1, 1]
    for loss in (model.loss(*batch[:4]), model.eval().loss(*batch)):
        assert not loss.terms.get("cr")


def test_a_flat_start_takes_the_place_of_ctc_in_training():
    model, (*batch, seeds) = recognizer(f"flat_start_epochs: 1, {INTER}"), speech()
    encoded = model.model.encoder(*model.frontend(*batch[:2], seeds), [1, 2])
    flat, *inter = (
        criterion.flat_start(model.model.ctc_log_probs(Z), encoded.H_lens, *batch[2:])
        for Z in (encoded.H, *encoded.layers)
    )
    first, second, late = (model.loss(*batch, seeds, stage) for stage in (FIRST, SECOND, LATE))
    ctc, inter, attention = flat, sum(inter) / 2, first.terms["attention"]
    total = 0.3 * (0.7 * ctc + 0.3 * inter) + 0.7 * attention
    assert_close((first.terms["ctc"], first.terms["inter"], first.total), (ctc, inter, total))
    assert first.terms["ctc"] != second.terms["ctc"] == late.terms["ctc"]
    first, late = (model.eval().loss(*batch, stage=stage) for stage in (FIRST, LATE))
    assert first.terms["ctc"] == late.terms["ctc"]


def assert_sum_of_utterances(model, batch, atol, gradients_atol):
    """The loss and gradients of a batch are the sums of those of its utterances alone; return the loss."""
    waveforms, lens, Y, Y_lens, seeds = batch
    loss, gradients = result(model, batch)
    alone = [
        result(model, (waveforms[[n], :S], lens[[n]], Y[[n], :U], Y_lens[[n]], seeds[[n]]))
        for n, (S, U) in enumerate(zip(lens, Y_lens, strict=True))
    ]
    assert_close(loss, sum(found for found, _ in alone), rtol=1e-4, atol=atol)
    expected = {name: sum(its[name] for _, its in alone) for name in gradients}
    assert_close(gradients, expected, rtol=1e-3, atol=gradients_atol)
    return loss


def test_an_utterance_alone_has_the_loss_that_it_has_in_a_batch():
    assert_sum_of_utterances(recognizer(f"{INTER}, {CONSISTENCY}"), speech(), 1e-3, 2e-3)


def test_consistency_without_masks_is_refused():
    refused(r"^model\.consistency: got no features\.specaugment", recognizer, CONSISTENCY, None)


TERMS_OF_CTC = """
intermediate_ctc  | {layers: [1]}
consistency       | {weight: 0.2}
flat_start_epochs | 3
"""


@each("name, setting", rows(TERMS_OF_CTC))
def test_terms_of_ctc_without_ctc_are_refused(name, setting):
    conf = Path(__file__).parents[1] / "conf/english.yaml"
    none = [f"model.{term}" for term in ("intermediate_ctc=null", "consistency=null")]
    none += ["model.flat_start_epochs=0", "model.ctc_weight=0"]
    assert config.load(tasks.Experiment, conf, none).model.ctc_weight == 0
    says = f"model: {name}: .* CTC, which model.ctc_weight: 0"
    refused(says, config.load, tasks.Experiment, conf, [*none, f"model.{name}={setting}"])


# --- chunks of several sizes ----------------------------------------------------------------------

CHUNKS = "encoder: {chunk: {frames: [2, 4, whole], left: 1}}"


def test_in_training_each_utterance_draws_its_chunk_whatever_the_company():
    model, (*batch, _) = recognizer(CHUNKS), speech()
    drawn = model.model.encoder.draw_chunks(torch.arange(40)).tolist()
    seeds = torch.tensor([drawn.index(size) for size in (2, 4, WHOLE)])
    loss = assert_sum_of_utterances(model, (*batch, seeds), 1e-4, 1e-4)
    same, _ = result(model, (*batch, seeds[[0, 0, 0]]))
    assert abs(same[0] - loss[0]) > 1e-3


def test_both_views_have_the_same_chunks_and_evaluation_the_default(monkeypatch):
    model, drawn = recognizer(f"{CHUNKS}, {CONSISTENCY}"), []
    encoder, (*batch, seeds) = model.model.encoder, speech()
    draw, expected = encoder.draw_chunks, encoder.draw_chunks(seeds).tolist() * 2
    monkeypatch.setattr(encoder, "draw_chunks", lambda s: drawn.append(draw(s)) or drawn[-1])
    model.loss(*batch, seeds)
    model.loss(*batch)
    model.eval().loss(*batch, seeds)
    assert [chunks.tolist() for chunks in drawn] == [expected]


# --- all of it in a run ---------------------------------------------------------------------------

ALL = """model.encoder.layers=3
model.encoder.layer_dropout=0.2
model.encoder.attention_dropout=0.1
model.intermediate_ctc={layers: [1, 2], weight: 0.3}
model.consistency={weight: 0.2}
data.bpe_dropout=0.3
data.sorted_epochs=1
schedule={kind: wsd, warmup: 4, decay: 0.4}
training.ema=0.9
features.specaugment.from_epoch=1
model.flat_start_epochs=2
model.encoder.chunk={frames: [2, whole, 4], left: 1}
features.cmvn=utterance
training.log_every=1""".splitlines()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """The constructed corpus with a BPE tokenizer."""
    root = make_root(tmp_path_factory.mktemp("regularization"))
    texts = [utterance.text for utterance in read(root / "data/train.jsonl.gz")]
    tokenizer.train("bpe", texts, 15).save(root / "tokenizer")
    return root


@pytest.fixture(scope="module")
def whole(root):
    return root / "whole", weights(train(root, root / "whole", *ALL))


@each("stop_at", [8, 3, 12])
@slow
def test_continued_equals_uninterrupted_whatever_the_workers(root, whole, tmp_path, stop_at):
    stop(root, tmp_path / "x", stop_at, *ALL, "training.save_steps=1", "data.workers=2")
    assert_uninterrupted(root, tmp_path / "x", whole, *ALL)


def test_the_figures_are_shown(whole):
    lines = [line for line in history(whole[0]) if line["kind"] == "train"]
    assert all(line["inter"] > 0 and 0 <= line["accuracy"] <= 1 for line in lines)
    assert [line["cr"] > 0 for line in lines] == [line["epoch"] > 1 for line in lines]  # from_epoch
    log = (whole[0] / "train.log").read_text()
    assert " | ctc " in log and " inter " in log and " cr " in log


def test_characters_and_bpe_dropout_are_refused_before_training(root, tmp_path):
    tokenizer.train("characters", ["LOW MID HIGH"]).save(tmp_path / "characters")
    says, change = r"^data\.bpe_dropout: got 0\.3, expected 0: ", f"tokenizer={tmp_path}/characters"
    refused(says, train, root, tmp_path / "x", *ALL, change)
    assert not (tmp_path / "x").exists()


def load(root, *overrides):
    return config.load(tasks.Experiment, root / "x.yaml", [*ALL, "training.epochs=3", *overrides])


def speech_task(root, *overrides):
    """The task of a run, as training and the look before it make it."""
    settings = load(root, *overrides)
    model = build(settings)
    examples = settings.read(model)
    return settings.task(model, examples.train, examples.dev)


def test_the_first_epochs_are_sorted_and_no_others(root):
    task, order = speech_task(root, "data.sorted_epochs=2"), []
    for epoch in range(4):
        durations = task.train.durations(task.seed, epoch, task.data.speeds)
        planned = [durations[n] for step in task.plan(epoch, 1) for batch in step for n in batch]
        order.append(planned == sorted(planned))
    assert order == [True, True, False, False]


@each("epochs, flat", [(1, 0), (3, 2), (20, 9)])
def test_a_flat_start_leaves_ctc_the_last_epoch(root, epochs, flat):
    task = speech_task(root, "model.flat_start_epochs=9", f"training.epochs={epochs}")
    assert task.model.model.flat_start_epochs == flat


def test_training_reads_other_token_ids_each_epoch_and_validation_the_plain_ones(root):
    """What CTC has for an utterance are its frames at the fastest speed, whichever is drawn."""
    task = speech_task(root)
    batches = [batch for epoch in range(3) for batch in task.load(epoch, [[n] for n in range(9)])]
    rows = [batch.Y[0, : batch.Y_lens[0]].tolist() for batch in batches]
    assert any(rows[n] != rows[9 + n] for n in range(9))
    decode = task.model.tokenizer.decode
    assert [decode(row) for row in rows] == 3 * [task.train.utterances.texts[n] for n in range(9)]
    shortest = [int(u.duration / 1.1 * 8000 + 1e-6) for u in task.train.utterances]
    frames = [task.model.encoder_frames(n) for n in shortest]
    assert task.train.segmentation.frames.tolist() == frames
    assert task.dev.segmentation is None


def test_the_look_before_training_computes_what_late_epochs_do(root, monkeypatch):
    met, loss = [], RecognizerTask.loss

    def spy(self, model, batch, stage):
        made = loss(self, model, batch, stage)
        met.append((float(made.terms["cr"]) > 0, stage.epoch >= model.model.flat_start_epochs))
        return made

    monkeypatch.setattr(RecognizerTask, "loss", spy)
    assert preflight.check(load(root)).measurement is not None
    assert met == [(True, True)] * 3
