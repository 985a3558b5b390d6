"""Prove that the features are Kaldi's, whatever the batch, and that augmentation depends on seed and utterance alone.

Reference of the filterbank: `torchaudio.compliance.kaldi.fbank` where torchaudio can be imported, and everywhere
Kaldi's formula written out in float64 below. Of the random numbers: SplitMix64 in Python's integers, itself held to
its published numbers. Of time warping: numpy. The rest are laws.
"""

import math
import multiprocessing

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from asr import audio, optional
from asr.errors import UserError
from asr.features.fbank import Fbank, FbankSettings
from asr.features.frontend import Frontend, FrontendSettings
from asr.features.noise import another, normals, uniforms, utterance_seed
from asr.features.specaugment import SpecAugment, SpecAugmentSettings, spans, time_warp
from asr.features.threads import in_threads

RATES = [8000, 16000, 44100]


@pytest.fixture(scope="session")
def kaldi():
    """torchaudio's fbank of one waveform (S,) in [-1, 1], with Kaldi's defaults but for what is given."""
    try:
        fbank = optional.torchaudio("torchaudio.compliance.kaldi").fbank
    except UserError as error:
        pytest.skip(f"{error}; Kaldi's formula in float64 is tested all the same")

    def reference(waveform, rate, mels=80, low=20.0, high=0.0, **others):
        options = {"sample_frequency": rate, "num_mel_bins": mels, "low_freq": low, "high_freq": high, "dither": 0.0}
        return fbank(waveform.unsqueeze(0) * 32768, **options, **others)

    return reference


