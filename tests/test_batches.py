"""Prove the batches: all utterances once, the same again from the same seed, whatever the workers and the company.

Expected values are constructed from sound files of known samples; the rest are laws.
"""

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from asr.data.batches import Batch, SpeechDataset, collate, load, plan
from asr.data.manifest import Utterance
from asr.features.noise import utterance_seed

RATE = 8000


def ids(count):
    return [f"u{n}" for n in range(count)]


@settings(deadline=None, max_examples=100, derandomize=True)
@given(st.lists(st.floats(0.1, 30), min_size=1, max_size=60), st.floats(5, 200), st.integers(0, 9), st.integers(0, 9))
def test_a_plan_holds_every_utterance_once_and_no_batch_is_too_long(durations, batch_seconds, seed, epoch):
    batches = plan(durations, ids(len(durations)), batch_seconds, seed, epoch)
    assert sorted(n for batch in batches for n in batch) == list(range(len(durations)))
    for batch in batches:
        assert len(batch) == 1 or max(durations[n] for n in batch) * len(batch) <= batch_seconds
    assert batches == plan(durations, ids(len(durations)), batch_seconds, seed, epoch)


def test_other_seeds_and_epochs_give_other_batches_and_another_order():
    durations = np.random.default_rng(1).uniform(1, 15, 200)
    plans = [plan(durations, ids(200), 60, seed, epoch) for seed in (1, 2) for epoch in (0, 1)]
    assert len({str(p) for p in plans}) == 4
    assert len({str(sorted(map(sorted, p))) for p in plans}) == 4  # other company, not only another order


def test_batches_are_bucketed_and_shuffled():
    durations = np.random.default_rng(1).uniform(1, 15, 2000)
    batches = plan(durations, ids(2000), 120, 1, 0)
    padded = sum(len(batch) * durations[batch].max() for batch in batches)
    assert durations.sum() / padded > 0.8  # little padding
    assert max(len(batch) * durations[batch].max() for batch in batches) <= 120
    longest = [durations[batch].max() for batch in batches]
    assert abs(np.corrcoef(longest, range(len(longest)))[0, 1]) < 0.3  # in random order
    assert len(batches) < 1.3 * durations.sum() / 120


def test_no_utterances_no_batches():
    assert plan([], [], 60, 1, 0) == []


def test_collate_pads_waveforms_with_zeros_and_labels_with_minus_one():
    waveforms = [np.array([0.5, -0.5, 0.25], np.float32), np.array([1.0], np.float32), np.array([0.1, 0.2], np.float32)]
    batch = collate(["a", "b", "c"], waveforms, [[3], [1, 2], []], torch.tensor([7, 8, 9]))
    assert batch.ids == ["a", "b", "c"]
    assert_close(batch.waveforms, torch.tensor([[0.5, -0.5, 0.25], [1.0, 0, 0], [0.1, 0.2, 0]]))
    assert_close(batch.Y, torch.tensor([[3, -1], [1, 2], [-1, -1]]))
    assert_close((batch.wave_lens, batch.Y_lens), (torch.tensor([3, 1, 2]), torch.tensor([1, 2, 0])))
    assert batch.Y.dtype == torch.int64 and batch.waveforms.dtype == torch.float32
    moved = batch.to(torch.device("meta"))
    assert moved.ids == batch.ids and moved.Y.device.type == moved.seeds.device.type == "meta"


@pytest.fixture(scope="module")
def utterances(tmp_path_factory):
    """Twelve recordings of noise, 0.3 to 1.4 s; their labels are their numbers."""
    folder, rng = tmp_path_factory.mktemp("recordings"), np.random.default_rng(1)
    made = []
    for n in range(12):
        samples = int(RATE * (0.3 + 0.1 * n))
        soundfile.write(folder / f"{n}.wav", rng.uniform(-0.5, 0.5, samples), RATE, subtype="FLOAT")
        made.append(Utterance(f"u{n}", str(folder / f"{n}.wav"), RATE, samples, 1, 0.0, samples / RATE, str(n)))
    return made


