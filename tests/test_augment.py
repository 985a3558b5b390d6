"""Prove the augmentation of waveforms: each effect is what it says, and depends on the utterance's seed alone.

References: numpy's direct convolution; signal-to-noise ratios and gains measured on the result; stretches of
recordings whose samples say their place. The rest are laws.
"""

import json
import pickle
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from runs import assert_same, experiment
from small import each, options

from asr.audio import load as audio
from asr.data import manifest
from asr.data.augmentation import Augment, AugmentSettings
from asr.data.augmentation.effect import Recordings, power
from asr.data.augmentation.noise import add_noise
from asr.data.augmentation.reverberation import reverberate
from asr.data.augmentation.volume import amplify
from asr.data.dataset import SpeechDataset
from asr.data.loading import load
from asr.data.manifest import Utterance
from asr.data.prepare import prepare
from asr.training.build import build
from asr.training.identity import stamp_of

RATE = 8000


def noise(samples, seed=0, scale=0.1):
    return (scale * np.random.default_rng(seed).standard_normal(samples)).astype(np.float32)


def room(samples, seed=0, peak=20):
    """A decaying response whose direct path is at sample `peak`."""
    response = 0.1 * noise(samples, seed, 1.0) * np.exp(-np.arange(samples) / (samples / 5))
    response[peak] = 1.0
    return response.astype(np.float32)


def decibels(signal, other):
    """By how much a signal is louder."""
    return 10 * np.log10(power(signal) / power(other))


def close(got, expected, atol=1e-6):
    np.testing.assert_allclose(got, expected, rtol=0, atol=atol)


def sounds(folder, *waveforms, rate=RATE):
    """Write waveforms as sound files of floats, and a manifest of them as asr-prepare makes it."""
    folder.mkdir()
    for n, waveform in enumerate(waveforms):
        soundfile.write(folder / f"{n}.wav", waveform, rate, subtype="FLOAT")
    return str(prepare("folder", folder, folder / "out").manifests["recordings"])


# the effects


@given(st.integers(1, 5000), st.integers(1, 4000), st.integers(0, 3999), st.sampled_from([1, -1]))
def test_reverberation_is_the_direct_convolution(samples, length, peak, sign):
    """Of a response as well that was recorded upside down, or is longer than the speech."""
    speech, response = noise(samples, samples), sign * room(length, length, peak % length)
    full = np.convolve(speech.astype(np.float64), response.astype(np.float64))
    expected = full[peak % length :][:samples]
    expected *= np.linalg.norm(speech.astype(np.float64)) / np.linalg.norm(expected)
    close(reverberate(speech, response), expected)


def test_silence_gives_no_nan():
    speech, silence = noise(500), np.zeros(500, np.float32)
    assert reverberate(speech, silence) is speech and reverberate(silence, room(100)) is silence
    assert add_noise(speech, silence, 10) is speech and add_noise(silence, speech, 10) is silence


@each("snr_db, scale", [(-5.0, 1e-4), (0.0, 1.0), (7.5, 3.0), (40.0, 1.0)])
def test_the_signal_to_noise_ratio_is_as_requested(snr_db, scale):
    speech, beside = noise(8000, 1), noise(8000, 2, scale)
    added = add_noise(speech, beside, snr_db).astype(np.float64) - speech
    close(decibels(speech, added), snr_db, 1e-2)
    assert np.corrcoef(added, beside)[0, 1] > 0.9999


def test_gain_is_in_decibels_and_never_clips():
    speech = noise(1000, scale=1.0)
    np.testing.assert_allclose(amplify(speech, 20.0), 10 * speech)


# recordings to draw from


def test_a_stretch_is_part_of_the_recording_or_repeats_it(tmp_path):
    recordings = Recordings(sounds(tmp_path / "n", np.arange(1000) / 1000, np.arange(30) / 1000))
    for place in (0.0, 0.3, 0.999):
        stretch = recordings.stretch(0, RATE, 200, place)
        first = round(1000 * float(stretch[0]))
        assert abs(first - place * 800) <= 2 and stretch.dtype == np.float32
        close(stretch, np.arange(first, first + 200) / 1000)
        close(recordings.stretch(1, RATE, 200, place), np.arange(200) % 30 / 1000)
    assert [len(recordings.stretch(n, 11025, 333, 0.5)) for n in (0, 1)] == [333, 333]


def test_a_response_is_read_whole_by_its_first_channel_and_unclipped(tmp_path):
    channels = np.stack([room(400, 1) * 3, room(400, 2, 90)], axis=1)
    recordings = Recordings(sounds(tmp_path / "r", channels))
    np.testing.assert_array_equal(recordings.load(0, RATE), channels[:, 0])
    assert len(recordings.load(0, 2 * RATE)) == 800