def formula(waveform, rate, mels=80, low=20.0, high=None):
    """Kaldi's compute-fbank-feats with its defaults, frame by frame in float64."""
    x = waveform.double().numpy() * 32768
    size, shift = int(rate * 0.025), int(rate * 0.01)
    fft = 2 ** math.ceil(math.log2(size))
    window = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / (size - 1))) ** 0.85
    edges = np.linspace(*(1127 * np.log(1 + f / 700) for f in (low, high or rate / 2)), mels + 2)
    bins = 1127 * np.log(1 + np.arange(fft // 2) * rate / fft / 700)
    filters = np.stack([np.interp(bins, edges[m : m + 3], [0, 1, 0], left=0, right=0) for m in range(mels)], axis=1)
    rows = []
    for start in range(0, len(x) - size + 1, shift):
        frame = x[start : start + size] - x[start : start + size].mean()
        frame = np.concatenate([frame[:1] * 0.03, frame[1:] - 0.97 * frame[:-1]]) * window
        rows.append(np.abs(np.fft.rfft(frame, fft)[: fft // 2]) ** 2 @ filters)
    return torch.from_numpy(np.log(np.maximum(rows, np.finfo(np.float32).eps))).float()


def sounds(rate):
    """Waveforms of different kinds and lengths."""
    noise = torch.Generator().manual_seed(rate)

    def random(seconds, gain):
        return torch.randn(int(seconds * rate), generator=noise) * gain

    t = torch.arange(int(0.61 * rate)) / rate
    return {
        "noise": random(0.731, 0.1),
        "loud noise": random(0.3, 1.0).clamp(-1, 1),
        "a tone": 0.5 * torch.sin(2 * torch.pi * 440 * t),
        "near silence": (random(0.52, 0.6 / 32768) * 32768).round() / 32768,
        "digital silence": torch.zeros(int(0.2 * rate)),
        "silence, then noise": torch.cat([torch.zeros(int(0.2 * rate)), random(0.25, 0.05)]),
        "an offset": torch.full((int(0.15 * rate),), 100 / 32768),
        "one frame": random(0.025, 0.1),
    }


def batch(waveforms):
    """Pad with NaN, which nothing may read."""
    lens = torch.tensor([len(w) for w in waveforms])
    return torch.nn.utils.rnn.pad_sequence(waveforms, batch_first=True, padding_value=torch.nan), lens


def check_fbank(fbank, waveforms, reference, names=None):
    """Each utterance of the batch equals the reference; what is beyond its length is zero."""
    X, X_lens = fbank(*batch(waveforms))
    for n, waveform in enumerate(waveforms):
        expected = reference(waveform)
        assert len(expected) == X_lens[n]
        name = (names or range(len(waveforms)))[n]
        assert_close(X[n, : X_lens[n]], expected, rtol=0, atol=1e-3, msg=lambda m, name=name: f"{name}: {m}")
        assert not X[n, X_lens[n] :].any()


@pytest.mark.parametrize("rate", RATES)
def test_fbank_is_kaldis(kaldi, rate):
    kinds = sounds(rate)
    check_fbank(Fbank(rate), list(kinds.values()), lambda w: kaldi(w, rate), list(kinds))


@pytest.mark.parametrize("rate", RATES)
def test_fbank_is_the_formula(rate):
    kinds = {k: w for k, w in sounds(rate).items() if k not in ("a tone", "an offset")}  # float32 leaks beside a tone
    check_fbank(Fbank(rate), list(kinds.values()), lambda w: formula(w, rate), list(kinds))


@pytest.mark.parametrize("rate", RATES)
def test_fbank_of_speech_is_kaldis(kaldi, shared_data, rate):
    files = sorted(shared_data.glob("librispeech/LibriSpeech/*/*/*/*.flac"))[:2]
    files += (
        sorted(shared_data.glob("common_voice_*/clips/*.opus"))[:1] + sorted(shared_data.glob("yesno/**/*.wav"))[:1]
    )
    assert len(files) == 4
    speech = [torch.from_numpy(audio.load(path, rate)[: 4 * rate]) for path in files]
    check_fbank(Fbank(rate), speech, lambda w: kaldi(w, rate), files)


@pytest.mark.parametrize("mels, low, high", [(23, 20.0, None), (40, 0.0, 7600.0), (80, 125.0, 3800.0), (4, 20.0, None)])
def test_fbank_of_other_sizes_is_kaldis(kaldi, mels, low, high):
    waveforms = [sounds(16000)["noise"], sounds(16000)["loud noise"]]
    fbank = Fbank(16000, mels, low_hz=low, high_hz=high)
    check_fbank(fbank, waveforms, lambda w: kaldi(w, 16000, mels, low, high or 0.0))


@pytest.mark.parametrize("frame_ms, shift_ms", [(20.0, 10.0), (32.0, 8.0), (25.0, 12.5)])
def test_fbank_of_other_frames_is_kaldis(kaldi, frame_ms, shift_ms):
    reference = {"frame_length": frame_ms, "frame_shift": shift_ms}
    fbank = Fbank(16000, frame_ms=frame_ms, shift_ms=shift_ms)
    check_fbank(fbank, [sounds(16000)["noise"]], lambda w: kaldi(w, 16000, **reference))


def test_fbank_alone_and_in_a_batch():
    waveforms = list(sounds(16000).values())
    fbank = Fbank(16000)
    X, X_lens = fbank(*batch(waveforms))
    for n, waveform in enumerate(waveforms):
        alone, alone_lens = fbank(*batch([waveform]))
        assert_close(X[n, : X_lens[n]], alone[0], rtol=0, atol=1e-4)
        assert alone_lens.tolist() == [X_lens[n]] and alone.size(1) == X_lens[n]


def test_fbank_is_float32_under_autocast_and_leaves_its_input():
    waveforms, lens = batch([sounds(16000)["noise"]])
    before = waveforms.clone()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        X, _ = Fbank(16000)(waveforms, lens)
    assert_close(X, Fbank(16000)(waveforms, lens)[0], rtol=0, atol=0)
    assert_close(waveforms, before, rtol=0, atol=0)


def test_too_short_for_a_frame_names_the_utterance():
    with pytest.raises(ValueError, match=r"utterance 1 of the batch: got 399 samples, expected 400 or more"):
        Fbank(16000)(*batch([torch.zeros(800), torch.zeros(399)]))


@pytest.mark.parametrize("low, high", [(-1.0, 100.0), (100.0, 100.0), (20.0, 8001.0), (9000.0, None)])
def test_impossible_mel_edges(low, high):
    with pytest.raises(ValueError, match="mel edges: got .* Hz, expected 0 <= low < high <= 8000.0"):
        Fbank(16000, low_hz=low, high_hz=high)
    with pytest.raises(ValueError, match="mel edges|greater than or equal to 0"):
        FbankSettings(sample_rate=16000, low_hz=low, high_hz=high)


def test_mel_floor_makes_digital_silence_the_noise_of_elsewhere():
    waveforms = 0.003 * torch.randn(2, 16000, generator=torch.Generator().manual_seed(1))  # -50 dB
    waveforms[1, 4000:12000] = 0  # a gate
    lens = torch.tensor([16000, 16000])
    X, X_lens = Fbank(16000)(waveforms, lens)
    floored, _ = Fbank(16000, mel_floor=3e4)(waveforms, lens)
    assert_close(floored, X.clamp(min=math.log(3e4)), rtol=0, atol=0)
    assert X[1].min() < -15 and X[0].min() < floored.min() < X[0].mean()
    shorter, lens = Fbank(16000, mel_floor=3e4)(waveforms, torch.tensor([16000, 8000]))
    assert (shorter[1, lens[1] :] == 0).all()  # padding is no silence


def test_dither_is_seeded_by_utterance():
    fbank = Fbank(16000, dither=1.0)
    long, short = sounds(16000)["near silence"], sounds(16000)["digital silence"]
    seeds = torch.tensor([5, 6])
    X, X_lens = fbank(*batch([long, short]), seeds)
    alone, _ = fbank(*batch([short]), seeds[1:])
    assert_close(X[1, : X_lens[1]], alone[0], rtol=0, atol=1e-3)
    assert_close(X, fbank(*batch([long, short]), seeds)[0], rtol=0, atol=0)
    other, _ = fbank(*batch([short]), torch.tensor([7]))
    assert (other - alone).abs().mean() > 0.1
    # silence with dither of deviation 1 has the energy of white noise; without, Kaldi's floor
    still = fbank.eval()(*batch([short]), seeds[1:])[0]
    assert_close(still, torch.full_like(still, math.log(torch.finfo(torch.float32).eps)))
    expected = formula(torch.randn(16000, generator=torch.Generator().manual_seed(1)) / 32768, 16000)
    assert_close(alone[0].mean(), expected.mean(), rtol=0, atol=0.1)


def augment(lens, seeds, features=40, **settings):
    """SpecAugment in training mode on ones, padded with twos."""
    X = torch.ones(len(lens), max(lens), features)
    for row, length in zip(X, lens, strict=True):
        row[length:] = 2
    chosen = SpecAugment(**SpecAugmentSettings(**settings).model_dump())
    return chosen(X, torch.tensor(lens), torch.tensor(seeds)), X


def test_specaugment_never_touches_padding_and_stays_within_bounds():
    lens, seeds = [300, 40, 7, 1] * 50, list(range(200))
    settings = {"freq_masks": 2, "freq_width": 10, "time_masks": 3, "time_width": 20, "time_ratio": 0.2}
    X, before = augment(lens, seeds, **settings)
    for n, length in enumerate(lens):
        assert (X[n, length:] == 2).all()
        times, bins = (X[n, :length] == 0).all(1).sum(), (X[n, :length] == 0).all(0).sum()
        assert times == length or bins <= 20
        assert times <= 3 * min(20, int(0.2 * length))
        rest = X[n, :length][~(X[n, :length] == 0).all(1)]  # what time masks left shows the frequency masks alone
        assert ((rest == 0).all(0) | (rest == 1).all(0)).all()
    assert (before[:, 0] == 1).all()  # the input is left as it was


def test_specaugment_masks_everywhere_and_as_much_as_stated():
    X, _ = augment([100] * 2000, list(range(2000)), freq_masks=1, freq_width=10, time_masks=0)
    assert_close((X == 0).double().mean(), torch.tensor(5 / 40, dtype=torch.double), rtol=0, atol=0.01)
    assert (X == 0).any(1).any(0).all()  # every bin is masked somewhere, the first and last too
    X, _ = augment([100] * 2000, list(range(2000)), freq_masks=0, time_masks=1, time_width=50, time_ratio=0.2)
    assert_close((X == 0).double().mean(), torch.tensor(0.1, dtype=torch.double), rtol=0, atol=0.01)
    assert (X == 0).any(2).any(0).all()


def test_specaugment_is_the_same_in_any_batch_and_of_any_device():
    X, _ = augment([90, 60, 30], [1, 2, 3])
    alone, _ = augment([60], [2])
    assert_close(X[1, :60], alone[0], rtol=0, atol=0)
    assert (augment([60], [4])[0] != alone).any()


def test_specaugment_is_off_in_evaluation():
    chosen = SpecAugment(**SpecAugmentSettings().model_dump()).eval()
    X = torch.ones(1, 50, 40)
    assert_close(chosen(X, torch.tensor([50]), torch.tensor([1])), X, rtol=0, atol=0)


def test_spans_are_plain_loops():
    u = torch.rand(20, 2, 3, dtype=torch.double, generator=torch.Generator().manual_seed(1))
    lens, widest = torch.arange(1, 21), torch.arange(1, 21) // 2
    expected = torch.zeros(20, 25, dtype=torch.bool)
    for b in range(20):
        for m in range(3):
            width = int(u[b, 0, m] * (widest[b] + 1))
            start = int(u[b, 1, m] * (lens[b] - width + 1))
            expected[b, start : start + width] = True
    assert_close(spans(u, lens, widest, 25), expected)
    count = torch.arange(20) % 4
    for b in range(20):
        fewer = spans(u[b : b + 1, :, : int(count[b])], lens[b : b + 1], widest[b : b + 1], 25)
        assert_close(spans(u, lens, widest, 25, count)[b], fewer[0])


def test_time_multiplicity_gives_longer_utterances_more_masks():
    settings = {"freq_masks": 0, "time_masks": 6, "time_width": 1, "time_ratio": 1.0, "time_multiplicity": 0.04}
    most = {300: 6, 125: 5, 100: 4, 24: 0}
    for frames, count in most.items():
        X, _ = augment([frames] * 500, list(range(500)), **settings)
        masked = (X == 0).all(2).sum(1)  # a mask is one frame or none
        assert masked.max() == count, frames
        assert_close(masked.double().mean(), torch.tensor(count / 2).double(), rtol=0, atol=0.2)


WARPED = [200, 90, 30, 25, 23, 22, 7, 1]  # frames; at W = 10 the last three have no room


def ramps(lens, F=3):
    """Features that say their frame, each bin in its own way, padded with 99."""
    X = torch.full((len(lens), max(lens), F), 99.0)
    for row, length in zip(X, lens, strict=True):
        row[:length] = torch.arange(length).unsqueeze(1) ** torch.linspace(0.5, 1.5, F)
    return X


def test_time_warp_is_a_loop_over_utterances():
    W, rng = 10, torch.Generator().manual_seed(1)
    X, before = ramps(WARPED * 40), ramps(WARPED * 40)
    u = torch.rand(len(X), 2, dtype=torch.double, generator=rng)
    u[:16] = torch.tensor([[0, 0], [1 - 2**-53, 1 - 2**-53]], dtype=torch.double).repeat_interleave(8, 0)
    Y = time_warp(X, torch.tensor(WARPED * 40), W, u)
    for n, frames in enumerate(WARPED * 40):
        expected = before[n].clone()
        points = range(W + 1, frames - 1 - W)
        if points:
            c = points[int(u[n, 0] * len(points))]
            d = c + range(-W, W + 1)[int(u[n, 1] * (2 * W + 1))]
            source = np.interp(np.arange(frames), [0, d, frames - 1], [0, c, frames - 1])
            for f in range(3):
                warped = np.interp(source, np.arange(frames), before[n, :frames, f].double().numpy())
                expected[:frames, f] = torch.from_numpy(warped).float()
        assert_close(Y[n], expected, rtol=1e-5, atol=1e-5)
    assert_close(X, before, rtol=0, atol=0)  # the input is left as it was


def test_time_warp_moves_every_way_and_no_farther():
    frames, W = 60, 8
    u = torch.rand(2000, 2, dtype=torch.double, generator=torch.Generator().manual_seed(1))
    t = torch.arange(frames).float().view(1, -1, 1)
    moved = (time_warp(t.expand(2000, -1, -1), torch.full((2000,), frames), W, u) - t).squeeze(2)
    assert moved.min() == -W and moved.max() == W
    assert not moved[:, 0].any() and not moved[:, -1].any()
    assert (torch.diff(moved + t.squeeze(2)) > 0).all()  # time goes on
    assert_close(moved.mean(), torch.tensor(0.0), rtol=0, atol=0.2)


def test_time_warp_by_seed_in_any_batch_and_before_the_masks():
    only = {"freq_masks": 0, "time_masks": 0, "time_warp": 10}
    warp = SpecAugment(**SpecAugmentSettings(**only).model_dump())
    X, lens, seeds = ramps(WARPED), torch.tensor(WARPED), torch.arange(len(WARPED))
    Y = warp(X, lens, seeds)
    for n, frames in enumerate(WARPED):
        assert_close(warp(X[n : n + 1, :frames], lens[n : n + 1], seeds[n : n + 1])[0], Y[n, :frames], rtol=0, atol=0)
        assert (Y[n, :frames] != X[n, :frames]).any() == (frames >= 23) and (Y[n, frames:] == 99).all()
    assert (warp(X, lens, seeds + 9) != Y).any()
    assert_close(warp.eval()(X, lens, seeds), X, rtol=0, atol=0)
    none = SpecAugment(**SpecAugmentSettings(**only | {"time_warp": 0}).model_dump())
    assert_close(none(X, lens, seeds), X, rtol=0, atol=0)
    ones, masked = augment([200, 90], [1, 2])[0], augment([200, 90], [1, 2], time_warp=40)[0]
    assert_close(masked, ones, rtol=0, atol=0)  # a mask is no wider for the warp, and stands where it stood


def test_frontend_joins_its_parts_and_augments_only_with_seeds_in_training():
    settings = FrontendSettings(fbank={"sample_rate": 16000, "mels": 40}, specaugment={"time_ratio": 0.5})
    frontend = Frontend(settings)
    waveforms, lens = batch([sounds(16000)["noise"], sounds(16000)["silence, then noise"]])
    X, X_lens = frontend.fbank(waveforms, lens)
    frontend.cmvn.fit([(X, X_lens)])
    plain, plain_lens = frontend(waveforms, lens)
    assert_close(plain, frontend.cmvn(X, X_lens))
    assert_close(plain_lens, X_lens)
    seeds = torch.tensor([1, 2])
    assert (frontend(waveforms, lens, seeds)[0] != plain).any()
    assert_close(frontend.eval()(waveforms, lens, seeds)[0], plain, rtol=0, atol=0)


def splitmix64(state, n):
    """The n-th output of SplitMix64 (Steele, Lea and Flood 2014) in Python's integers."""
    z = (state + n * 0x9E3779B97F4A7C15) % 2**64
    return finalise(z)


def finalise(z):
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def test_the_reference_generator_gives_the_published_numbers():
    """Seed 1234567, as in the test vectors of Rosetta Code's "Pseudo-random numbers/Splitmix64"."""
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert [splitmix64(1234567, n) for n in range(1, 6)] == published


def test_uniforms_are_splitmix64():
    seeds = [0, 1, -1, 2**62 + 12345, -(2**63), 2**63 - 1]
    expected = [[(splitmix64(finalise(s % 2**64), n) >> 11) * 2**-53 for n in range(1, 8)] for s in seeds]
    assert_close(uniforms(torch.tensor(seeds), 7), torch.tensor(expected, dtype=torch.double), rtol=0, atol=0)


def test_uniforms_are_sane():
    u = uniforms(torch.arange(400), 500)  # neighbouring seeds, as the worst case
    assert u.min() >= 0 and u.max() < 1
    half, twelfth = torch.tensor([0.5, 1 / 12], dtype=torch.double)
    assert_close(u.mean(), half, rtol=0, atol=0.003)
    assert_close(u.var(), twelfth, rtol=0, atol=0.001)
    assert_close(u.mean(0), half.expand(500), rtol=0, atol=0.08)  # five standard deviations
    assert_close(u.mean(1), half.expand(400), rtol=0, atol=0.07)
    counts = torch.histc(u, 20, 0, 1)
    assert ((counts - 10_000) ** 2 / 10_000).sum() < 50  # chi-squared with 19 degrees of freedom, p = 1e-4
    for a, b in ((u[:-1], u[1:]), (u[:, :-1], u[:, 1:])):
        assert torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1].abs() < 0.012
    assert len(u.unique()) == u.numel()


def test_another_seed_is_a_number_that_uniforms_never_draws():
    seeds = [0, 1, -1, 2**62 + 12345, -(2**63)]
    made = [splitmix64(finalise(s % 2**64), -1) for s in seeds]
    assert [s % 2**64 for s in another(torch.tensor(seeds)).tolist()] == made
    both = torch.stack([uniforms(torch.arange(2000), 9).flatten(), uniforms(another(torch.arange(2000)), 9).flatten()])
    assert torch.corrcoef(both)[0, 1].abs() < 0.03


def two_views(lens, seeds, **changes):
    """Features of noise, from a frontend in training mode."""
    settings = {"freq_masks": 1, "freq_width": 9, "time_masks": 2, "time_width": 20, "time_ratio": 0.2} | changes
    frontend = Frontend(FrontendSettings(fbank={"sample_rate": 8000, "mels": 24}, specaugment=settings)).train()
    waveforms = torch.zeros(len(lens), max(lens))
    for row, length, seed in zip(waveforms, lens, seeds, strict=True):
        row[:length] = torch.randn(length, generator=torch.Generator().manual_seed(seed))
    return frontend, (waveforms, torch.tensor(lens), torch.tensor(seeds))


def test_two_views_differ_in_their_masks_alone():
    """Where neither is masked they are equal, though time is warped; the first is what one view is."""
    frontend, batch = two_views([16000, 9000], [1, 2], time_warp=10)
    X, X_lens = frontend.two_views(*batch)
    one, one_lens = frontend(*batch)
    assert_close((X[:2], X_lens), (one, one_lens.repeat(2)), rtol=0, atol=0)
    for first, second, length in zip(X[:2], X[2:], one_lens, strict=True):
        real = slice(0, int(length))
        either = (first[real] == 0) | (second[real] == 0)
        assert torch.equal(first[real][~either], second[real][~either]) and 0 < either.sum() < either.numel()
        assert ((first[real] == 0) != (second[real] == 0)).any()
        assert not second[length:].any()


def test_a_view_is_the_same_in_any_batch():
    frontend, batch = two_views([16000, 9000, 12000], [1, 2, 3], time_warp=5)
    X, X_lens = frontend.two_views(*batch)
    frontend, alone = two_views([9000], [2], time_warp=5)
    Z, Z_lens = frontend.two_views(*alone)
    assert_close(torch.stack([X[1], X[4]])[:, : X_lens[1]], Z, rtol=1e-5, atol=1e-5)


def test_uniforms_do_not_depend_on_batch_or_count():
    u = uniforms(torch.tensor([3, 1, 2]), 9)
    assert_close(uniforms(torch.tensor([1]), 5)[0], u[1, :5], rtol=0, atol=0)


def test_normals_are_sane():
    x = normals(torch.arange(200), 1000).double()
    moments = torch.stack([x.mean(), x.var(), (x**3).mean(), (x**4).mean()])
    assert_close(moments, torch.tensor([0.0, 1.0, 0.0, 3.0], dtype=torch.double), rtol=0, atol=0.1)
    assert x.isfinite().all()


def test_utterance_seeds():
    """The number is blake2b's of b"1\\x1f2\\x1fa" by coreutils' `b2sum -l 64`, read as little-endian and halved."""
    assert utterance_seed(1, 2, "a") == 4869288256290416682
    assert len({utterance_seed(s, e, u) for s in range(5) for e in range(5) for u in ("a", "b", "1")}) == 75
    assert utterance_seed(1, 12, "x") != utterance_seed(11, 2, "x")
    assert all(0 <= utterance_seed(n) < 2**63 for n in range(50))


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_threads_change_nothing(threads):
    """Also where no gradient may be recorded, and of an utterance alone that is longer than a block."""
    generator, before = torch.Generator().manual_seed(3), torch.get_num_threads()
    fbank, lens = Fbank(16000), torch.tensor([150_000, 3_000, 16_000, 90_000])
    waveforms = torch.rand(4, 150_000, generator=generator) - 0.5
    try:
        torch.set_num_threads(1)
        expected = fbank(waveforms, lens)
        torch.set_num_threads(threads)
        for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
            with mode():
                X, X_lens = fbank(waveforms, lens)
                alone, _ = fbank(waveforms[:1], lens[:1])
            assert torch.equal(X, expected[0]) and torch.equal(X_lens, expected[1])
            assert torch.equal(alone[0], X[0]) and torch.get_num_threads() == threads
            assert X.is_inference() == (mode is torch.inference_mode)
    finally:
        torch.set_num_threads(before)


def test_a_fault_in_a_thread_is_raised():
    def fail(item):
        if item == 3:
            raise ValueError("three")

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with pytest.raises(ValueError, match="three"):
            in_threads(fail, [1, 2, 3, 4])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system can't fork")
def test_a_forked_process_has_threads_of_its_own():
    """It has none of its parent's, and would wait for them for ever."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        in_threads(abs, [1, 2, 3, 4])
        child = multiprocessing.get_context("fork").Process(target=in_threads, args=(abs, [1, 2, 3, 4]))
        child.start()
        child.join(20)
        assert child.exitcode == 0
    finally:
        torch.set_num_threads(before)


def test_features_have_a_gradient_where_it_is_asked_for():
    waveform = (torch.rand(1, 4000, dtype=torch.float32) - 0.5).requires_grad_()
    X, _ = Fbank(16000)(waveform, torch.tensor([4000]))
    X.sum().backward()
    assert waveform.grad.abs().sum() > 0
    assert_close(X.detach(), Fbank(16000)(waveform.detach(), torch.tensor([4000]))[0])
