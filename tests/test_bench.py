"""Prove that the benchmarks of scripts/bench do what they say on our side; peers need their own environments.

Tiny sizes; the expected values are constructed, and the worker's check is shown to refuse a search that ends early.
"""

import importlib
import types
from pathlib import Path

import pytest
import torch

BENCH = Path(__file__).parents[1] / "scripts" / "bench"
NAMES = ("workload", "ours", "worker", "worker_ours", "decode", "search_parts", "report", "load")


@pytest.fixture
def bench(monkeypatch):
    """The scripts as modules, with a model of tiny sizes."""
    monkeypatch.syspath_prepend(BENCH)
    modules = types.SimpleNamespace(**{name: importlib.import_module(name) for name in NAMES})
    sizes = {"ENCODER_LAYERS": 1, "DECODER_LAYERS": 1, "D_MODEL": 8, "HEADS": 2, "FF": 8, "CHANNELS": 2}
    for name, value in {**sizes, "MELS": 16, "VOCABULARY": 40}.items():
        monkeypatch.setattr(modules.workload, name, value)
    torch.manual_seed(0)
    return modules


@pytest.fixture
def ours(bench):
    """Our implementation."""
    return bench.worker_ours.Ours(types.SimpleNamespace(device="cpu", precision="fp32"))


def batch(bench, workload="eight"):
    """One batch of all utterances."""
    return bench.workload.pad(bench.workload.features(workload))


@pytest.mark.parametrize("part", ["encoder", "attention", "joint"])
def test_every_search_takes_all_steps_and_never_ends_early(bench, ours, part):
    assert bench.worker.measure(ours, [batch(bench)] * 2, part, "cpu") > 0
    assert ours.steps == (0 if part == "encoder" else 2 * bench.workload.STEPS)


def test_a_search_that_ends_early_is_refused(bench, ours):
    with torch.no_grad():
        ours.model.decoder.out.bias[ours.model.sos_eos] = -bench.workload.NEVER
    with pytest.raises(AssertionError, match="decoder steps"):
        bench.worker.measure(ours, [batch(bench)], "attention", "cpu")


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
    monkeypatch.setattr(bench.search_parts, "now", lambda device: next(ticks))  # a second a look at the clock
    args = types.SimpleNamespace(device="cpu", precision="fp32", mode="joint", repeats=1)
    parts, _ = bench.search_parts.measure_shares(bench.ours.build(), args)
    assert {"encoder", "attention step", "ctc step", "ctc score"} < set(parts)
    looks = sum(seconds for name, seconds in parts.items() if name != "bookkeeping")  # one a call
    assert parts["bookkeeping"] == looks + 1  # between two calls one more


def test_a_busy_sample_is_taken_again_and_the_quietest_counts(bench, monkeypatch):
    monkeypatch.setattr(bench.decode, "PAUSE", 0)
    loads = iter([(9.0, 1.5), (5.0, 0.3), (7.0, 0.9), (4.0, 0.0)])

    class Worker:
        def ask(self, request):
            seconds, foreign = next(loads)
            return {"seconds": seconds}, bench.load.Load(foreign, 0.0)

    row = bench.decode.Row("eight", "joint", "ours")
    row.sample(Worker(), {}, busy=0.1, tries=3)
    assert row.seconds == [5.0] and row.busiest == 0.3 and len(row.samples) == 3
    row.sample(Worker(), {}, busy=0.1, tries=3)
    assert row.seconds == [5.0, 4.0] and row.median == 4.5


def test_ratios_are_to_ours_and_leave_the_encoder_out(bench):
    def row(part, name, seconds):
        return bench.decode.Row("eight", part, name, [{"seconds": seconds, "kept": True, "foreign": 0, "steal": 0}])

    rows = [
        row("encoder", "ours", 1.0),
        row("encoder", "peer", 2.0),
        row("joint", "ours", 2.2),
        row("joint", "peer", 8),
    ]
    joint = bench.decode.summary(rows)[3]
    assert joint["ratio"] == pytest.approx(8 / 2.2) and joint["ms_ratio"] == pytest.approx(6 / 1.2)
    assert joint["ms"] == pytest.approx(1000 * 6 / (30 * 8))
    assert bench.decode.lay_out(bench.decode.summary(rows)).splitlines()[4].split()[-3:] == ["25.00", "5.00", "0.00"]


def test_load_counts_the_own_process_as_own(bench):
    mark, own = bench.load.Mark, {"busy": 5.0, "steal": 1.0}
    later = mark(clock=12.0, busy=8.0, steal=1.5, own=2.5)
    assert mark(clock=10.0, own=0.5, **own).until(later) == bench.load.Load(foreign=0.5, steal=0.25)
