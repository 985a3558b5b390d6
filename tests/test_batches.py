"""Prove the batches: all utterances once, the same again from the same seed, whatever the workers and the company.

Expected values are constructed from sound files of known samples; the rest are laws.
"""

import shutil
import subprocess
import sys
from dataclasses import replace
from itertools import chain, pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given
from hypothesis import strategies as st
from runs import assert_same
from small import each, slow

from asr.data.batches import collate
from asr.data.bucketing import plan
from asr.data.columns import Ragged, Table
from asr.data.dataset import Segmentation, SpeechDataset
from asr.data.loading import load, read_ahead_limits
from asr.data.manifest import Utterance
from asr.data.validate import frames_needed
from asr.seeding import utterance_seed
from asr.tasks.utterances import Split
from asr.text.bpe_dropout import BPEDropout

RATE = 8000
ALL = list(range(12))


def examples(batch):
    """What a batch holds of each utterance, without padding: id, waveform, labels, seed."""
    columns = batch.ids, batch.waveforms, batch.wave_lens, batch.Y, batch.Y_lens, batch.seeds
    return [
        (name, wave[:samples].tolist(), y[:labels].tolist(), int(seed))
        for name, wave, samples, y, labels, seed in zip(*columns, strict=True)
    ]


def rows(batch):
    return [labels for _, _, labels, _ in examples(batch)]


def librispeech():
    """4000 lengths as LibriSpeech's: two thirds about 14.5, the others evenly from 1.4 to 14, a few up to 35."""
    rng, n = np.random.default_rng(1), 4000
    seconds = np.where(rng.random(n) < 0.65, rng.normal(14.5, 1.3, n), rng.uniform(1.4, 14, n))
    return np.where(rng.random(n) < 2e-4, rng.uniform(17, 35, n), seconds.clip(1.4, 17))


LENGTHS = st.lists(st.floats(0.1, 30), max_size=200, unique=True).map(np.array)


@given(LENGTHS, st.floats(5, 200), st.integers(0, 9), st.integers(1, 5))
def test_a_plan_holds_each_example_once_in_batches_that_are_full(lengths, most, seed, accumulate):

    def padded(batch):
        return len(batch) * lengths[batch].max()

    for ascending in (False, True):
        how = seed, 0, accumulate, ascending
        steps = plan(lengths.tolist(), most, *how)
        batches = list(chain(*steps))
        assert sorted(chain(*batches)) == list(range(len(lengths)))
        assert all(len(batch) == 1 or padded(batch) <= most for batch in batches)
        fewest, *others = sorted(map(len, steps)) or [0]
        assert set(others) <= {accumulate} and fewest <= accumulate
        assert steps == plan(lengths, most, *how)
        for whole in plan(lengths, most, seed, 0, 1000, ascending):  # one step, in order of length
            assert all(padded([*one, other[0]]) > most for one, other in pairwise(whole))
    assert lengths[list(chain(*batches))].tolist() == sorted(lengths)


def test_other_seeds_and_epochs_give_other_batches_and_another_order():
    lengths = np.random.default_rng(1).uniform(1, 15, 200)
    plans = [plan(lengths, 60, seed, epoch) for seed in (1, 2) for epoch in (0, 1)]
    company = {str(sorted(sorted(batch) for [batch] in p)) for p in plans}
    assert len({str(p) for p in plans}) == len(company) == 4


def test_the_batches_of_a_step_are_neighbors_in_length_and_steps_are_shuffled():
    lengths = librispeech()
    steps = plan(lengths, 120, 1, 0, accumulate=4)
    longest = [[lengths[batch].max() for batch in step] for step in steps]
    assert np.median([max(step) / min(step) for step in longest if len(step) == 4]) < 1.05
    assert abs(np.corrcoef([max(step) for step in longest], range(len(steps)))[0, 1]) < 0.3
    single = plan(lengths, 120, 1, 0)  # accumulation joins the same batches
    assert sorted(chain(*steps)) == sorted(chain(*single))


@each("most", [100, 300, 1000])
def test_little_is_padding(most):
    lengths = librispeech()
    batches = [batch for [batch] in plan(lengths, most, 1, 0)]
    assert sum(len(batch) * lengths[batch].max() for batch in batches) * 0.92 < lengths.sum()
    assert len(batches) < 1.15 * lengths.sum() / most + 1


