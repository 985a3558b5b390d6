"""Prove SpecAugment: masks and warps depend on seed and utterance alone, stay within their bounds and off the padding.

Reference of time warping: numpy; of the spans: plain loops.
"""

import numpy as np
import torch
from torch.testing import assert_close

from asr.features.specaugment import SpecAugment, SpecAugmentSettings, spans, time_warp


def augment(lens, seeds, features=40, **settings):
    """SpecAugment in training mode on ones, padded with twos."""
    X = torch.ones(len(lens), max(lens), features)
    for row, length in zip(X, lens, strict=True):
        row[length:] = 2
    chosen = SpecAugment(SpecAugmentSettings(**settings))
    return chosen(X, torch.tensor(lens), torch.tensor(seeds)), X


def test_specaugment_never_touches_padding_and_stays_within_bounds():
    lens, seeds = [300, 40, 7, 1] * 50, list(range(200))
    settings = {
        "freq_masks": 2,
        "freq_width": 10,
        "time_masks": 3,
        "time_width": 20,
        "time_ratio": 0.2,
    }
    X, before = augment(lens, seeds, **settings)
    for n, length in enumerate(lens):
        assert (X[n, length:] == 2).all()
        times, bins = (X[n, :length] == 0).all(1).sum(), (X[n, :length] == 0).all(0).sum()
        assert times == length or bins <= 20
        assert times <= 3 * min(20, int(0.2 * length))
        rest = X[n, :length][
            ~(X[n, :length] == 0).all(1)
        ]  # what time masks left shows the frequency masks alone
        assert ((rest == 0).all(0) | (rest == 1).all(0)).all()
    assert (before[:, 0] == 1).all()  # the input is left as it was


def test_specaugment_masks_everywhere_and_as_much_as_stated():
    X, _ = augment([100] * 2000, list(range(2000)), freq_masks=1, freq_width=10, time_masks=0)
    assert_close(
        (X == 0).double().mean(), torch.tensor(5 / 40, dtype=torch.double), rtol=0, atol=0.01
    )
    assert (X == 0).any(1).any(0).all()  # every bin is masked somewhere, the first and last too
    X, _ = augment(
        [100] * 2000, list(range(2000)), freq_masks=0, time_masks=1, time_width=50, time_ratio=0.2
    )
    assert_close((X == 0).double().mean(), torch.tensor(0.1, dtype=torch.double), rtol=0, atol=0.01)
    assert (X == 0).any(2).any(0).all()


def test_specaugment_is_the_same_in_any_batch_and_of_any_device():
    X, _ = augment([90, 60, 30], [1, 2, 3])
    alone, _ = augment([60], [2])
    assert_close(X[1, :60], alone[0], rtol=0, atol=0)
    assert (augment([60], [4])[0] != alone).any()


def test_specaugment_is_off_in_evaluation():
    chosen = SpecAugment(SpecAugmentSettings()).eval()
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
    settings = {
        "freq_masks": 0,
        "time_masks": 6,
        "time_width": 1,
        "time_ratio": 1.0,
        "time_multiplicity": 0.04,
    }
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
    u[:16] = torch.tensor([[0, 0], [1 - 2**-53, 1 - 2**-53]], dtype=torch.double).repeat_interleave(
        8, 0
    )
    Y = time_warp(X, torch.tensor(WARPED * 40), W, u)
    for n, frames in enumerate(WARPED * 40):
        expected = before[n].clone()
        points = range(W + 1, frames - 1 - W)
        if points:
            c = points[int(u[n, 0] * len(points))]
            d = c + range(-W, W + 1)[int(u[n, 1] * (2 * W + 1))]
            source = np.interp(np.arange(frames), [0, d, frames - 1], [0, c, frames - 1])
            for f in range(3):
                warped = np.interp(
                    source, np.arange(frames), before[n, :frames, f].double().numpy()
                )
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
    warp = SpecAugment(SpecAugmentSettings(**only))
    X, lens, seeds = ramps(WARPED), torch.tensor(WARPED), torch.arange(len(WARPED))
    Y = warp(X, lens, seeds)
    for n, frames in enumerate(WARPED):
        assert_close(
            warp(X[n : n + 1, :frames], lens[n : n + 1], seeds[n : n + 1])[0],
            Y[n, :frames],
            rtol=0,
            atol=0,
        )
        assert (Y[n, :frames] != X[n, :frames]).any() == (frames >= 23) and (
            Y[n, frames:] == 99
        ).all()
    assert (warp(X, lens, seeds + 9) != Y).any()
    assert_close(warp.eval()(X, lens, seeds), X, rtol=0, atol=0)
    none = SpecAugment(SpecAugmentSettings(**only | {"time_warp": 0}))
    assert_close(none(X, lens, seeds), X, rtol=0, atol=0)
    ones, masked = augment([200, 90], [1, 2])[0], augment([200, 90], [1, 2], time_warp=40)[0]
    assert_close(
        masked, ones, rtol=0, atol=0
    )  # a mask is no wider for the warp, and stands where it stood