def test_many_parts_of_a_recording_take_little_memory_and_only_they_are_drawn(tmp_path):
    sounds(tmp_path / "n", np.arange(1000) / 1000)
    part = Utterance("", str(tmp_path / "n/0.wav"), RATE, 1000, 1, 0.05, 0.025, "")  # 400 to 600
    manifest.write(tmp_path / "x.jsonl.gz", [replace(part, id=str(n)) for n in range(1000)])
    recordings = Recordings(tmp_path / "x.jsonl.gz")
    close(recordings.load(999, RATE), np.arange(400, 600) / 1000)
    drawn = np.concatenate([recordings.stretch(9, RATE, 100, u) for u in np.linspace(0, 0.999, 50)])
    assert 0.4 <= drawn.min() < 0.402 and 0.597 < drawn.max() < 0.6
    assert len(pickle.dumps(recordings)) < 1000 * (len(part.path) + 19)


# the settings and what is drawn


@pytest.fixture(scope="module")
def manifests(tmp_path_factory):
    """Three noises (one shorter than the speech) and two rooms."""
    root = tmp_path_factory.mktemp("sounds")
    return {
        "noise": sounds(root / "noise", noise(20_000, 1), noise(500, 2), noise(30_000, 3)),
        "reverberation": sounds(root / "rooms", room(900, 1), room(300, 2, 5)),
    }


def augment(manifests, *names, **changes):
    """The named effects and those with changes, always applied unless said otherwise."""
    always = dict.fromkeys(names, "") | changes
    parts = {name: {"probability": 1.0} | options(text) for name, text in always.items()}
    for name in parts.keys() & manifests:
        parts[name]["manifest"] = manifests[name]
    return Augment(AugmentSettings.model_validate(parts))


ALL = ("reverberation", "noise", "volume")
SPEECH = noise(6000, 9)
SHORT = SPEECH[:400]


@each("seed", range(5))
def test_rooms_then_noise_then_volume_each_drawn_whatever_the_others(manifests, seed):
    """Each is measured on the result: a room by trying them all, noise and volume by ratios of powers."""
    rooms = [u.path for u in manifest.read(manifests["reverberation"])]
    effects = (augment(manifests, *ALL[:n]) for n in (1, 2, 3))
    reverberant, noisy, whole = (e(SPEECH, RATE, seed).astype(np.float64) for e in effects)
    tried = (reverberate(SPEECH, soundfile.read(path)[0]) for path in rooms)
    assert any(np.allclose(reverberant, heard, atol=1e-6) for heard in tried)
    assert 5 <= decibels(reverberant, noisy - reverberant) <= 20
    gain = whole / noisy
    assert -10 <= decibels(whole, noisy) <= 6 and gain.std() < 1e-5
    alone = augment(manifests, "volume")(SPEECH, RATE, seed)
    np.testing.assert_allclose(alone, SPEECH * gain.mean(), rtol=1e-5)


def test_the_seed_decides_and_the_input_is_left(manifests):
    first, before = augment(manifests, *ALL), SPEECH.copy()
    made = [first(SPEECH, RATE, seed).tobytes() for seed in range(20)]
    again = pickle.loads(pickle.dumps(first))
    assert [again(SPEECH, RATE, seed).tobytes() for seed in range(19, -1, -1)] == made[::-1]
    assert len({*made}) == 20 and np.array_equal(SPEECH, before)


@each("probability", [0.0, 0.3, 1.0])
def test_probabilities_are_kept_and_effects_drawn_independently(manifests, probability):
    alone = [augment(manifests, **{name: f"probability: {probability}"}) for name in ALL]
    hit = [[(a(SHORT, RATE, seed) != SHORT).any() for seed in range(400)] for a in alone]
    close(np.mean(hit, 1), probability, 0.115 if probability == 0.3 else 0)  # five deviations
    if probability == 0.3:
        assert np.abs(np.corrcoef(hit)[np.triu_indices(3, 1)]).max() < 0.2  # four deviations


def test_gains_and_ratios_are_uniform_in_decibels(manifests):
    volume = augment(manifests, volume="min_gain_db: -4.0, max_gain_db: 2.0")
    beside = augment(manifests, noise="min_snr_db: -3.0, max_snr_db: 9.0")
    gains = [decibels(volume(SHORT, RATE, n), SHORT) for n in range(400)]
    ratios = [decibels(SHORT, beside(SHORT, RATE, n) - SHORT) for n in range(400)]
    for shares in ((np.array(gains) + 4) / 6, (np.array(ratios) + 3) / 12):
        counts = np.histogram(shares, 5, (-1e-3, 1.001))[0]
        assert counts.sum() == 400 and ((counts - 80) ** 2 / 80).sum() < 24  # chi-squared, p = 1e-4


def test_every_recording_is_drawn(manifests, monkeypatch):
    spy, both = Mock(wraps=audio.load), augment(manifests, *ALL[:2])
    monkeypatch.setattr(audio, "load", spy)
    for seed in range(60):
        both(SHORT, RATE, seed)
    read = {call.args[0] for call in spy.mock_calls}
    assert read == {u.path for path in manifests.values() for u in manifest.read(path)}


