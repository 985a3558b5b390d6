"""Prove that the benchmarks of scripts/bench do what they say on our side; peers need their own environments.

Tiny sizes; the expected values are constructed, and the worker's check is shown to refuse a search that ends early.
"""

import argparse
import importlib
import types
from pathlib import Path

import pytest
import torch

BENCH = Path(__file__).parents[1] / "scripts" / "bench"
NAMES = (
    *("augment", "workload", "ours", "worker", "turns", "report", "load"),
    *("decoding", "decode_ours", "decode", "search_parts"),
    *("training", "train_ours", "train", "features_worker", "features"),
)


@pytest.fixture
def bench(monkeypatch):
    """The scripts as modules, with a model of tiny sizes."""
    modules = types.SimpleNamespace(
        **{name: importlib.import_module(f"scripts.bench.{name}") for name in NAMES}
    )
    sizes = {
        "ENCODER_LAYERS": 1,
        "DECODER_LAYERS": 1,
        "D_MODEL": 8,
        "HEADS": 2,
        "FF": 8,
        "CHANNELS": 2,
    }
    for name, value in {**sizes, "MELS": 16, "VOCABULARY": 40}.items():
        monkeypatch.setattr(modules.workload, name, value)
    torch.manual_seed(0)
    return modules


@pytest.fixture
def ours(bench):
    """Our implementation."""
    return bench.decode_ours.Ours(types.SimpleNamespace(device="cpu", precision="fp32"))


def batch(bench, workload="eight"):
    """One batch of all utterances."""
    return bench.workload.pad(bench.workload.features(workload))


@pytest.mark.parametrize("part", ["encoder", "attention", "joint"])
def test_every_search_takes_all_steps_and_never_ends_early(bench, ours, part):
    assert bench.decoding.measure(ours, [batch(bench)] * 2, part, "cpu") > 0
    assert ours.steps == (0 if part == "encoder" else 2 * bench.workload.STEPS)


def test_a_search_that_ends_early_is_refused(bench, ours):
    with torch.no_grad():
        ours.model.decoder.out.bias[ours.model.sos_eos] = -bench.workload.NEVER
    with pytest.raises(AssertionError, match="decoder steps"):
        bench.decoding.measure(ours, [batch(bench)], "attention", "cpu")


def test_batches_hold_every_utterance_once(bench):
    seconds = bench.workload.SECONDS["many"]
    batches = bench.ours.batches(seconds, 120.0)
    assert sorted(n for batch in batches for n in batch) == list(range(len(seconds)))
    assert max(max(seconds[n] for n in batch) * len(batch) for batch in batches) <= 120.0


def test_workloads_are_as_long_as_the_documentation_says(bench):
    seconds = bench.workload.SECONDS
    assert sum(seconds["eight"]) == pytest.approx(62.0) and len(seconds["eight"]) == 8
    assert sum(seconds["many"]) == pytest.approx(864.0, abs=0.1) and len(seconds["many"]) == 64
    assert (min(seconds["many"]), max(seconds["many"])) == (2.0, 25.0)


def test_parts_and_bookkeeping_make_up_the_whole(bench, monkeypatch):
    ticks = iter(range(1000))
    monkeypatch.setattr(
        bench.search_parts, "now", lambda device: next(ticks)
    )  # a second a look at the clock
    args = types.SimpleNamespace(device="cpu", precision="fp32", mode="joint", repeats=1)
    parts, _ = bench.search_parts.measure_shares(bench.ours.build_endless(), args)
    assert {"encoder", "attention step", "ctc step", "ctc score"} < set(parts)
    looks = sum(seconds for name, seconds in parts.items() if name != "bookkeeping")  # one a call
    assert parts["bookkeeping"] == looks + 1  # between two calls one more


def test_a_busy_sample_is_taken_again_and_the_quietest_counts(bench, monkeypatch):
    monkeypatch.setattr(bench.turns, "PAUSE", 0)
    loads = iter([(9.0, 1.5), (5.0, 0.3), (7.0, 0.9), (4.0, 0.0)])

    class Worker:
        def ask(self, request):
            seconds, foreign = next(loads)
            return {"seconds": seconds}, bench.load.Load(foreign, 0.0)

    row = bench.turns.Row("eight", "joint", "ours")
    row.sample(Worker(), {}, busy=0.1, tries=3)
    assert row.seconds == [5.0] and row.busiest == 0.3 and len(row.samples) == 3
    row.sample(Worker(), {}, busy=0.1, tries=3)
    assert row.seconds == [5.0, 4.0] and row.median == 4.5