def dataset(utterances, **changes):
    options = {"seed": 1, "epoch": 2, "speeds": [0.9, 1.0, 1.1]} | changes
    return SpeechDataset(utterances, [[n + 1] * (n + 1) for n in range(len(utterances))], RATE, **options)


def batches_of(utterances):
    return plan([u.duration for u in utterances], [u.id for u in utterances], 4.0, 1, 2)


def tensors(batch: Batch):
    return batch.waveforms, batch.wave_lens, batch.Y, batch.Y_lens, batch.seeds


def test_a_batch_holds_the_recordings(utterances):
    batch = dataset(utterances, speeds=[1.0])[[3, 0]]
    for row, n in enumerate([3, 0]):
        waveform = torch.from_numpy(soundfile.read(utterances[n].path, dtype="float32")[0])
        assert_close(batch.waveforms[row, : batch.wave_lens[row]], waveform, rtol=0, atol=0)
        assert batch.Y[row, : batch.Y_lens[row]].tolist() == [n + 1] * (n + 1)
    assert batch.ids == ["u3", "u0"]
    assert batch.seeds.tolist() == [utterance_seed(1, 2, "u3"), utterance_seed(1, 2, "u0")]


@pytest.mark.parametrize("workers", [1, 2])
def test_the_number_of_workers_changes_nothing(utterances, workers):
    order = batches_of(utterances)
    assert len(order) > 3
    expected, got = (list(load(dataset(utterances), order, n)) for n in (0, workers))
    assert [b.ids for b in got] == [b.ids for b in expected] == [[f"u{n}" for n in batch] for batch in order]
    for a, b in zip(got, expected, strict=True):
        assert_close(tensors(a), tensors(b), rtol=0, atol=0)


def test_an_utterance_is_the_same_in_any_batch(utterances):
    chosen = dataset(utterances)
    together = chosen[list(range(12))]
    for n in range(12):
        alone = chosen[[n]]
        assert alone.seeds[0] == together.seeds[n] and alone.wave_lens[0] == together.wave_lens[n]
        real = slice(0, int(together.wave_lens[n]))
        assert_close(alone.waveforms[0, real], together.waveforms[n, real], rtol=0, atol=0)
        assert not together.waveforms[n, together.wave_lens[n] :].any()


def test_seeds_and_speeds_depend_on_seed_epoch_and_id(utterances):
    plain = dataset(utterances)[list(range(12))]
    for changes in ({"seed": 3}, {"epoch": 3}):
        other = dataset(utterances, **changes)[list(range(12))]
        assert not (other.seeds == plain.seeds).any()
        assert (other.wave_lens != plain.wave_lens).any()


@pytest.mark.parametrize("speed", [0.9, 1.1, 0.5, 2.0])
def test_speed_perturbation_changes_the_length_accordingly(utterances, speed):
    batch = dataset(utterances, speeds=[speed])[list(range(12))]
    for n, utterance in enumerate(utterances):
        assert abs(int(batch.wave_lens[n]) - utterance.samples / speed) <= 1
    assert batch.waveforms.abs().max() <= 1


def test_every_speed_is_drawn_about_as_often(utterances):
    drawn = torch.cat([dataset(utterances, epoch=epoch)[list(range(12))].wave_lens for epoch in range(40)])
    lengths = torch.tensor([u.samples for u in utterances]).repeat(40)
    counts = torch.stack([((drawn - lengths / speed).abs() <= 1).sum() for speed in (0.9, 1.0, 1.1)])
    assert counts.sum() == 480 and counts.min() > 110  # 160 each, five standard deviations below at most


def test_a_part_of_a_recording(utterances):
    whole = utterances[9]
    part = Utterance("part", whole.path, RATE, whole.samples, 1, 0.25, 0.5, "9")
    batch = SpeechDataset([part], [[1]], RATE)[[0]]
    expected = torch.from_numpy(soundfile.read(whole.path, dtype="float32")[0][2000:6000])
    assert_close(batch.waveforms[0, : batch.wave_lens[0]], expected, rtol=0, atol=0)
