"""Prove the joining of training utterances: all once, as they are alone, with pauses between; labels as of the text.

Expected values are constructed from sound files of known samples and encoded texts; the rest are laws.
"""

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from runs import (
    assert_processes_change_nothing,
    assert_same,
    assert_uninterrupted,
    experiment,
    make_root,
    stop,
    train,
    weights,
)
from small import each, slow

from asr.audio.load import load as load_sound
from asr.audio.load import resample
from asr.data import shar
from asr.data.augmentation import Augment, AugmentSettings
from asr.data.bucketing import Shards
from asr.data.columns import Ragged, Table
from asr.data.concatenation import (
    Concatenation,
    ConcatenationSettings,
    between,
    faint_noise,
    least_pause,
)
from asr.data.dataset import Segmentation, SpeechDataset, draw_speeds, utterance_seeds
from asr.data.loading import load
from asr.data.manifest import Utterance
from asr.data.prepare import prepare
from asr.data.validate import frames_needed
from asr.nn.subsampling import Strides
from asr.tasks.utterances import Split
from asr.text import tokenizer as tokenizers
from asr.text.characters import Characters
from asr.training.build import build

RATE = 8000
TEXTS = ["A B", "B", "BA AB"] * 20
CHARACTERS = Characters.train(["A B"])
OFTEN = ConcatenationSettings(probability=0.6, max_seconds=4.0)


@pytest.fixture(scope="module")
def utterances(tmp_path_factory):
    """Sixty recordings, of 0.2 to 1 s; the samples of the n-th are n + 1 over a hundred."""
    folder, made = tmp_path_factory.mktemp("joined"), []
    for n, text in enumerate(TEXTS):
        path, samples = str(folder / f"{n}.wav"), int(RATE * (0.2 + 0.2 * (n % 5)))
        soundfile.write(path, np.full(samples, (n + 1) / 100), RATE, subtype="FLOAT")
        made.append(Utterance(f"u{n}", path, RATE, samples, 1, 0.0, samples / RATE, text))
    return Table.of(made)


def split_of(utterances, settings=OFTEN, tokenizer=CHARACTERS):
    labels = Ragged.of_ids(map(tokenizer.encode, utterances.texts), tokenizer.vocabulary)
    return Split(utterances, labels, concatenation=Concatenation(settings, tokenizer, 400, 0.1))


def draw(settings, seconds, seeds, tokens=None, least=0.0, most=10**9):
    """The examples of utterances that have no sound."""
    tokens = np.ones(len(seconds), int) if tokens is None else np.asarray(tokens)
    return Concatenation(settings, CHARACTERS, most, least).draw(seconds, tokens, seeds)


def dataset(split, epoch=0, speeds=(1.0,), **more):
    rows = split.joined(1, epoch, speeds)
    return SpeechDataset(
        split.utterances, split.labels, RATE, 1, epoch, speeds, joined=rows, **more
    ), rows


SECONDS = st.lists(st.floats(0.1, 30), min_size=1, max_size=100).map(np.array)
SETTINGS = st.builds(
    ConcatenationSettings,
    probability=st.floats(0, 0.99),
    max_seconds=st.floats(1, 60),
    max_pause=st.floats(0.1, 3),
    max_edge=st.floats(0, 2),
)


@given(SECONDS, SETTINGS, st.integers(0, 2**40))
def test_each_utterance_is_in_one_example_of_bounded_length(seconds, settings, seed):
    seeds = utterance_seeds(seed, 0, map(str, range(len(seconds))))
    rows = draw(settings, seconds, seeds)
    members = [list(rows.members(n)) for n in rows.firsts]
    assert sum(members, []) == list(range(len(seconds)))
    for first, *others in members:
        pauses = rows.before[others]
        spoken = seconds[[first, *others]].sum()
        assert ((settings.min_pause <= pauses) & (pauses <= settings.max_pause)).all()
        assert spoken + pauses.sum() <= settings.max_seconds + 1e-9 or not others
        edges = rows.before[first], rows.after[[first, *others][-1]]
        assert 0 <= min(edges) <= max(edges) <= settings.max_edge
        assert rows.durations[first] == pytest.approx(spoken + pauses.sum() + sum(edges))
        assert not rows.durations[others].any()