def test_ratios_are_to_ours_and_leave_the_encoder_out(bench):
    def row(part, name, seconds):
        return bench.turns.Row(
            "eight", part, name, [{"seconds": seconds, "kept": True, "foreign": 0, "steal": 0}]
        )

    rows = [
        row("encoder", "ours", 1.0),
        row("encoder", "peer", 2.0),
        row("joint", "ours", 2.2),
        row("joint", "peer", 8),
    ]
    joint = bench.decode.summary(rows)[3]
    assert joint["ratio"] == pytest.approx(8 / 2.2) and joint["ms_ratio"] == pytest.approx(6 / 1.2)
    assert joint["ms"] == pytest.approx(1000 * 6 / (30 * 8))
    assert bench.decode.lay_out(bench.decode.summary(rows)).splitlines()[4].split()[-3:] == [
        "25.00",
        "5.00",
        "0.00",
    ]


# --- training -------------------------------------------------------------------------------------


@pytest.fixture
def trained(bench):
    """Our implementation of training, and its batch; the CPU is left as it was."""
    implementation = bench.train_ours.Ours(
        types.SimpleNamespace(device="cpu", precision="fp32", compile=0)
    )
    yield implementation, list(bench.training.whole("eight"))
    implementation.tuned.close()


def test_the_batch_of_training_holds_all_frames_and_20_to_40_labels_each(bench):
    X, X_lens, Y, Y_lens = bench.training.whole("eight")
    assert X_lens.tolist() == [
        round(100 * s) for s in bench.workload.SECONDS["eight"]
    ] and X.shape == (8, 1100, 16)
    assert Y_lens.min() >= 20 and Y_lens.max() == Y.size(1) <= 40
    for y, U in zip(Y, Y_lens, strict=True):
        assert y[:U].min() >= 2 and y[:U].max() < 39 and (y[U:] == bench.workload.IGNORE).all()


def test_steps_of_training_lower_the_loss(bench, trained):
    answers = [bench.training.measure(*trained, "cpu") for _ in range(3)]
    assert answers[0]["loss"] > answers[1]["loss"] > answers[2]["loss"]
    assert answers[0]["parameters"] == sum(p.numel() for p in trained[0].model.parameters())
    assert answers[0]["seconds"] > 0 and answers[0]["peak_mb"] > 100


def test_a_step_of_training_is_asr_trains(bench, trained):
    """The gradient is that of the mean per token, clipped; Adam's first step is its sign times the learning rate."""
    implementation, batch = trained
    before = [p.detach().clone() for p in implementation.model.parameters()]
    implementation.step(*batch)
    gradients = [p.grad for p in implementation.model.parameters()]
    assert torch.stack([g.norm() for g in gradients]).norm() <= bench.workload.CLIP * 1.0001
    for old, new, g in zip(before, implementation.model.parameters(), gradients, strict=True):
        moved = g.abs() > 1e-6  # beside Adam's eps
        torch.testing.assert_close(
            (old - new)[moved], bench.training.LR * g.sign()[moved], rtol=0.01, atol=1e-7
        )


def test_a_loss_that_is_no_number_is_refused(bench, trained):
    with torch.no_grad():
        trained[0].model.ctc_out.bias.fill_(torch.nan)
    with pytest.raises(AssertionError, match="loss of nan"):
        bench.training.measure(*trained, "cpu")


def test_operations_are_those_of_products_forward_and_backward(bench):
    linear, X = torch.nn.Linear(5, 7), torch.randn(3, 5)
    implementation = types.SimpleNamespace(loss=lambda X: linear(X).sum())
    assert (
        bench.training.count_flops(implementation, [X]) == 2 * 2 * 3 * 5 * 7
    )  # X needs no gradient
    assert bench.training.count_flops(implementation, [X.requires_grad_()]) == 3 * 2 * 3 * 5 * 7


def training_rows(bench, **changes):
    """Ours and a peer's with two samples each, of which changes are the peer's."""

    def row(name, seconds, parameters=1000, losses=(3.0, 2.0)):
        common = {
            "seconds": seconds,
            "kept": True,
            "foreign": 0,
            "steal": 0,
            "parameters": parameters,
        }
        samples = [
            {**common, "loss": loss, "peak_mb": mb}
            for loss, mb in zip(losses, (10, 20), strict=True)
        ]
        samples[-1]["flops"] = 6e9
        return bench.turns.Row("eight", "step", name, samples)

    return [row("ours", 2.0), row("peer", 3.0, **changes)]


