"""Prove the augmentation of waveforms: each effect is what it says, and depends on the utterance's seed alone.

References: numpy's direct convolution and lhotse's reverberation where lhotse can be imported; signal-to-noise ratios
and gains measured on the result; stretches of recordings whose samples say their place. The rest are laws.
"""

import gzip
import json
import pickle

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from runs import history
from tones import CONFIG, write_corpus

from asr import config, tasks
from asr.audio import load as audio
from asr.data import manifest
from asr.data.augmentation import Augment, AugmentSettings
from asr.data.augmentation.effect import Recordings, power
from asr.data.augmentation.noise import add_noise
from asr.data.augmentation.reverberation import convolve, reverberate
from asr.data.augmentation.volume import amplify
from asr.data.bucketing import plan
from asr.data.dataset import SpeechDataset, load
from asr.data.manifest import Utterance
from asr.data.prepare import prepare
from asr.errors import UserError
from asr.models.recognizer import load as load_recognizer
from asr.tasks import utterances as examples
from asr.text import tokenizer
from asr.training import run
from asr.training.identity import stamp_of

RATE = 8000


def noise(samples, seed=0, scale=0.1):
    return (scale * np.random.default_rng(seed).standard_normal(samples)).astype(np.float32)


def room(samples, seed=0, peak=20):
    """A decaying response whose direct path is at sample `peak`."""
    response = 0.1 * noise(samples, seed, 1.0) * np.exp(-np.arange(samples) / (samples / 5))
    response[peak] = 1.0
    return response.astype(np.float32)


def decibels(ratio):
    return 10 * np.log10(ratio)


def sounds(folder, waveforms, rate=RATE):
    """Write waveforms as sound files of floats, and a manifest of them as asr-prepare makes it."""
    folder.mkdir()
    for n, waveform in enumerate(waveforms):
        soundfile.write(folder / f"{n}.wav", waveform, rate, subtype="FLOAT")
    return str(prepare("folder", folder, folder / "out").manifests["recordings"])


# the effects


@pytest.mark.parametrize(
    "samples, length, peak", [(4000, 900, 20), (4000, 900, 0), (500, 3000, 1000), (3, 1, 0)]
)
@pytest.mark.parametrize("sign", [1, -1])
def test_reverberation_is_the_direct_convolution(samples, length, peak, sign):
    speech, response = noise(samples), sign * room(length, 1, peak)
    full = np.convolve(speech.astype(np.float64), response.astype(np.float64))
    expected = full[peak : peak + samples]
    expected *= np.sqrt((speech.astype(np.float64) ** 2).sum() / (expected**2).sum())
    np.testing.assert_allclose(reverberate(speech, response), expected, rtol=0, atol=1e-6)


def test_reverberation_is_lhotses(tmp_path):
    lhotse = pytest.importorskip(
        "lhotse", reason="no lhotse: the direct convolution is tested all the same"
    )
    from lhotse.augmentation.rir import ReverbWithImpulseResponse

    for seed, (samples, length, peak) in enumerate(
        [(16000, 4000, 37), (16000, 1, 0), (2000, 6000, 400)]
    ):
        speech, response = noise(samples, seed), room(length, seed, peak)
        soundfile.write(tmp_path / f"{seed}.wav", response, RATE, subtype="FLOAT")
        reference = ReverbWithImpulseResponse(lhotse.Recording.from_file(tmp_path / f"{seed}.wav"))
        expected = reference(speech[None], RATE)[0]
        np.testing.assert_allclose(reverberate(speech, response), expected, rtol=0, atol=2e-6)


def test_a_room_without_reflections_changes_nothing():
    speech, echo_free = noise(1000), np.zeros(300, np.float32)
    echo_free[70] = -0.3  # late, faint and upside down
    np.testing.assert_allclose(reverberate(speech, echo_free), -speech, rtol=0, atol=1e-6)


def test_silence_gives_no_nan():
    speech, silence = noise(500), np.zeros(500, np.float32)
    assert reverberate(speech, silence) is speech and reverberate(silence, room(100)) is silence
    assert add_noise(speech, silence, 10) is speech and add_noise(silence, speech, 10) is silence


@hypothesis_settings(deadline=None, max_examples=100, derandomize=True)
@given(samples=st.integers(1, 5000), length=st.integers(1, 1200))
def test_convolution_in_blocks_is_the_direct_one(samples, length):
    speech, response = noise(samples, samples, 1.0), noise(length, length, 1.0)
    expected = np.convolve(speech.astype(np.float64), response.astype(np.float64))
    np.testing.assert_allclose(convolve(speech, response), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("snr_db", [-5.0, 0.0, 7.5, 40.0])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 3.0])