@given(st.integers(1, 900), st.integers(0, 2**63 - 1), st.sampled_from([0.0, 1e-30, 0.1, 3.0]))
def test_any_waveform_comes_out_finite_and_as_long(manifests, samples, seed, scale):
    out = augment(manifests, *ALL)(noise(samples, 1, scale), RATE, seed)
    assert out.shape == (samples,) and out.dtype == np.float32 and np.isfinite(out).all()


@each("name, least, most", [("volume", "gain", 6), ("noise", "snr", 20)])
def test_a_range_that_ends_before_it_begins_is_refused(manifests, name, least, most):
    with pytest.raises(ValueError, match=rf"min_{least}_db: got 21, .* max_{least}_db \({most}\)"):
        augment(manifests, **{name: f"min_{least}_db: 21"})


@each("effect", ["noise", "reverberation"])
def test_manifests_are_compared_with_their_sound_files(tmp_path, effect):
    empty = tmp_path / "empty.jsonl.gz"
    manifest.write(empty, [])
    refused(f"{empty}: holds no recording", augment, {effect: str(empty)}, effect)
    path = sounds(tmp_path / "x", noise(800), noise(900))
    (tmp_path / "x/1.wav").unlink()
    soundfile.write(tmp_path / "x/0.wav", noise(700), RATE)
    gone = f"1.wav: {tmp_path}/x/1.wav: no such file"
    refused(rf"{path} .* \(2\): 0.wav: .*0.087 s.*0.100 s.*{gone}", augment, {effect: path}, effect)


# in training


def dataset(root, augment, epoch=2):
    """Twelve utterances; all at one speed, so that epochs differ by the augmentation alone."""
    utterances = list(manifest.read(root / "data/train.jsonl.gz"))[:12]
    return SpeechDataset(utterances, [[1]] * 12, RATE, 1, epoch, [0.9], augment)


def test_workers_and_company_change_nothing_and_each_epoch_has_another_room(root, manifests):
    made = augment(manifests, *ALL)
    given = [made], [made, 3], [None]
    together, later, plain = (dataset(root, *how)[list(range(12))] for how in given)
    assert_same(together.wave_lens, plain.wave_lens)
    for n, alone in enumerate(load(dataset(root, made), [[n] for n in range(12)], 2)):
        length = int(alone.wave_lens)
        assert length == together.wave_lens[n] and not together.waveforms[n, length:].any()
        assert_same(alone.waveforms[0, :length], together.waveforms[n, :length])
        for other in (later, plain):
            assert (alone.waveforms[0, :length] != other.waveforms[n, :length]).any()


@each("workers", [0, 1])
def test_a_noise_that_vanishes_in_training_is_named(tmp_path, root, workers):
    chosen = dataset(root, augment({"noise": sounds(tmp_path / "n", noise(20_000))}, "noise"))
    (tmp_path / "n/0.wav").unlink()
    refused(f"^{tmp_path}/n/0.wav: no such file$", list, load(chosen, [[0]], workers))


def overrides(manifests):
    parts = {name: {"manifest": path} for name, path in manifests.items()}
    return [f"data.augment={json.dumps(parts | {'volume': {}})}"]


class Whisper(Mock):
    """An effect of one's own."""


@each("made", [[np.nan, 0.0], [np.inf], [], [[0.0, 1.0]], 1.0])
def test_an_effect_that_makes_no_waveform_is_named(made):
    augment = Augment(AugmentSettings())
    augment.effects = [whisper := Whisper(return_value=made)]
    refused("Whisper returned shape", augment, SHORT[:2], RATE, 0)
    whisper.return_value = [0.1, 0.2]
    assert augment(SHORT[:2], RATE, 0).dtype == np.float32


def test_statistics_and_validation_hear_the_recordings_as_they_are(root, manifests):
    found = []
    for changes in ([], overrides(manifests)):
        settings = experiment(root, *changes)
        torch.manual_seed(1)
        model = build(settings)
        examples = settings.read(model)
        settings.fit_statistics(model, examples.train)
        found.append(model.frontend.cmvn.state_dict())
    assert_same(*found)
    assert examples.train.augment and examples.dev.augment is None


def test_a_run_is_another_with_other_noises(root, tmp_path, manifests):
    def facts(*overrides):
        return stamp_of(root / "x.yaml", overrides).facts

    path = sounds(tmp_path / "n", noise(800))
    how = overrides({"noise": path})
    before = facts(*how)
    assert facts(*how) == before and path in before["inputs"]
    soundfile.write(tmp_path / "n/1.wav", noise(900), RATE)
    prepare("folder", tmp_path / "n", tmp_path / "n/out")
    assert facts(*how) != before
    assert {*manifests.values()} <= {*facts(*overrides(manifests))["inputs"]}
    assert facts("data.augment=7")["inputs"]