def test_utterances_are_joined_as_often_as_asked_and_pauses_are_uniform():
    seeds = utterance_seeds(3, 0, map(str, range(40_000)))
    settings = ConcatenationSettings(probability=0.3, max_seconds=1e9)
    rows = draw(settings, np.ones(40_000), seeds)
    within = rows.counts == 0
    assert within.mean() == pytest.approx(0.3, abs=0.01)
    for drawn, low, high in (
        (rows.before[within], 0.1, 1.0),
        (rows.before[~within], 0.0, 0.3),
        (rows.after[rows.after > 0], 0.0, 0.3),
    ):
        shares = np.histogram(drawn, 5, (low, high))[0] / len(drawn)
        assert abs(shares - 0.2).max() < 0.02
    # what one draw says of another
    pairs = np.corrcoef(within[1:], rows.before[1:] - np.where(within, 0.55, 0.15)[1:])[0, 1]
    assert abs(pairs) < 0.03


def test_an_example_is_its_utterances_with_faint_noise_between(utterances):
    data, rows = dataset(split_of(utterances))
    batch = data[rows.firsts.tolist()]
    assert len(set(rows.counts.tolist()) - {0, 1}) > 1
    for n, wave, samples in zip(rows.firsts, batch.waveforms, batch.wave_lens, strict=True):
        place, silence = 0, []
        for m in rows.members(n):
            begin = place + round(rows.before[m] * RATE)
            end = begin + int(utterances.samples[m])
            assert (wave[begin:end] == np.float32((m + 1) / 100)).all()
            silence.append(wave[place:begin])
            place = end
        silence.append(wave[place:samples])
        assert len(silence[-1]) == round(rows.after[m] * RATE) and not wave[samples:].any()
        noise = torch.cat(silence)
        assert len(noise) < 400 or -81 < 10 * noise.square().mean().log10() < -49


def test_what_is_planned_is_what_is_read(utterances):
    split = split_of(utterances)
    for epoch in range(3):
        data, rows = dataset(split, epoch, (0.5, 1.0, 2.0))
        read = data[rows.firsts.tolist()]
        planned = rows.durations[rows.firsts] * RATE
        np.testing.assert_allclose(planned, read.wave_lens, rtol=0, atol=8)


def test_levels_of_the_noise_are_uniform_in_decibels():
    levels = [20 * np.log10(faint_noise(4000, seed).std()) for seed in range(500)]
    shares = np.histogram(levels, 5, (-80, -50))[0] / 500
    assert abs(shares - 0.2).max() < 0.07


@each("kind, size", [("characters", None), ("bpe", 8)])
def test_labels_are_those_of_the_joined_text(utterances, kind, size):
    tokenizer = tokenizers.train(kind, TEXTS, size)
    data, rows = dataset(split_of(utterances, tokenizer=tokenizer))
    batch = data[rows.firsts.tolist()]
    for n, y, length in zip(rows.firsts, batch.Y, batch.Y_lens, strict=True):
        text = " ".join(utterances.texts[m] for m in rows.members(n))
        assert y[:length].tolist() == tokenizer.encode(text)


@each(
    "texts, a, b, expected",
    [
        (["A B"], "A B", "B", " "),
        (["AB"], "A", "B", ""),  # texts of one word each: there is no token of the space
        (["我 A"], "我", "我", ""),
        (["我 A"], "A", "我", " "),
    ],
)
def test_a_space_stands_where_the_text_has_one(texts, a, b, expected):
    tokenizer = Characters.train(texts)
    assert between(tokenizer, a, b) == [tokenizer.characters.index(c) + 1 for c in expected]


def test_company_and_workers_change_nothing_but_seeds_and_epochs_do(utterances):
    split = split_of(utterances)
    augment = Augment(AugmentSettings(volume={}))
    data, rows = dataset(split, 2, (0.9, 1.1), augment=augment)
    firsts = rows.firsts.tolist()
    together = data[firsts]
    for n, alone in enumerate(load(data, [[first] for first in firsts], 2)):
        samples, labels = int(alone.wave_lens), int(alone.Y_lens)
        assert (alone.ids, samples) == ([together.ids[n]], int(together.wave_lens[n]))
        assert_same(alone.waveforms[0, :samples], together.waveforms[n, :samples])
        assert_same(alone.Y[0, :labels], together.Y[n, :labels])
    epochs = {tuple(split.joined(1, epoch, (1.0,)).counts) for epoch in range(5)}
    seeds = {tuple(split.joined(seed, 0, (1.0,)).counts) for seed in range(5)}
    assert len(epochs) == len(seeds) == 5


STRIDES = {  # of a frame, of samples
    "ours": Strides([(400, 160), (3, 2), (3, 2)]),
    "by eight": Strides([(400, 160), (3, 2), (3, 2), (3, 2)]),
    "wav2vec": Strides([(400, 320)]),
    "parakeet": Strides([(160, 160), (3, 2, 1), (3, 2, 1), (3, 2, 1)]),
    "parakeet, half": Strides([(160, 160), (3, 2, 1), (3, 2, 1), (3, 2, 1), (3, 2)]),
    "whisper": Strides([(160, 160), (3, 1, 1), (3, 2, 1)]),
}
FEW = st.lists(st.sampled_from(["A", "AA", "ABAB", "A A"]), min_size=2, max_size=9)