def test_the_signal_to_noise_ratio_is_as_asked(snr_db, scale):
    speech, beside = noise(8000, 1), noise(8000, 2, scale)
    added = add_noise(speech, beside, snr_db).astype(np.float64) - speech
    assert decibels(np.mean(speech.astype(np.float64) ** 2) / np.mean(added**2)) == pytest.approx(
        snr_db, abs=1e-2
    )
    assert np.corrcoef(added, beside)[0, 1] > 0.9999


def test_gain_is_in_decibels_and_never_clips():
    speech = noise(1000, scale=1.0)
    np.testing.assert_allclose(amplify(speech, 20.0), 10 * speech)
    np.testing.assert_allclose(amplify(speech, -6.0), speech * 0.501187, rtol=1e-5)
    assert np.abs(amplify(speech, 20.0)).max() > 10


# recordings to draw from


def test_a_stretch_is_part_of_the_recording_or_repeats_it(tmp_path):
    recordings = Recordings(sounds(tmp_path / "n", [np.arange(1000) / 1000, np.arange(30) / 1000]))
    for place in (0.0, 0.3, 0.999):
        stretch = recordings.stretch(0, RATE, 200, place)
        first = round(1000 * float(stretch[0]))
        assert abs(first - place * 800) <= 2 and stretch.dtype == np.float32
        np.testing.assert_allclose(stretch, np.arange(first, first + 200) / 1000, atol=1e-6)
        np.testing.assert_allclose(
            recordings.stretch(1, RATE, 200, place), np.arange(200) % 30 / 1000, atol=1e-6
        )
    assert (
        len(recordings.stretch(0, 2 * RATE, 333, 0.5))
        == len(recordings.stretch(1, 11025, 333, 0.5))
        == 333
    )


def test_a_response_is_read_whole_by_its_first_channel_and_unclipped(tmp_path):
    channels = np.stack([room(400, 1) * 3, room(400, 2, 90)], axis=1)
    recordings = Recordings(sounds(tmp_path / "r", [channels]))
    np.testing.assert_array_equal(recordings.load(0, RATE), channels[:, 0])
    assert len(recordings.load(0, 2 * RATE)) == 800


def test_only_a_part_of_a_recording_is_drawn_where_the_manifest_says_so(tmp_path):
    sounds(tmp_path / "n", [np.arange(1000) / 1000])
    part = Utterance(
        "part", str(tmp_path / "n/0.wav"), RATE, 1000, 1, 0.05, 0.025, ""
    )  # samples 400 to 600
    manifest.write(tmp_path / "part.jsonl.gz", [part])
    recordings = Recordings(tmp_path / "part.jsonl.gz")
    np.testing.assert_allclose(recordings.load(0, RATE), np.arange(400, 600) / 1000, atol=1e-6)
    drawn = np.concatenate([recordings.stretch(0, RATE, 100, u) for u in np.linspace(0, 0.999, 50)])
    assert 0.4 <= drawn.min() < 0.402 and 0.597 < drawn.max() < 0.6


def test_many_recordings_take_little_memory(tmp_path):
    soundfile.write(tmp_path / "x.wav", noise(100), RATE)
    same = [
        Utterance(f"noise-{n}", str(tmp_path / "x.wav"), RATE, 100, 1, 0.0, 100 / RATE, "")
        for n in range(1000)
    ]
    manifest.write(tmp_path / "many.jsonl.gz", same)
    assert len(pickle.dumps(Recordings(tmp_path / "many.jsonl.gz"))) < 1000 * (
        len(same[0].path) + 19
    )


# the settings and what is drawn


@pytest.fixture(scope="module")
def manifests(tmp_path_factory):
    """Three noises (one shorter than the speech, one at another rate) and two rooms."""
    root = tmp_path_factory.mktemp("sounds")
    sounds(root / "noise", [noise(20_000, 1), noise(500, 2), noise(30_000, 3)])
    soundfile.write(root / "noise/3.wav", noise(40_000, 4), 2 * RATE)
    noises = prepare("folder", root / "noise", root / "noises").manifests["recordings"]
    return {
        "noise": str(noises),
        "reverberation": sounds(root / "rooms", [room(900, 1), room(300, 2, 5)]),
    }


def settings(manifests, *names, **changes):
    """Settings of the named effects, always applied unless said otherwise."""
    parts = {name: {"probability": 1.0} for name in names}
    for name in set(names) & set(manifests):
        parts[name]["manifest"] = manifests[name]
    for name, values in changes.items():
        parts[name] |= values
    return AugmentSettings.model_validate(parts)


