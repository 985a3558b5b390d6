"""Prove that the features are Kaldi's, whatever the batch and the threads, and what the frontend makes of them.

Reference of the filterbank: `torchaudio.compliance.kaldi.fbank` where torchaudio can be imported, and everywhere
Kaldi's formula written out in float64 below. The rest are laws.
"""

import math
import multiprocessing

import numpy as np
import pytest
import torch
from small import each, near, options, rows
from torch.testing import assert_close

from asr import imports
from asr.device import in_threads
from asr.errors import UserError
from asr.features.fbank import Fbank, FbankSettings
from asr.features.frontend import Frontend, FrontendSettings

RATES = [8000, 16000, 44100]


@pytest.fixture(scope="session")
def kaldi():
    """torchaudio's fbank of one waveform (S,) in [-1, 1], with Kaldi's defaults but for what is given."""
    try:
        fbank = imports.torchaudio("torchaudio.compliance.kaldi").fbank
    except UserError as error:
        pytest.skip(f"{error}; Kaldi's formula in float64 is tested all the same")

    def reference(waveform, rate, num_mel_bins=80, **sizes):
        sizes |= {"sample_frequency": rate, "num_mel_bins": num_mel_bins, "dither": 0.0}
        return fbank(waveform[None] * 32768, **sizes)

    return reference