@each("name", STRIDES)
@given(FEW, SETTINGS, st.integers(0, 99))
def test_ctc_can_align_whatever_it_can_align_alone(name, texts, settings, seed):
    """Utterances with as few frames as CTC needs."""
    strides, labels = STRIDES[name], [CHARACTERS.encode(text) for text in texts]
    needed = frames_needed(Ragged.of_ids(labels, 5))
    seconds = np.array([strides.frames(int(n)) for n in needed]) / RATE
    seeds = utterance_seeds(seed, 0, map(str, range(len(texts))))
    hop = strides.frames(2) - strides.frames(1)
    settings = settings.model_copy(update={"min_pause": 0.0, "max_pause": 0.01})
    least = least_pause(strides.shortest, hop, RATE)
    rows = draw(settings, seconds, seeds, [len(y) for y in labels], least)
    for n in rows.firsts:
        members = list(rows.members(n))
        parts = [np.zeros(round(seconds[m] * RATE), np.float32) for m in members]
        samples = len(rows.waveform(n, parts, RATE, 1))
        joined = rows.labels([texts[m] for m in members], [labels[m] for m in members])
        assert strides.lengths(samples) >= frames_needed(Ragged.of_ids([joined], 5))[0]


def test_an_example_has_no_more_tokens_than_allowed():
    settings = ConcatenationSettings(probability=0.9, max_seconds=1e6)
    seeds = utterance_seeds(1, 0, map(str, range(900)))
    lens = np.arange(900) % 50 + 1
    rows = draw(settings, np.ones(900), seeds, lens, 0.0, 60)
    totals = [lens[list(rows.members(n))].sum() + rows.counts[n] - 1 for n in rows.firsts]
    assert max(totals) == 60 and rows.counts.max() > 2


@each(
    "changes, message",
    [
        ({"probability": 1.0}, "less than 1"),
        ({"min_pause": -0.1}, "greater than or equal to 0"),
        ({"min_pause": 0.5, "max_pause": 0.2}, "min_pause: got 0.5, expected max_pause"),
    ],
)
def test_settings_out_of_range_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        ConcatenationSettings(**changes)


def test_joined_utterances_may_not_be_longer_than_single_ones(root):
    how = "data.concatenate={max_seconds: 29.8}"
    refused(
        "concatenate: got max_seconds 29.8 and twice max_edge 0.3, expected max_seconds .30",
        experiment,
        root,
        how,
    )


JOINED = "data.concatenate={probability: 0.5, max_seconds: 3, max_pause: 0.2}"


def test_a_training_plans_examples_and_tells_the_longest(root):
    settings = experiment(root, JOINED)
    model = build(settings)
    train_split = settings.read(model).train
    task = settings.task(model, train_split, None)
    rows = train_split.joined(settings.seed, 0, settings.data.speeds)
    planned = sorted(n for step in task.plan(0, 2) for batch in step for n in batch)
    assert planned == rows.firsts.tolist() and len(planned) < len(train_split.utterances)
    [longest] = task.longest(1)
    assert task.sizes[longest] == rows.durations.max() == task.sizes.max()
    assert settings.facts(train_split)["longest_seconds"] == round(rows.durations.max(), 2)
    assert task.longest(10**6) == sorted(planned, key=lambda n: -task.sizes[n])
    [batch] = task.load(0, [[longest]])
    assert int(batch.wave_lens) / 8000 == pytest.approx(rows.durations.max(), abs=1e-3)


def test_before_its_epoch_a_training_plans_and_reads_each_utterance_by_itself(root):
    def made(*changes):
        settings = experiment(root, *changes)
        model = build(settings)
        split = settings.read(model).train
        return settings, split, settings.task(model, split, None)

    def heard(task, epoch):
        batches = [batch for step in task.plan(epoch, 2) for batch in step]
        return batches, [(b.waveforms.tolist(), b.Y.tolist()) for b in task.load(epoch, batches)]

    late = JOINED.replace("}", ", from_epoch: 2}")
    (settings, split, task), (*_, always), (*_, never) = (
        made(late, "training.epochs=3"),
        made(JOINED),
        made(),
    )
    assert heard(task, 1) == heard(never, 1) != heard(always, 1)
    assert heard(task, 2) == heard(always, 2) != heard(never, 2)
    # what is measured beforehand is measured where examples are largest
    assert task.fullest_epoch == 2 and always.fullest_epoch == never.fullest_epoch == 0
    longest = split.joined(settings.seed, 2, settings.data.speeds).durations.max()
    assert task.sizes.max() == longest > never.sizes.max()
    assert settings.facts(split)["longest_seconds"] == round(longest, 2)
    short, alone, _ = made(late, "training.epochs=2")
    assert short.facts(alone)["longest_seconds"] == round(never.sizes.max(), 2)
    [batch] = task.load(2, [task.longest(1)])
    assert int(batch.wave_lens) / 8000 == pytest.approx(longest, abs=1e-3)


