"""Prove that the benchmarks of scripts/bench do what they say on our side; peers need their own environments.

Tiny sizes; the expected values are constructed, and the worker's check is shown to refuse a search that ends early.
"""

import argparse
import itertools
import sys
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
import torch.nn.functional as F
from pytest import approx
from small import each, options, rows, slow
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from asr.training.layers import recompute
from scripts.bench import (
    augment,
    decode,
    decode_ours,
    decoding,
    features,
    features_worker,
    gpu,
    kernels,
    load,
    memory,
    ours,
    place,
    pretrained,
    pretrained_training,
    search_parts,
    subsampling,
    train,
    train_ours,
    training,
    turns,
    workload,
)

SIZES = options("""ENCODER_LAYERS: 1, DECODER_LAYERS: 1, D_MODEL: 8, HEADS: 2, FF: 8, CHANNELS: 2,
    MELS: 16, VOCABULARY: 40""")
ARGS = SimpleNamespace(
    **options("""
    device: cpu, precision: fp32, compile: 0, mode: joint, repeats: 1""")
)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for size in SIZES.items():
        monkeypatch.setattr(workload, *size)
    torch.manual_seed(0)


def batch():
    """One batch of all utterances."""
    return workload.pad(workload.features("eight"))


@each("part", ["encoder", "attention", "joint"])
def test_every_search_takes_all_steps_and_never_ends_early(part):
    implementation = decode_ours.Ours(ARGS)
    assert decoding.measure(implementation, [batch()] * 2, part, "cpu") > 0
    assert implementation.steps == (0 if part == "encoder" else 2 * workload.STEPS)


def test_a_search_that_ends_early_is_refused():
    implementation = decode_ours.Ours(ARGS)
    model = implementation.model
    model.decoder.out.bias.data[model.sos_eos] = -workload.NEVER
    with pytest.raises(AssertionError, match="decoder steps"):
        decoding.measure(implementation, [batch()], "attention", "cpu")


@each("name", ["search", "ours", "espnet", "torchaudio", "lhotse"])
def test_batches_hold_every_utterance_once(name):
    """Of torchaudio's and lhotse's features one each; of the search as many as fit into 120 s."""
    seconds = workload.SECONDS["many"]
    batches = ours.batches(seconds, 120.0) if name == "search" else features.batches(name, 120.0)
    assert sorted(sum(map(list, batches), [])) == list(range(len(seconds)))
    assert (max(map(len, batches)) == 1) == (name in ("torchaudio", "lhotse"))
    assert max(max(seconds[n] for n in batch) * len(batch) for batch in batches) <= 120.0


def test_workloads_are_as_long_as_the_documentation_says():
    eight, many = workload.SECONDS["eight"], workload.SECONDS["many"]
    assert sum(eight) == approx(62.0) and len(eight) == 8
    assert sum(many) == approx(864.0, abs=0.1) and len(many) == 64
    assert (min(many), max(many)) == (2.0, 25.0)


def test_parts_and_bookkeeping_make_up_the_whole(monkeypatch):
    ticks = itertools.count()  # a second a look at the clock
    monkeypatch.setattr(search_parts, "now", lambda device: next(ticks))
    parts, _ = search_parts.measure_shares(ours.build_endless(), ARGS)
    bookkeeping = parts.pop("bookkeeping")
    assert {"encoder", "attention step", "ctc step", "ctc score"} <= set(parts)
    assert bookkeeping == sum(parts.values()) + 1  # one a call, and between two calls one more


def test_a_busy_sample_is_taken_again_and_the_quietest_counts(monkeypatch):
    monkeypatch.setattr(turns, "PAUSE", 0)
    loads = [(9.0, 1.5), (5.0, 0.3), (7.0, 0.9), (4.0, 0.0)]
    answers = [({"seconds": seconds}, load.Load(foreign, 0.0)) for seconds, foreign in loads]
    row, worker = turns.Row("eight", "joint", "ours"), Mock()
    worker.ask.side_effect = answers
    row.sample(worker, {}, busy=0.1, tries=3)
    assert row.seconds == [5.0] and row.busiest == 0.3 and len(row.samples) == 3
    row.sample(worker, {}, busy=0.1, tries=3)
    assert row.seconds == [5.0, 4.0] and row.median == 4.5


def row(part, name, seconds, **more):
    sample = {"seconds": seconds, "kept": True, "foreign": 0, "steal": 0}
    return turns.Row("eight", part, name, [sample | more])