def collated(lens, multiples, first=0):
    """A batch of waveforms of these lengths, and its examples; those of number n depend on n and its length alone."""
    facts = [(f"u{n}", [0.5**n] * k, [n + 1] * (k % 6), n) for n, k in enumerate(lens, first)]
    ids, waves, labels, seeds = map(list, zip(*facts, strict=True))
    waves = [np.array(wave, np.float32) for wave in waves]
    return facts, collate(ids, waves, labels, torch.tensor(seeds), multiples)


@each("lens", [[3, 11], [1, 2, 20], [20, 1, 1, 9], [5] * 7])
@each("multiples", [(1, 1), (8, 4)])
def test_collate_pads_and_halves_are_the_batches_of_their_examples(lens, multiples):
    facts, batch = collated(lens, multiples)
    assert examples(batch) == facts
    assert batch.Y.dtype == torch.int64 and batch.waveforms.dtype == torch.float32
    for padded, sizes, filler, multiple in (
        (batch.waveforms, batch.wave_lens, 0, multiples[0]),
        (batch.Y, batch.Y_lens, -1, multiples[1]),
    ):
        assert (padded == filler).sum() == padded.numel() - sizes.sum()
        assert padded.size(1) % multiple == 0 and 0 <= padded.size(1) - sizes.max() < multiple
    middle = len(lens) // 2
    parts = collated(lens[:middle], multiples), collated(lens[middle:], multiples, middle)
    for half, (facts, expected) in zip(batch.halves(), parts, strict=True):
        assert examples(half) == facts and half.multiples == multiples
        assert_same([half.waveforms, half.Y], [expected.waveforms, expected.Y])
    with pytest.raises(ValueError, match="a batch of 1 can't be halved"):
        collated([3], multiples)[1].halves()
    moved = batch.to(torch.device("meta"))
    assert moved.ids == batch.ids and moved.Y.device.type == moved.seeds.device.type == "meta"


@pytest.fixture(scope="module")
def utterances(tmp_path_factory):
    """Twelve recordings of noise, 0.3 to 1.4 s; their labels are their numbers."""
    folder, rng = tmp_path_factory.mktemp("recordings"), np.random.default_rng(1)
    made = []
    for n in ALL:
        path, samples = str(folder / f"{n}.wav"), int(RATE * (0.3 + 0.1 * n))
        soundfile.write(path, rng.uniform(-0.5, 0.5, samples), RATE, subtype="FLOAT")
        made.append(Utterance(f"u{n}", path, RATE, samples, 1, 0.0, samples / RATE, "1111"))
    return made


def dataset(utterances, **changes):
    options = {"seed": 1, "epoch": 2, "speeds": [0.9, 1.0, 1.1]} | changes
    labels = [[n + 1] * (n + 1) for n in range(len(utterances))]
    return SpeechDataset(utterances, labels, RATE, **options)


def spelled(utterances, frames=99, **changes):
    """Texts are 1111, whose ones are merged to 11 and ▁11 by chance; frames that CTC has for each."""
    ids, scores = {"1": 1, "▁": 2, "11": 3, "▁11": 4}, {"11": 0.0, "▁11": -1.0}
    segmentation = Segmentation(BPEDropout(ids, scores, 0.5), np.full(len(utterances), frames))
    return dataset(utterances, segmentation=segmentation, **changes)


def test_a_batch_holds_the_recordings_and_parts_of_them(utterances):
    part = replace(utterances[9], id="part", start=0.25, duration=0.5)
    batch = dataset([utterances[0], part, utterances[3]], speeds=[1.0])[[2, 0, 1]]
    waves = [soundfile.read(utterances[n].path, dtype="float32")[0].tolist() for n in (3, 0, 9)]
    seeds = [utterance_seed(1, 2, name) for name in ("u3", "u0", "part")]
    assert examples(batch) == [
        ("u3", waves[0], [3, 3, 3], seeds[0]),
        ("u0", waves[1], [1], seeds[1]),
        ("part", waves[2][2000:6000], [2, 2], seeds[2]),
    ]