ALL = ("reverberation", "noise", "volume")
SPEECH = noise(6000, 9)


@pytest.mark.parametrize("seed", range(5))
def test_rooms_then_noise_then_volume(manifests, seed):
    """Each is measured on the result: a room by trying them all, noise and volume by ratios of powers."""
    rooms = [reverberate(SPEECH, soundfile.read(f)[0]) for f in rooms_of(manifests)]
    reverberant, noisy, whole = (
        Augment(settings(manifests, *ALL[:n]))(SPEECH, RATE, seed) for n in (1, 2, 3)
    )
    assert any(np.allclose(reverberant, one, atol=1e-6) for one in rooms)
    ratio = decibels(power(reverberant) / power(noisy.astype(np.float64) - reverberant))
    assert 5 <= ratio <= 20
    gain = whole.astype(np.float64) / noisy
    assert -10 <= 20 * np.log10(gain.mean()) <= 6 and gain.std() < 1e-5
    assert all(
        x.dtype == np.float32 and x.shape == SPEECH.shape for x in (reverberant, noisy, whole)
    )


def rooms_of(manifests):
    return [u.path for u in manifest.read(manifests["reverberation"])]


def test_an_effect_draws_the_same_whatever_the_others(manifests):
    alone, among = (Augment(settings(manifests, *names)) for names in (["volume"], ALL))
    without = Augment(settings(manifests, *ALL[:2]))
    for seed in range(10):
        gain = power(alone(SPEECH, RATE, seed)) / power(SPEECH)
        assert power(among(SPEECH, RATE, seed)) / power(
            without(SPEECH, RATE, seed)
        ) == pytest.approx(gain, rel=1e-5)


def test_the_seed_decides_and_the_input_is_left(manifests):
    augment, before = Augment(settings(manifests, *ALL)), SPEECH.copy()
    first = [augment(SPEECH, RATE, seed) for seed in range(20)]
    again = pickle.loads(pickle.dumps(augment))
    for seed in reversed(range(20)):
        np.testing.assert_array_equal(again(SPEECH, RATE, seed), first[seed])
    assert len({x.tobytes() for x in first}) == 20
    np.testing.assert_array_equal(SPEECH, before)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_probabilities_are_kept(manifests, name, probability):
    augment = Augment(settings(manifests, name, **{name: {"probability": probability}}))
    short = SPEECH[:400]
    changed = np.mean(
        [not np.array_equal(augment(short, RATE, seed), short) for seed in range(300)]
    )
    assert changed == pytest.approx(
        probability, abs=0 if probability in (0, 1) else 0.13
    )  # five deviations


def test_effects_are_drawn_independently(manifests):
    half = {name: {"probability": 0.5} for name in ALL}
    alone, short = (
        [Augment(settings(manifests, name, **{name: half[name]})) for name in ALL],
        SPEECH[:400],
    )
    hit = np.array(
        [[not np.array_equal(a(short, RATE, seed), short) for a in alone] for seed in range(400)]
    )
    together = np.corrcoef(hit.T)[np.triu_indices(3, 1)]
    assert np.abs(together).max() < 0.2  # four standard deviations


def test_gains_and_ratios_are_uniform_in_decibels(manifests):
    volume = Augment(
        settings(manifests, "volume", volume={"min_gain_db": -4.0, "max_gain_db": 2.0})
    )
    beside = Augment(settings(manifests, "noise", noise={"min_snr_db": -3.0, "max_snr_db": 9.0}))
    short = SPEECH[:400]
    gains = [decibels(power(volume(short, RATE, n)) / power(short)) for n in range(400)]
    ratios = [decibels(power(short) / power(beside(short, RATE, n) - short)) for n in range(400)]
    for values, low, high in ((gains, -4, 2), (ratios, -3, 9)):
        counts = np.histogram(values, 5, (low - 1e-3, high + 1e-3))[0]
        assert counts.sum() == 400 and ((counts - 80) ** 2 / 80).sum() < 24  # chi-squared, p = 1e-4


def test_every_recording_is_drawn(manifests, monkeypatch):
    augment, read = Augment(settings(manifests, *ALL[:2])), []
    opened = audio.load
    monkeypatch.setattr(
        audio, "load", lambda path, *rest, **more: read.append(path) or opened(path, *rest, **more)
    )
    for seed in range(60):
        augment(SPEECH[:100], RATE, seed)
    assert set(read) == {u.path for path in manifests.values() for u in manifest.read(path)}


