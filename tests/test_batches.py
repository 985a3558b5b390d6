"""Prove the batches: all utterances once, the same again from the same seed, whatever the workers and the company.

Expected values are constructed from sound files of known samples; the rest are laws.
"""

import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from asr.data.bucketing import plan
from asr.data.columns import Ragged, Table
from asr.data.dataset import Batch, Segmentation, SpeechDataset, collate, load, read_ahead_limits
from asr.data.manifest import Utterance
from asr.data.validate import frames_needed
from asr.seeding import utterance_seed
from asr.tasks.utterances import Split
from asr.text.bpe_dropout import BPEDropout

RATE = 8000


def librispeech(count, seed=1):
    """Seconds as LibriSpeech's: two thirds about 14.5, the others evenly from 1.4 to 14, a few up to 35."""
    rng = np.random.default_rng(seed)
    seconds = np.where(
        rng.random(count) < 0.65, rng.normal(14.5, 1.3, count), rng.uniform(1.4, 14, count)
    )
    return np.where(rng.random(count) < 2e-4, rng.uniform(17, 35, count), seconds.clip(1.4, 17))


def padding(lengths, batches):
    return 1 - lengths.sum() / sum(len(batch) * lengths[batch].max() for batch in batches)


@settings(deadline=None, max_examples=100, derandomize=True)
@given(
    st.lists(st.floats(0.1, 30), min_size=1, max_size=60),
    st.floats(5, 200),
    st.integers(0, 9),
    st.integers(0, 9),
    st.integers(1, 5),
)
def test_a_plan_holds_every_example_once_and_no_batch_is_too_long(
    lengths, most, seed, epoch, accumulate
):
    steps = plan(lengths, most, seed, epoch, accumulate)
    batches = [batch for step in steps for batch in step]
    assert sorted(n for batch in batches for n in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or max(lengths[n] for n in batch) * len(batch) <= most
    assert (
        sorted(len(step) for step in steps)[1:] == [accumulate] * (len(steps) - 1)
        and len(steps[0]) <= accumulate
    )
    assert steps == plan(np.array(lengths), most, seed, epoch, accumulate)


@pytest.mark.parametrize("shortest", [1, 9])
def test_a_batch_ends_where_one_more_would_be_too_many(shortest):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        lengths, most = rng.uniform(shortest, 10, 200), rng.uniform(5, 200)
        [batches] = plan(
            lengths, most, seed, 0, accumulate=200
        )  # one step: batches in order of length
        padded = [len(batch) * lengths[batch].max() for batch in batches if len(batch) > 1]
        with_one_more = [
            (len(batch) + 1) * lengths[[*batch, following[0]]].max()
            for batch, following in zip(batches, batches[1:], strict=False)
        ]
        assert max(padded, default=0) <= most < min(with_one_more)


def test_other_seeds_and_epochs_give_other_batches_and_another_order():
    lengths = np.random.default_rng(1).uniform(1, 15, 200)
    plans = [plan(lengths, 60, seed, epoch) for seed in (1, 2) for epoch in (0, 1)]
    assert len({str(p) for p in plans}) == 4
    assert (
        len({str(sorted(sorted(batch) for [batch] in p)) for p in plans}) == 4
    )  # other company, not only order


def test_the_batches_of_a_step_are_neighbors_in_length_and_steps_are_shuffled():
    lengths = librispeech(4000)
    steps = plan(lengths, 120, 1, 0, accumulate=4)
    longest = [[lengths[batch].max() for batch in step] for step in steps]
    spread = [max(step) / min(step) for step in longest if len(step) == 4]
    assert np.median(spread) < 1.05
    assert abs(np.corrcoef([max(step) for step in longest], range(len(steps)))[0, 1]) < 0.3
    single = plan(lengths, 120, 1, 0)  # accumulation joins the same batches
    assert sorted(batch for step in steps for batch in step) == sorted(batch for [batch] in single)


@pytest.mark.parametrize("accumulate", [1, 4])
def test_an_ascending_plan_is_sorted(accumulate):
    lengths = librispeech(1000)
    steps = plan(lengths, 120, 1, 0, accumulate, ascending=True)
    order = [n for step in steps for batch in step for n in batch]
    assert lengths[order].tolist() == sorted(lengths) and sorted(order) == list(range(1000))
    assert [len(step) for step in steps[:-1]] == [accumulate] * (len(steps) - 1)
    assert all(len(batch) * lengths[batch].max() <= 120 for step in steps for batch in step)


@pytest.mark.parametrize("most", [100, 300, 1000])
def test_little_is_padding(most):
    lengths = librispeech(4000)
    batches = [batch for [batch] in plan(lengths, most, 1, 0)]
    assert padding(lengths, batches) < 0.08
    assert len(batches) < 1.15 * lengths.sum() / most + 1


def test_no_examples_no_steps():
    assert plan([], 60, 1, 0) == []


def test_collate_pads_waveforms_with_zeros_and_labels_with_minus_one():
    waveforms = [
        np.array([0.5, -0.5, 0.25], np.float32),
        np.array([1.0], np.float32),
        np.array([0.1, 0.2], np.float32),
    ]
    batch = collate(["a", "b", "c"], waveforms, [[3], [1, 2], []], torch.tensor([7, 8, 9]))
    assert batch.ids == ["a", "b", "c"]
    assert_close(batch.waveforms, torch.tensor([[0.5, -0.5, 0.25], [1.0, 0, 0], [0.1, 0.2, 0]]))
    assert_close(batch.Y, torch.tensor([[3, -1], [1, 2], [-1, -1]]))
    assert_close(
        (batch.wave_lens, batch.Y_lens), (torch.tensor([3, 1, 2]), torch.tensor([1, 2, 0]))
    )
    assert batch.Y.dtype == torch.int64 and batch.waveforms.dtype == torch.float32
    moved = batch.to(torch.device("meta"))
    assert moved.ids == batch.ids and moved.Y.device.type == moved.seeds.device.type == "meta"


def test_collate_rounds_sizes_up():
    waveforms = [np.ones(n, np.float32) for n in (3, 11)]
    batch = collate(["a", "b"], waveforms, [[3], [1, 2, 4]], torch.tensor([7, 8]), (8, 4))
    assert batch.waveforms.shape == (2, 16) and batch.Y.shape == (2, 4)
    assert batch.waveforms.sum() == 14 and (batch.Y >= 0).sum() == 4


@pytest.mark.parametrize("lens", [[3, 11], [1, 2, 20], [20, 1, 1, 9], [5] * 7])
@pytest.mark.parametrize("multiples", [(1, 1), (8, 4)])
def test_halves_are_the_batches_of_their_examples(lens, multiples):
    examples = [
        (f"u{n}", np.full(k, 0.1 * k, np.float32), [n + 1] * (k % 6)) for n, k in enumerate(lens)
    ]
    seeds = torch.arange(len(lens))

    def batch(part):
        return collate(*map(list, zip(*examples[part], strict=True)), seeds[part], multiples)

    first, second = batch(slice(None)).halves()
    middle = len(lens) // 2
    for got, part in ((first, slice(middle)), (second, slice(middle, None))):
        expected = batch(part)
        assert (got.ids, got.multiples) == (expected.ids, expected.multiples)
        assert_close(tensors(got), tensors(expected), rtol=0, atol=0)


def test_one_example_cannot_be_halved():
    alone = collate(["a"], [np.ones(3, np.float32)], [[3]], torch.tensor([7]))
    with pytest.raises(ValueError, match="a batch of 1 can't be halved"):
        alone.halves()


@pytest.fixture(scope="module")
def utterances(tmp_path_factory):
    """Twelve recordings of noise, 0.3 to 1.4 s; their labels are their numbers."""
    folder, rng = tmp_path_factory.mktemp("recordings"), np.random.default_rng(1)
    made = []
    for n in range(12):
        samples = int(RATE * (0.3 + 0.1 * n))
        soundfile.write(folder / f"{n}.wav", rng.uniform(-0.5, 0.5, samples), RATE, subtype="FLOAT")
        made.append(
            Utterance(
                f"u{n}", str(folder / f"{n}.wav"), RATE, samples, 1, 0.0, samples / RATE, str(n)
            )
        )
    return made


def dataset(utterances, **changes):
    options = {"seed": 1, "epoch": 2, "speeds": [0.9, 1.0, 1.1]} | changes
    return SpeechDataset(
        utterances, [[n + 1] * (n + 1) for n in range(len(utterances))], RATE, **options
    )


def batches_of(utterances):
    return [batch for [batch] in plan([u.duration for u in utterances], 4.0, 1, 2)]


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
    assert (
        [b.ids for b in got]
        == [b.ids for b in expected]
        == [[f"u{n}" for n in batch] for batch in order]
    )
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
    drawn = torch.cat(
        [dataset(utterances, epoch=epoch)[list(range(12))].wave_lens for epoch in range(40)]
    )
    lengths = torch.tensor([u.samples for u in utterances]).repeat(40)
    counts = torch.stack(
        [((drawn - lengths / speed).abs() <= 1).sum() for speed in (0.9, 1.0, 1.1)]
    )
    assert (
        counts.sum() == 480 and counts.min() > 110
    )  # 160 each, five standard deviations below at most


def test_what_is_planned_is_what_is_read(utterances):
    split = Split(Table.of(utterances), Ragged.of_ids([[1]] * 12, 3))
    speeds = [0.5, 1.0, 2.0]
    for epoch in range(3):
        planned = split.durations(1, epoch, speeds)
        read = SpeechDataset(split.utterances, split.labels, RATE, 1, epoch, speeds)[
            list(range(12))
        ]
        assert_close(torch.from_numpy(planned * RATE), read.wave_lens.double(), rtol=0, atol=1)


def test_a_table_serves_as_a_list_does(utterances):
    labels = [[n + 1] * (n + 1) for n in range(12)]
    from_lists, from_table = (
        SpeechDataset(*data, RATE, 1, 2, [0.9, 1.1])[[3, 7, 0]]
        for data in ((utterances, labels), (Table.of(utterances), Ragged.of_ids(labels, 700)))
    )
    assert from_lists.ids == from_table.ids
    assert_close(tensors(from_lists), tensors(from_table), rtol=0, atol=0)


def test_a_part_of_a_recording(utterances):
    whole = utterances[9]
    part = Utterance("part", whole.path, RATE, whole.samples, 1, 0.25, 0.5, "9")
    batch = SpeechDataset([part], [[1]], RATE)[[0]]
    expected = torch.from_numpy(soundfile.read(whole.path, dtype="float32")[0][2000:6000])
    assert_close(batch.waveforms[0, : batch.wave_lens[0]], expected, rtol=0, atol=0)


# --- other token ids in each epoch ----------------------------------------------------------------


def spelled(utterances, frames=99, **changes):
    """A dataset of texts 1111, whose ones are merged to 11 and ▁11 by chance; frames that CTC has for each."""
    texts = [Utterance(**vars(u) | {"text": "1" * 4}) for u in utterances]
    ids, scores = {"1": 1, "▁": 2, "11": 3, "▁11": 4}, {"11": 0.0, "▁11": -1.0}
    segmentation = Segmentation(BPEDropout(ids, scores, 0.5), np.full(len(texts), frames))
    return dataset(texts, segmentation=segmentation, **changes)


def rows(batch):
    return [y[:n].tolist() for y, n in zip(batch.Y, batch.Y_lens, strict=True)]


def test_token_ids_are_drawn_for_each_epoch_and_utterance(utterances):
    drawn = {epoch: rows(spelled(utterances, epoch=epoch)[list(range(12))]) for epoch in (2, 3)}
    assert drawn[2] != drawn[3] and len({str(y) for y in drawn[2]}) > 2
    alone = [rows(spelled(utterances)[[n]])[0] for n in range(12)]
    assert alone == drawn[2]
    spelling = {1: "1", 2: "", 3: "11", 4: "11"}
    assert {"".join(spelling[n] for n in y) for y in drawn[2]} == {"1111"}


def test_workers_end_with_the_trainer_that_left_its_batches_unread():
    program = """
import torch, asr.data.dataset
class Recordings:
    def __getitem__(self, indices): return torch.zeros(3)
torch.kept = asr.data.dataset.load(Recordings(), [[n] for n in range(99)], workers=2)
next(torch.kept)
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_workers_draw_the_same_token_ids(utterances, workers):
    order = batches_of(utterances)
    expected = [rows(spelled(utterances)[batch]) for batch in order]
    assert [rows(batch) for batch in load(spelled(utterances), order, workers)] == expected


@pytest.mark.parametrize("frames", range(2, 12))
def test_what_ctc_could_not_align_stays_as_it_was(utterances, frames):
    """The plain ids here are n + 1 times n + 1, whatever their frames: it's the caller who has checked these."""
    free = [rows(spelled(utterances)[[n]])[0] for n in range(12)]
    needed = frames_needed(Ragged.of_ids(free, 9)).tolist()
    expected = [free[n] if needed[n] <= frames else [n + 1] * (n + 1) for n in range(12)]
    assert rows(spelled(utterances, frames)[list(range(12))]) == expected


def test_what_has_no_piece_stays_as_it_was(utterances):
    texts = [Utterance(**vars(u) | {"text": "2"}) for u in utterances]
    segmentation = Segmentation(BPEDropout({"▁2": 1}, {"▁2": 0.0}, 0.9), np.full(12, 99))
    drawn = rows(dataset(texts, segmentation=segmentation)[list(range(12))])
    kept = [n for n, y in enumerate(drawn) if y == [n + 1] * (n + 1)]
    assert len(kept) > 6 and all(y == [1] for n, y in enumerate(drawn) if n not in kept)


@pytest.mark.parametrize(
    ("megabytes", "expected"), [(1000, (8, 2)), (500, (8, 1)), (64, (1, 1)), (10, (1, 1))]
)
def test_workers_read_no_more_ahead_than_shared_memory_holds(monkeypatch, megabytes, expected):
    """Batches of 450 s at 16 kHz, which a container's 64 MB hold once."""
    usage = SimpleNamespace(free=megabytes << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    assert read_ahead_limits(8, 4 * 450 * 16000) == expected
    assert read_ahead_limits(0, 1e9) == (0, None)