def formula(waveform, rate, mels=80):
    """Kaldi's compute-fbank-feats with its defaults in float64."""
    size, shift = int(rate * 0.025), int(rate * 0.01)
    fft = 2 ** math.ceil(math.log2(size))
    window = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / (size - 1))) ** 0.85
    edges = np.linspace(*(1127 * np.log(1 + f / 700) for f in (20, rate / 2)), mels + 2)
    bins = 1127 * np.log(1 + np.arange(fft // 2) * rate / fft / 700)
    filters = [np.interp(bins, edges[m : m + 3], [0, 1, 0], 0, 0) for m in range(mels)]
    frames = waveform.double().numpy() * 32768
    frames = np.lib.stride_tricks.sliding_window_view(frames, size)[::shift]
    frames = frames - frames.mean(1, keepdims=True)
    frames = frames - 0.97 * np.concatenate([frames[:, :1], frames[:, :-1]], 1)
    power = np.abs(np.fft.rfft(frames * window, fft)[:, : fft // 2]) ** 2
    energies = power @ np.transpose(filters)
    return torch.from_numpy(np.log(np.maximum(energies, np.finfo(np.float32).eps))).float()


def random(samples, gain, seed=1):
    return torch.randn(samples, generator=torch.Generator().manual_seed(seed)) * gain


def sounds(rate):
    """Waveforms of different kinds and lengths."""
    t, silence = torch.arange(int(0.61 * rate)) / rate, torch.zeros(int(0.2 * rate))
    return {
        "noise": random(int(0.731 * rate), 0.1),
        "loud noise": random(int(0.3 * rate), 1.0).clamp(-1, 1),
        "a tone": 0.5 * torch.sin(2 * torch.pi * 440 * t),
        "near silence": random(int(0.52 * rate), 0.6).round() / 32768,
        "digital silence": silence,
        "silence, then noise": torch.cat([silence, random(int(0.25 * rate), 0.05)]),
        "an offset": torch.full((int(0.15 * rate),), 100 / 32768),
        "one frame": random(int(0.025 * rate), 0.1),
    }


def batch(waveforms):
    """Pad with NaN, which nothing may read."""
    padded = torch.nn.utils.rnn.pad_sequence(waveforms, True, torch.nan)
    return padded, torch.tensor([len(w) for w in waveforms])


def check_fbank(fbank, waveforms, reference):
    """Each utterance of the batch equals the reference; what is beyond its length is zero."""
    X, X_lens = fbank(*batch(waveforms))
    for n, waveform in enumerate(waveforms):
        expected = reference(waveform)
        assert len(expected) == X_lens[n]
        near(X[n, : X_lens[n]], expected, 1e-3, msg=lambda m, n=n: f"utterance {n}: {m}")
        assert not X[n, X_lens[n] :].any()


@each("rate", RATES)
def test_fbank_is_kaldis(kaldi, rate):
    check_fbank(Fbank(rate), [*sounds(rate).values()], lambda w: kaldi(w, rate))


@each("rate", RATES)
def test_fbank_is_the_formula(rate):
    """But for a tone and an offset, beside which float32 leaks."""
    kinds = [w for kind, w in sounds(rate).items() if kind not in ("a tone", "an offset")]
    check_fbank(Fbank(rate), kinds, lambda w: formula(w, rate))


SIZES = """
mels: 23                       | num_mel_bins: 23
mels: 4                        | num_mel_bins: 4
low_hz: 0.0, high_hz: 7600.0   | low_freq: 0.0, high_freq: 7600.0
low_hz: 125.0, high_hz: 3800.0 | low_freq: 125.0, high_freq: 3800.0
frame_ms: 20.0                 | frame_length: 20.0
frame_ms: 32.0, shift_ms: 8.0  | frame_length: 32.0, frame_shift: 8.0
shift_ms: 12.5                 | frame_shift: 12.5
"""


@each("ours, kaldis", rows(SIZES))
def test_fbank_of_other_sizes_is_kaldis(kaldi, ours, kaldis):
    waveforms = [random(11_000, 0.1), random(4_800, 1.0).clamp(-1, 1)]
    fbank = Fbank(16000, **options(ours))
    check_fbank(fbank, waveforms, lambda w: kaldi(w, 16000, **options(kaldis)))


def test_fbank_is_float32_under_autocast_leaves_its_input_and_has_a_gradient_where_asked():
    waveforms, lens = random((2, 9000), 0.1), torch.tensor([9000, 5000])
    before = waveforms.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        X, _ = Fbank(16000)(waveforms, lens)
    near(waveforms, before.detach())
    Z, _ = Fbank(16000)(before, lens)
    near(Z.detach(), X)
    Z.sum().backward()
    assert before.grad.any()


def test_too_short_for_a_frame_names_the_utterance():
    with pytest.raises(ValueError, match="utterance 1 .*: got 399 samples, expected 400"):
        Fbank(16000)(*batch([torch.zeros(800), torch.zeros(399)]))


@each("low, high", [(-1.0, 100), (100.0, 100), (20.0, 8001), (9000.0, None)])
def test_impossible_mel_edges(low, high):
    for make in (Fbank, lambda rate, **edges: FbankSettings(sample_rate=rate, **edges)):
        with pytest.raises(ValueError, match=r"mel edges: got .* 8000.0|low_hz\n.* equal to 0"):
            make(16000, low_hz=low, high_hz=high)


def test_mel_floor_makes_digital_silence_the_noise_of_elsewhere():
    waveforms = random((2, 16000), 0.003)  # -50 dB
    waveforms[1, 4000:12000] = 0  # a gate
    lens, fbank = torch.tensor([16000, 8000]), Fbank(16000, mel_floor=3e4)
    X, _ = Fbank(16000)(waveforms, lens)
    floored, lens = fbank(waveforms, lens)
    near(floored[1, : lens[1]], X[1, : lens[1]].clamp(min=math.log(3e4)))
    assert X[1].min() < -15 and X[0].min() < floored[0].min() < X[0].mean()
    assert not floored[1, lens[1] :].any()  # padding is no silence


def test_dither_is_seeded_by_utterance():
    """Silence with dither of deviation 1 has the energy of white noise; without, Kaldi's floor."""
    fbank, seeds, silence = Fbank(16000, dither=1.0), torch.tensor([5, 6]), torch.zeros(3200)
    waveforms, lens = batch([random(8320, 0.6).round() / 32768, silence])
    X, X_lens = fbank(waveforms, lens, seeds)
    alone, other = (fbank(silence[None], lens[1:], torch.tensor([seed]))[0][0] for seed in (6, 7))
    near(X[1, : X_lens[1]], alone, 1e-3)
    near(fbank(waveforms, lens, seeds)[0], X)
    assert (other - alone).abs().mean() > 0.1
    near(alone.mean(), formula(random(16000, 1 / 32768), 16000).mean(), 0.1)
    still = fbank.eval()(silence[None], lens[1:], seeds[1:])[0]
    assert_close(still, torch.full_like(still, math.log(torch.finfo(torch.float32).eps)))


def frontend_of(text):
    fbank = {"sample_rate": 8000, "mels": 24}
    return Frontend(FrontendSettings(fbank=fbank, specaugment=options(text))).train()


MASKS = "freq_masks: 1, freq_width: 9, time_masks: 2, time_width: 20, time_ratio: 0.2"


def test_frontend_joins_its_parts_and_augments_only_with_seeds_in_training():
    frontend, seeds = frontend_of(f"{MASKS}, from_epoch: 2"), torch.tensor([1, 2])
    waveforms, lens = batch([random(5848, 0.1), random(3600, 0.05)])
    X, X_lens = frontend.extractor(waveforms, lens)
    frontend.cmvn.fit([(X, X_lens)])
    plain, _ = frontend(waveforms, lens)
    near(plain, frontend.cmvn(X, X_lens))
    near(frontend(waveforms, lens, seeds, epoch=1), (plain, X_lens))
    masked, _ = frontend(waveforms, lens, seeds, epoch=2)
    changed = masked != plain
    assert changed.any() and not masked[changed].any()  # 0 is the mean: masks come behind CMVN
    near(frontend.eval()(waveforms, lens, seeds, epoch=2)[0], plain)


def test_two_views_differ_in_their_masks_alone_and_are_the_same_in_any_batch():
    """Where neither is masked they are equal, though time is warped; the first is what one view is."""
    frontend = frontend_of(f"{MASKS}, time_warp: 10")
    waveforms, seeds = [random(n, 1.0) for n in (16000, 9000, 12000)], torch.tensor([1, 2, 3])
    X, X_lens = frontend(*batch(waveforms), seeds, views=2)
    one, one_lens = frontend(*batch(waveforms), seeds)
    near((X[:3], X_lens), (one, one_lens.repeat(2)))
    for n, length in enumerate(one_lens):
        first, second = views = X[n::3, :length]
        either = (views == 0).any(0)
        assert first[~either].equal(second[~either]) and either.any() and not either.all()
        assert not (first == 0).equal(second == 0)
        assert not X[n::3, length:].any()
        alone, _ = frontend(*batch([waveforms[n]]), seeds[[n]], views=2)
        assert_close(alone, views, rtol=1e-5, atol=1e-5)


@each("number", [2, 3, 8])
def test_threads_change_nothing(threads, number):
    """Also where no gradient may be recorded, and of an utterance alone that is longer than a block."""
    fbank, lens = Fbank(16000), torch.tensor([150_000, 3_000, 16_000, 90_000])
    waveforms = random((4, 150_000), 0.2)
    threads(1)
    expected, expected_lens = fbank(waveforms, lens)
    threads(number)
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with mode():
            X, X_lens = fbank(waveforms, lens)
            alone, _ = fbank(waveforms[:1], lens[:1])
        assert X.equal(expected) and X_lens.equal(expected_lens) and alone[0].equal(X[0])
        assert torch.get_num_threads() == number
        assert X.is_inference() == (mode is torch.inference_mode)


def test_a_fault_in_a_thread_is_raised(threads):
    threads(2)
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda item: 1 / (item - 3), [1, 2, 3, 4])
    assert torch.get_num_threads() == 2


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
def test_a_forked_process_has_threads_of_its_own(threads):
    """It has none of its parent's, and would wait for them for ever."""
    threads(2)
    work = (abs, [1, 2, 3, 4])
    in_threads(*work)
    child = multiprocessing.get_context("fork").Process(target=in_threads, args=work)
    child.start()
    child.join(20)
    assert child.exitcode == 0