@hypothesis_settings(deadline=None, max_examples=60, derandomize=True)
@given(
    samples=st.integers(1, 900),
    seed=st.integers(0, 2**63 - 1),
    scale=st.sampled_from([0.0, 1e-30, 0.1, 3.0]),
)
def test_any_waveform_comes_out_finite_and_as_long(manifests, samples, seed, scale):
    out = Augment(settings(manifests, *ALL))(noise(samples, 1, scale), RATE, seed)
    assert out.shape == (samples,) and out.dtype == np.float32 and np.isfinite(out).all()


# in the data workers


@pytest.fixture(scope="module")
def utterances(tmp_path_factory):
    root = tmp_path_factory.mktemp("speech")
    made = prepare("folder", write_corpus(root / "corpus", {"train": 12}), root / "data")
    return list(manifest.read(made.manifests["recordings"]))


def dataset(utterances, augment, epoch=2):
    return SpeechDataset(
        utterances, [[1]] * len(utterances), RATE, 1, epoch, [0.9, 1.0, 1.1], augment
    )


def same(a, b):
    assert a.ids == b.ids
    torch.testing.assert_close(
        (a.waveforms, a.wave_lens, a.seeds), (b.waveforms, b.wave_lens, b.seeds), rtol=0, atol=0
    )


def test_workers_company_and_resuming_change_nothing(utterances, manifests):
    augment = Augment(settings(manifests, *ALL))
    chosen = dataset(utterances, augment)
    order = [batch for step in plan([u.duration for u in utterances], 3.0, 1, 2) for batch in step]
    assert len(order) > 3
    whole = list(load(chosen, order, 0))
    for got, expected in zip(load(chosen, order, 2), whole, strict=True):
        same(got, expected)
    for got, expected in zip(
        load(dataset(utterances, augment), order[2:], 0), whole[2:], strict=True
    ):  # resumed
        same(got, expected)
    together = chosen[list(range(12))]
    for n in range(12):
        alone = chosen[[n]]
        length = int(alone.wave_lens[0])
        assert length == together.wave_lens[n] and not together.waveforms[n, length:].any()
        torch.testing.assert_close(
            alone.waveforms[0, :length], together.waveforms[n, :length], rtol=0, atol=0
        )


def test_each_epoch_hears_another_room_and_lengths_stay(utterances, manifests):
    augment = Augment(settings(manifests, *ALL))
    one, other = (dataset(utterances, augment, epoch)[list(range(12))] for epoch in (2, 3))
    plain = dataset(utterances, None)[list(range(12))]
    torch.testing.assert_close(one.wave_lens, plain.wave_lens)
    for n in range(12):
        shortest = int(min(one.wave_lens[n], other.wave_lens[n]))
        assert (one.waveforms[n, :shortest] != other.waveforms[n, :shortest]).any()
        assert (one.waveforms[n, :shortest] != plain.waveforms[n, :shortest]).any()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_noise_that_vanishes_in_training_is_said(tmp_path, utterances, workers):
    path = sounds(tmp_path / "n", [noise(20_000)])
    chosen = dataset(utterances, Augment(settings({"noise": path}, "noise")))
    (tmp_path / "n/0.wav").unlink()
    with pytest.raises(UserError) as error:
        list(load(chosen, [[0]], workers))
    assert str(error.value) == f"{tmp_path}/n/0.wav: no such file"