def test_settings_that_begin_after_the_last_epoch_are_named(root, caplog):
    masks = "features.specaugment={time_masks: 1, from_epoch: 2}"
    late = JOINED.replace("}", ", from_epoch: 2}")

    def named(epochs):
        caplog.clear()
        settings = experiment(root, late, masks, f"training.epochs={epochs}")
        settings.read(build(settings))
        return [r.getMessage().split(".from_epoch: 2: never")[0] for r in caplog.records]

    assert named(2) == ["features.specaugment", "data.concatenate"]
    assert named(3) == []


def test_archives_are_those_of_the_first_utterances():
    shards = Shards(["a", None, "b"], np.array([0, 0, 1, 2, 2])).select(np.array([1, 3]))
    assert shards.first_needed([[1], [0, 1]]) == [["b"], ["a"]]
    assert sorted(np.concatenate(shards.windows(np.random.default_rng(0))).tolist()) == [0, 1]


def test_neighbors_in_archives_are_joined_and_read_as_from_files(tmp_path, monkeypatch):
    """Eight recordings lie in each, in another order than in the manifest."""
    monkeypatch.setattr(shar, "SHARD", 8)
    root = make_root(tmp_path)
    prepare("tsv", root / "corpus", root / "data", shar=True)
    settings = experiment(root, JOINED, f"data.train={root}/data/train.shar.jsonl.gz")
    model = build(settings)
    split = settings.read(model).train
    assert (np.diff(split.shards.numbers) >= 0).all() and len(split.shards.archives) == 5
    files = settings.read(build(experiment(root, JOINED))).train  # in the manifest's order
    task, places = (
        settings.task(model, split, None),
        {n: i for i, n in enumerate(files.utterances.ids)},
    )
    planned = [batch for step in task.plan(1, 2) for batch in step]
    for batch, indices in zip(task.load(1, planned), planned, strict=True):
        joined = split.joined(settings.seed, 1, settings.data.speeds)
        for n, wave, y, labels in zip(indices, batch.waveforms, batch.Y, batch.Y_lens, strict=True):
            ids = [split.utterances.ids[m] for m in joined.members(n)]
            texts = [files.utterances.texts[places[name]] for name in ids]
            assert y[:labels].tolist() == model.tokenizer.encode(" ".join(texts))
            first = files.utterances[places[ids[0]]]
            speed = draw_speeds(utterance_seeds(settings.seed, 1, ids[:1]), settings.data.speeds)[0]
            own = load_sound(first.path, 8000, first.start, first.duration)
            own = resample(own, 8000 * speed, 8000)
            begin = round(joined.before[n] * 8000)
            assert_same(wave[begin : begin + len(own)], torch.from_numpy(own))


def test_tokens_drawn_by_bpe_dropout_can_be_aligned(utterances):
    tokenizer = tokenizers.train("bpe", TEXTS, 8)
    split = split_of(utterances, tokenizer=tokenizer)
    frames = np.full(len(TEXTS), 99)
    segmentation = Segmentation(tokenizers.dropout(tokenizer, 0.5), frames)
    data, rows = dataset(split, 1, segmentation=segmentation)
    plain, _ = dataset(split, 1)
    one, other = (part[rows.firsts.tolist()] for part in (data, plain))
    assert (one.Y_lens >= other.Y_lens).all() and (one.Y_lens > other.Y_lens).any()
    for y, length, z, known in zip(one.Y, one.Y_lens, other.Y, other.Y_lens, strict=True):
        assert tokenizer.decode(y[:length]) == tokenizer.decode(z[:known])


@slow
def test_it_resumes_and_runs_in_two_processes_to_the_bit(root, tmp_path):
    whole = tmp_path / "whole", weights(train(root, tmp_path / "whole", JOINED))
    stop(root, tmp_path / "stopped", 4, JOINED)
    assert_uninterrupted(root, tmp_path / "stopped", whole, JOINED)
    assert_processes_change_nothing(root, tmp_path, JOINED)