def test_ratios_are_to_ours_and_leave_the_encoder_out():
    encoders = row("encoder", "ours", 1.0), row("encoder", "peer", 2.0)
    lines = decode.summary([*encoders, row("joint", "ours", 2.2), row("joint", "peer", 8)])
    joint = [lines[3][name] for name in ("ratio", "ms_ratio", "ms")]
    assert joint == approx([8 / 2.2, 6 / 1.2, 1000 * 6 / (30 * 8)])
    assert decode.lay_out(lines).splitlines()[4].endswith(" 25.00   5.00    0.00")


# other ways to compute, and memory


class Names(TorchDispatchMode):
    """Note the names of the operations that are computed."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.found.append(func.name())
        return func(*args, **(kwargs or {}))


WAYS = [(kernels.PackedLinear, "mkldnn::", 1e-5), (kernels.Int8, "quantized::", 0.1)]


@each("kind, operation, off", WAYS)
def test_linear_maps_are_computed_in_another_way_all_but_the_subsamplings(kind, operation, off):
    """A CPU may round the packed products as it rounds the others, so their operations tell them apart."""
    model, (X, X_lens) = ours.build_endless(), batch()
    with torch.no_grad():
        expected = model.encoder(X, X_lens).H
        other = kernels.replaced(kind, model)
        with Names() as names:
            change = (other.encoder(X, X_lens).H - expected).abs().max()
    left = [name for name, module in other.named_modules() if isinstance(module, torch.nn.Linear)]
    assert left == ["encoder.subsampling.project"] and change < off
    assert sum(name.startswith(operation) for name in names.found) == 6
    assert sum(isinstance(module, kind) for module in other.modules()) == 6 + 10 + 2


def test_ways_are_beside_eager_and_those_without_texts_have_none():
    seconds = options("eager: {encoder: [2.0, 3.0, 9.0]}, frozen: {encoder: [1.5, 1.0, 9.9]}")
    texts = options("eager: {posteriors: 0.0, alone: 1.0e-5, changed: 0.01, wer: 0.1}")
    eager, frozen = kernels.rows(seconds, texts)
    assert eager[1:4] == ["3.00", "2.00-9.00", "1.00"] and frozen[3] == "0.50"
    assert "1.00" in eager[4:] and set(frozen[4:]) == {"-"}
    assert len(eager) == len(frozen) == len(kernels.HEADS)


def test_a_layer_that_is_recomputed_keeps_its_input_alone(monkeypatch):
    def kept(layers):
        monkeypatch.setattr(workload, "ENCODER_LAYERS", layers)
        model = ours.build()
        recompute(model)
        with FakeTensorMode(allow_non_fake_inputs=True):
            memory.move(model)
            return memory.kept(model, workload.MELS, 3)

    frames = ((round(100 * memory.SECONDS) - 1) // 2 - 1) // 2
    assert kept(3) - kept(1) == 2 * 3 * frames * workload.D_MODEL * 2  # two layers, bf16


def test_a_separable_subsampling_gives_as_many_frames_by_kernels_that_channels_share():
    full, separable = (subsampling.build(3, kind).encoder.subsampling for kind in (False, True))
    X, X_lens = batch()
    assert separable(X, X_lens)[0].shape == full(X, X_lens)[0].shape
    first, _, by_channel, across, _ = separable.convolutions
    X, matrix = torch.randn(1, 3, 9, 9), across.weight[:, :, 0, 0]
    kernel = torch.einsum("oc,cij->ocij", matrix, by_channel.weight[:, 0])
    bias = across.bias + matrix @ by_channel.bias
    assert_close(across(by_channel(X)), F.conv2d(X, kernel, bias, full.convolutions[2].stride))
    assert first.out_channels == 3 and SIZES["CHANNELS"] == workload.CHANNELS


# training


@pytest.fixture
def trained():
    """Our implementation of training, and its batch; the CPU is left as it was."""
    implementation = train_ours.Ours(ARGS)
    yield implementation, list(training.whole("eight"))
    implementation.tuned.close()


def test_the_batch_of_training_holds_all_frames_and_20_to_40_labels_each():
    X, X_lens, Y, Y_lens = training.whole("eight")
    assert X_lens.tolist() == [round(100 * s) for s in workload.SECONDS["eight"]]
    assert X.shape == (8, 1100, 16)
    assert Y_lens.min() >= 20 and Y_lens.max() == Y.size(1) <= 40
    padding = torch.arange(Y.size(1)) >= Y_lens[:, None]
    assert (Y[padding] == workload.IGNORE).all()
    assert Y[~padding].min() >= 2 and Y[~padding].max() < 39


def test_steps_of_training_lower_the_loss(trained):
    answers = [training.measure(*trained, "cpu") for _ in range(3)]
    assert answers[0]["loss"] > answers[1]["loss"] > answers[2]["loss"]
    assert answers[0]["parameters"] == sum(p.numel() for p in trained[0].model.parameters())
    assert answers[0]["seconds"] > 0 and answers[0]["peak_mb"] > 100


def test_a_step_of_training_is_asr_trains(trained):
    """The gradient is that of the mean per token, clipped; Adam's first step is its sign times the learning rate."""
    implementation, batch = trained
    parameters = list(implementation.model.parameters())

    def flat(tensors):
        return torch.cat([tensor.detach().flatten() for tensor in tensors])

    before = flat(parameters)
    implementation.step(*batch)
    after, g = flat(parameters), flat(p.grad for p in parameters)
    assert g.norm() <= workload.CLIP * 1.0001
    moved = g.abs() > 1e-6  # beside Adam's eps
    assert_close((before - after)[moved], training.LR * g.sign()[moved], rtol=0.01, atol=1e-7)