# mistakes


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A corpus, a tokenizer and an experiment."""
    root = tmp_path_factory.mktemp("training")
    write_corpus(root / "corpus", {"train": 24, "dev": 6})
    prepare("tsv", root / "corpus", root / "data")
    tokenizer.train("characters", ["LOW MID HIGH"]).save(root / "tokenizer")
    (root / "x.yaml").write_text(CONFIG.format(root=root))
    return root


def arguments(root, out, *overrides):
    return root / "x.yaml", [f"out={out}", "training.epochs=1", *overrides]


def train(root, out, *overrides):
    call = arguments(root, out, *overrides)
    return run.train(config.load(tasks.Experiment, *call), stamp_of(*call))


@pytest.mark.parametrize(
    "override, message",
    [
        ("volume={min_gain_db: 7}", "volume.min_gain_db: got 7, expected max_gain_db (6) or less"),
        (
            "noise={manifest: x, min_snr_db: 21}",
            "noise.min_snr_db: got 21, expected max_snr_db (20) or less",
        ),
        ("noise={min_snr_db: 1}", "noise.manifest: missing; a complete experiment states it"),
        (
            "noise={manifest: x, probability: 1.1}",
            "noise.probability: got 1.1, expected: less than or equal to 1",
        ),
        (
            "reverberation={probability: 0.1}",
            "reverberation.manifest: missing; a complete experiment states it",
        ),
        ("volume={gain: 1}", "volume.gain: no such setting"),
        ("reverb={}", "reverb: no such setting; did you mean 'reverberation'?"),
    ],
)
def test_settings_are_checked(root, override, message):
    with pytest.raises(UserError) as error:
        config.load(tasks.Experiment, root / "x.yaml", [f"data.augment.{override}"])
    assert f"data.augment.{message}" in str(error.value)


def test_faulty_manifests_end_before_training(root, tmp_path):
    absent, empty, damaged = (
        tmp_path / name for name in ("no.jsonl.gz", "empty.jsonl.gz", "damaged.jsonl.gz")
    )
    manifest.write(empty, [])
    damaged.write_bytes(gzip.compress(b'{"id": "x"}\n'))
    gone, short = (sounds(tmp_path / name, [noise(800), noise(900)]) for name in ("gone", "short"))
    (tmp_path / "gone/1.wav").unlink()
    soundfile.write(tmp_path / "short/0.wav", noise(700), RATE)
    disagree = (
        "utterances of {} that disagree with their sound files (1): {}; run asr-prepare again"
    )
    messages = {
        absent: f"{absent}: no such manifest; asr-prepare makes it",
        empty: f"{empty}: holds no recording; `asr-prepare folder SOUNDS OUT` makes a manifest",
        damaged: f"{damaged}:1: expected a lhotse MonoCut with a recording (no 'recording')",
        gone: disagree.format(gone, f"1.wav: {tmp_path}/gone/1.wav: no such file"),
        short: disagree.format(
            short, f"0.wav: {tmp_path}/short/0.wav has 0.087 s, the manifest says 0.100 s"
        ),
    }
    for effect in ("noise", "reverberation"):
        for path, message in messages.items():
            with pytest.raises(UserError) as error:
                train(root, tmp_path / "model", f"data.augment.{effect}.manifest={path}")
            assert str(error.value) == message
    assert not (tmp_path / "model").exists()


# a whole run


def everything(manifests):
    """All of it, as overrides of the experiment."""
    parts = {name: {"manifest": path, "probability": 0.7} for name, path in manifests.items()}
    spec = {"freq_masks": 1, "freq_width": 4, "time_masks": 3, "time_width": 5, "time_warp": 4}
    spec["time_multiplicity"] = 0.04
    return [
        f"data.augment={json.dumps(parts | {'volume': {}})}",
        f"features.specaugment={json.dumps(spec)}",
    ]


def facts(out):
    return history(out), {
        name: tensor.clone() for name, tensor in load_recognizer(out).state_dict().items()
    }


RUNS = ("plain", "all", "workers")


def test_a_run_with_everything_on(root, tmp_path, manifests):
    """Workers change nothing; statistics of CMVN and validation hear the recordings as they are."""
    overrides = [], everything(manifests), [*everything(manifests), "data.workers=2"]
    for name, changes in zip(RUNS, overrides, strict=True):
        train(root, tmp_path / name, *changes)
    (plain, unchanged), (changed, weights), (again, same_weights) = (
        facts(tmp_path / n) for n in RUNS
    )
    torch.testing.assert_close(same_weights, weights, rtol=0, atol=0)
    assert changed == again != plain
    statistics = [name for name in weights if "cmvn" in name]
    assert len(statistics) == 2
    for name in statistics:
        torch.testing.assert_close(weights[name], unchanged[name], rtol=0, atol=0)
    settings = config.load(
        tasks.Experiment, *arguments(root, tmp_path / "x", *everything(manifests))
    )
    splits = examples.read_splits(settings.data, load_recognizer(tmp_path / "all"))
    assert splits["train"][0].augment is not None and splits["dev"][0].augment is None


def test_a_run_is_another_with_other_noises(root, tmp_path, manifests):
    path = sounds(tmp_path / "n", [noise(800)])
    call = arguments(root, tmp_path / "out", f"data.augment.noise.manifest={path}")
    before = stamp_of(*call).facts
    assert stamp_of(*call).facts == before and path in before["inputs"]
    soundfile.write(tmp_path / "n/1.wav", noise(900), RATE)
    prepare("folder", tmp_path / "n", tmp_path / "n/out")
    assert stamp_of(*call).facts != before
    room_too = stamp_of(*arguments(root, tmp_path / "out", *everything(manifests))).facts
    assert set(manifests.values()) <= set(room_too["inputs"])
    assert stamp_of(*arguments(root, tmp_path / "out", "data.augment=7")).facts["inputs"]