def test_rates_of_training_come_from_audio_and_operations(bench):
    rows = training_rows(bench, parameters=1009)
    bench.train.check(rows)
    ours, peer = bench.train.summary(rows)
    assert (
        ours["speed"] == pytest.approx(31.0)
        and ours["rate"] == pytest.approx(3e9)
        and ours["peak_mb"] == 20
    )
    assert peer["ratio"] == pytest.approx(1.5) and peer["losses"] == [3.0, 2.0]
    assert bench.train.lay_out([ours], peak_tflops=0.03).splitlines()[1].split()[-5:-4] == ["10.0"]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"parameters": 1011}, "peer has 1011 parameters"),
        ({"losses": (3.0, 3.0)}, "loss of peer went from 3.000 to 3.000"),
    ],
)
def test_models_of_other_sizes_and_losses_that_do_not_fall_are_refused(bench, changes, message):
    with pytest.raises(SystemExit, match=message):
        bench.train.check(training_rows(bench, **changes))


# --- features -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, alone", [("ours", False), ("espnet", False), ("torchaudio", True), ("lhotse", True)]
)
def test_each_implementation_computes_features_of_every_waveform_once(bench, name, alone):
    batches = bench.features.batches(name, 120.0)
    assert sorted(n for batch in batches for n in batch) == list(range(64))
    assert all(len(batch) == 1 for batch in batches) == alone


def test_a_difference_from_kaldis_features_is_found(bench, monkeypatch):
    fbank = bench.features_worker.ours()
    monkeypatch.setitem(bench.workload.SECONDS, "many", (0.5, 0.3))
    monkeypatch.setattr(
        bench.features_worker,
        "torchaudio",
        lambda: lambda w, lens: fbank(w, torch.tensor([w.size(1)]))[0],
    )
    assert bench.features.difference() < 1e-4
    monkeypatch.setattr(
        bench.features_worker,
        "torchaudio",
        lambda: lambda w, lens: fbank(w, torch.tensor([w.size(1)]))[0] + 0.5,
    )
    assert bench.features.difference() == pytest.approx(0.5, abs=1e-3)


def test_the_folder_of_the_figures_is_made_before_measuring(bench, tmp_path):
    place = importlib.import_module("scripts.bench.place")
    assert (
        place.output(str(tmp_path / "exp/one.json")) == str(tmp_path / "exp/one.json")
        and (tmp_path / "exp").is_dir()
    )
    (tmp_path / "file").touch()
    with pytest.raises(argparse.ArgumentTypeError, match="file: can't write into this folder"):
        place.output(str(tmp_path / "file/one.json"))


# --- turns ----------------------------------------------------------------------------------------


def test_names_on_the_command_line_must_be_known(bench):
    read = bench.turns.names(("espnet", "speechbrain"))
    assert read("") == [] and read("speechbrain,espnet") == ["speechbrain", "espnet"]
    with pytest.raises(
        argparse.ArgumentTypeError, match="got 'kaldi', expected some of espnet, speechbrain"
    ):
        read("espnet,kaldi")


def test_load_counts_the_own_process_as_own(bench):
    mark, own = bench.load.Mark, {"busy": 5.0, "steal": 1.0}
    later = mark(clock=12.0, busy=8.0, steal=1.5, own=2.5)
    assert mark(clock=10.0, own=0.5, **own).until(later) == bench.load.Load(foreign=0.5, steal=0.25)


def test_each_way_of_augmentation_does_what_its_name_says(bench, tmp_path):
    args = types.SimpleNamespace(rate=8000, utterances=2, seconds=0.5, repeats=1)
    made = bench.augment.datasets(tmp_path, args)
    plain, read = made["none"][[0, 1]], {way: dataset[[0, 1]] for way, dataset in made.items()}
    assert list(read) == ["none", "speed", "reverberation", "noise", "volume", "all"]
    for way, batch in read.items():
        assert (batch.wave_lens != plain.wave_lens).all() == (way in ("speed", "all"))
        assert (
            way == "none"
            or batch.waveforms.shape != plain.waveforms.shape
            or (batch.waveforms != plain.waveforms).any()
        )
    assert (
        set(bench.augment.measure(args)) == set(read)
        and min(bench.augment.measure(args).values()) > 0
    )