def test_a_loss_that_is_no_number_is_refused(trained):
    trained[0].model.ctc_out.bias.data.fill_(torch.nan)
    with pytest.raises(AssertionError, match="loss of nan"):
        training.measure(*trained, "cpu")


def test_operations_are_those_of_products_forward_and_backward():
    linear, X = torch.nn.Linear(5, 7), torch.randn(3, 5)
    implementation = SimpleNamespace(loss=lambda X: linear(X).sum())
    product = 2 * 3 * 5 * 7
    assert training.count_flops(implementation, [X]) == 2 * product  # X needs no gradient
    assert training.count_flops(implementation, [X.requires_grad_()]) == 3 * product


def training_rows(parameters=1000, losses=(3.0, 2.0)):
    """Ours and a peer's with two samples each, of which the arguments are the peer's."""

    def training(name, seconds, parameters, first, last):
        found = row("step", name, seconds, parameters=parameters, loss=first, peak_mb=10)
        found.samples.append(found.samples[0] | {"loss": last, "peak_mb": 20, "flops": 6e9})
        return found

    return training("ours", 2.0, 1000, 3.0, 2.0), training("peer", 3.0, parameters, *losses)


def test_rates_of_training_come_from_audio_and_operations():
    rows = training_rows(parameters=1009)
    train.check(rows)
    ours, peer = train.summary(rows)
    assert (ours["speed"], ours["rate"], ours["peak_mb"]) == approx((31.0, 3e9, 20))
    assert peer["ratio"] == approx(1.5) and peer["losses"] == [3.0, 2.0]
    assert train.lay_out([ours], peak_tflops=0.03).splitlines()[1].split()[-5] == "10.0"


MISTAKES = """
parameters: 1011   | peer has 1011 parameters
losses: [3.0, 3.0] | loss of peer went from 3.000 to 3.000
"""


@each("changes, message", rows(MISTAKES))
def test_models_of_other_sizes_and_losses_that_do_not_fall_are_refused(changes, message):
    with pytest.raises(SystemExit, match=message):
        train.check(training_rows(**options(changes)))


def test_a_pretrained_encoder_is_timed_as_transformers_computes_it(monkeypatch, tmp_path):
    transformers = pytest.importorskip("transformers")
    from scripts.bench import pretrained_ours

    sizes = options("""hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 16,
        conv_dim: [8, 8, 8, 8, 8, 8, 8], num_conv_pos_embedding_groups: 2""")
    monkeypatch.setattr(pretrained, "SIZES", sizes)
    monkeypatch.setattr(pretrained, "SOURCE", tmp_path / "source")
    monkeypatch.setitem(workload.SECONDS, "eight", (0.9, 0.7))
    pretrained.write_source()
    loss = pretrained_training.Loss(*pretrained_ours.build(str(tmp_path / "source")))
    batch = training.whole("eight", workload.waveforms)
    reference = transformers.AutoModel.from_pretrained(tmp_path / "source").eval()
    prepare = transformers.AutoFeatureExtractor.from_pretrained(tmp_path / "source")
    for n, x in enumerate(workload.waveforms("eight")):
        own = prepare(
            x.numpy(), sampling_rate=workload.SAMPLE_RATE, return_tensors="pt"
        ).input_values
        expected = reference(own).last_hidden_state
        H = loss.eval().encoder(*batch[:2])[n, None, : expected.size(1)]
        assert_close(H, expected, rtol=1e-4, atol=1e-4)
    step = training.Plain(loss, ARGS)
    answers = [training.measure(step, [*batch], "cpu") for _ in range(3)]
    assert answers[0]["loss"] > answers[1]["loss"] > answers[2]["loss"]