@each("make", [dataset, spelled])
@each("workers", [0, 1, 2])
def test_workers_company_and_tables_change_nothing(utterances, make, workers):
    order = [batch for [batch] in plan([u.duration for u in utterances], 4.0, 1, 2)]
    together = examples(make(utterances)[ALL])
    assert len(order) > 3
    table = make(Table.of(utterances))
    for indices, got in zip(order, load(table, order, workers), strict=True):
        assert examples(got) == [together[n] for n in indices]


def test_seeds_and_speeds_depend_on_seed_epoch_and_id(utterances):
    plain = dataset(utterances)[ALL]
    for changes in ({"seed": 3}, {"epoch": 3}):
        other = dataset(utterances, **changes)[ALL]
        assert (other.seeds != plain.seeds).all() and (other.wave_lens != plain.wave_lens).any()


def test_every_speed_is_drawn_about_as_often(utterances):
    drawn = torch.stack([dataset(utterances, epoch=epoch)[ALL].wave_lens for epoch in range(40)])
    samples = torch.tensor([u.samples for u in utterances])
    counts = [int(((drawn - samples / speed).abs() <= 1).sum()) for speed in (0.9, 1.0, 1.1)]
    assert sum(counts) == 480 and min(counts) > 110  # 160 each, less five standard deviations


def test_what_is_planned_is_what_is_read(utterances):
    split = Split(Table.of(utterances), Ragged.of_ids([[699]] * 12, 700))
    speeds = [0.5, 1.0, 2.0]
    for epoch in range(3):
        planned = split.durations(1, epoch, speeds)
        read = SpeechDataset(split.utterances, split.labels, RATE, 1, epoch, speeds)[ALL]
        np.testing.assert_allclose(planned * RATE, read.wave_lens, rtol=0, atol=1)
        assert read.waveforms.abs().max() <= 1 and rows(read) == [[699]] * 12


@slow
def test_workers_end_with_the_trainer_that_left_its_batches_unread():
    program = """
import torch, asr.data.loading
class Recordings:
    def __getitem__(self, indices): return torch.zeros(3)
torch.kept = asr.data.loading.load(Recordings(), [[n] for n in range(99)], workers=2)
next(torch.kept)
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


# --- other token ids in each epoch ----------------------------------------------------------------


def test_token_ids_are_drawn_for_each_epoch_and_utterance(utterances):
    one, other = (rows(spelled(utterances, epoch=epoch)[ALL]) for epoch in (2, 3))
    assert one != other and len({str(y) for y in one}) > 2
    spelling = {1: "1", 2: "", 3: "11", 4: "11"}
    assert {"".join(spelling[n] for n in y) for y in one} == {"1111"}


@each("frames", range(2, 12))
def test_what_ctc_could_not_align_stays_as_it_was(utterances, frames):
    """The plain ids here are n + 1 times n + 1, whatever their frames: it's the caller who has checked these."""
    free = rows(spelled(utterances)[ALL])
    needed = frames_needed(Ragged.of_ids(free, 9)).tolist()
    expected = [free[n] if needed[n] <= frames else [n + 1] * (n + 1) for n in ALL]
    assert rows(spelled(utterances, frames)[ALL]) == expected


def test_what_has_no_piece_stays_as_it_was(utterances):
    texts = [replace(u, text="2") for u in utterances]
    segmentation = Segmentation(BPEDropout({"▁2": 1}, {"▁2": 0.0}, 0.9), np.full(12, 99))
    drawn = rows(dataset(texts, segmentation=segmentation)[ALL])
    others = [y for n, y in enumerate(drawn) if y != [n + 1] * (n + 1)]
    assert len(others) < 6 and all(y == [1] for y in others)


def test_workers_read_no_more_ahead_than_shared_memory_holds(monkeypatch):
    """Batches of 450 s at 16 kHz, which a container's 64 MB hold once."""
    for megabytes, expected in {1000: (8, 2), 500: (8, 1), 64: (1, 1), 10: (1, 1)}.items():
        usage = SimpleNamespace(free=megabytes << 20)
        monkeypatch.setattr(shutil, "disk_usage", lambda path, usage=usage: usage)
        assert read_ahead_limits(8, 4 * 450 * 16000) == expected
    assert read_ahead_limits(0, 1e9) == (0, None)