# features and the rest


@each("added", [0.0, 0.5])
def test_a_difference_from_kaldis_features_is_found(monkeypatch, added):
    fbank = features_worker.ours()
    monkeypatch.setitem(workload.SECONDS, "many", (0.5, 0.3))
    theirs = lambda w, lens: fbank(w, torch.tensor([w.size(1)]))[0] + added  # noqa: E731
    monkeypatch.setattr(features_worker, "torchaudio", lambda: theirs)
    assert features.difference() == approx(added, abs=1e-4)


def test_the_folder_of_the_figures_is_made_before_measuring(tmp_path):
    path = str(tmp_path / "exp/one.json")
    assert place.output(path) == path and (tmp_path / "exp").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(argparse.ArgumentTypeError, match="file: can't write into this folder"):
        place.output(str(tmp_path / "file/one.json"))


def test_names_on_the_command_line_must_be_known():
    read = turns.names(("espnet", "speechbrain"))
    assert read("") == [] and read("speechbrain,espnet") == ["speechbrain", "espnet"]
    expected = "got 'kaldi', expected some of espnet, speechbrain"
    with pytest.raises(argparse.ArgumentTypeError, match=expected):
        read("espnet,kaldi")


def test_a_worker_runs_the_scripts_of_its_checkout(tmp_path):
    folder = tmp_path / "scripts" / "bench"
    folder.mkdir(parents=True)
    (folder / "worker.py").write_text("import os, sys\nos.write(int(sys.argv[2][10:]), b'[1]\\n')")
    checkout = turns.checkout(tmp_path)
    assert turns.Worker("x", sys.executable, "worker", {"threads": 1}, checkout).description == [1]
    with pytest.raises(argparse.ArgumentTypeError, match="no checkout"):
        turns.checkout(folder)


def test_load_counts_the_own_process_as_own():
    before = load.Mark(**options("clock: 10.0, busy: 5.0, steal: 1.0, own: 0.5"))
    later = load.Mark(**options("clock: 12.0, busy: 8.0, steal: 1.5, own: 2.5"))
    assert before.until(later) == load.Load(foreign=0.5, steal=0.25)


def test_each_way_of_augmentation_does_what_its_name_says(tmp_path):
    args = SimpleNamespace(**options("rate: 8000, utterances: 2, seconds: 0.5, repeats: 1"))
    read = {way: data[[0, 1]] for way, data in augment.datasets(tmp_path, args).items()}
    assert list(read) == ["none", "speed", "reverberation", "noise", "volume", "all"]
    plain = read["none"]
    for way, batch in read.items():
        assert (batch.wave_lens != plain.wave_lens).all() == (way in ("speed", "all"))
        assert torch.equal(batch.waveforms, plain.waveforms) == (way == "none")
    found = augment.measure(args)
    assert set(found) == set(read) and min(found.values()) > 0


@slow
def test_the_gpus_benchmark_runs_at_toy_size_and_passes_over_what_is_done(tmp_path, capsys):
    made, toy = tmp_path / "check-transformer.json", ["--out", str(tmp_path), "--toy"]
    gpu.main([*toy, "--minutes", "0"])
    assert "Not measured yet: check-conformer" in capsys.readouterr().out
    first = made.stat().st_mtime_ns
    (tmp_path / "check-rotary.json").write_text('{"error": "planted"}')
    gpu.main(toy)
    table = capsys.readouterr().out
    assert made.stat().st_mtime_ns == first
    assert "- check-rotary: planted" in table and "Not measured" not in table
    assert table.count("6 of 6 searches | True |") == 3
    for name in ("train", "decode", "profile"):
        assert f"## {name}\n" in table
