"""Prove SpecAugment: masks and warps depend on seed and utterance alone, stay within their bounds and off the padding.

Reference of time warping: numpy; of the spans: plain loops.
"""

import numpy as np
import torch
from small import near, noise, options
from torch.testing import assert_close

from asr.features.specaugment import SpecAugment, SpecAugmentSettings, spans, time_warp
from asr.ops import length_mask


def uniform(*shape):
    return torch.rand(shape, dtype=torch.double, generator=torch.Generator().manual_seed(1))


def make(text=""):
    return SpecAugment(SpecAugmentSettings(**options(text)))


def augment(lens, text="", seeds=None):
    """SpecAugment in training mode on ones, padded with twos."""
    lens, seeds = torch.tensor(lens), torch.tensor(seeds or range(len(lens)))
    X = torch.ones(len(lens), int(lens.max()), 40)
    X[length_mask(lens, X.size(1))] = 2
    masked = make(text)(X, lens, seeds)
    assert X.all()  # the input is left as it was
    return masked


def test_masks_never_touch_padding_and_stay_within_bounds():
    lens = [300, 40, 7, 1] * 50
    text = "freq_masks: 2, freq_width: 10, time_masks: 3, time_width: 20, time_ratio: 0.2"
    for row, length in zip(augment(lens, text), lens, strict=True):
        assert (row[length:] == 2).all()
        zero = row[:length] == 0
        times = zero.all(1)
        assert times.sum() <= 3 * min(20, int(0.2 * length))
        rest = zero[~times]  # what time masks left shows the frequency masks alone
        assert rest.all(0).equal(rest.any(0)) or times.all()
        assert rest.any(0).sum() <= 20


def test_masks_are_everywhere_and_as_much_as_stated():
    share = {
        "freq_masks: 1, freq_width: 10, time_masks: 0": (5 / 40, (0, 1)),
        "freq_masks: 0, time_masks: 1, time_width: 50, time_ratio: 0.2": (0.1, (0, 2)),
    }
    for text, (expected, others) in share.items():
        zero = augment([100] * 2000, text) == 0
        near(zero.double().mean().item(), expected, 0.01)
        assert zero.any(others).all()  # the first and the last, too


def test_spans_are_plain_loops():
    u, lens = uniform(20, 2, 3), torch.arange(1, 21)
    widest, count = lens // 2, torch.arange(20) % 4
    every, some = torch.zeros(2, 20, 25, dtype=torch.bool)
    for b in range(20):
        for m in range(3):
            width = int(u[b, 0, m] * (widest[b] + 1))
            start = int(u[b, 1, m] * (lens[b] - width + 1))
            every[b, start : start + width] = True
            some[b, start : start + width] |= m < count[b]
    assert_close(spans(u, lens, widest, 25), every)
    assert_close(spans(u, lens, widest, 25, count), some)


def test_time_multiplicity_gives_longer_utterances_more_masks():
    text = "freq_masks: 0, time_masks: 6, time_width: 1, time_ratio: 1.0, time_multiplicity: 0.04"
    for frames, count in {300: 6, 125: 5, 100: 4, 24: 0}.items():
        masked = (augment([frames] * 500, text) == 0).all(2).sum(1)  # a mask is one frame or none
        assert masked.max() == count, frames
        near(masked.double().mean().item(), count / 2, 0.2)


WARPED = [200, 90, 30, 25, 23, 22, 7, 1]  # frames; at W = 10 the last three have no room


def test_time_warp_is_a_loop_over_utterances():
    W, lens = 10, WARPED * 40
    X, u = noise(len(lens), 200, 3, seed=2), uniform(len(lens), 2)
    u[:8], u[8:16] = 0, 1 - 2**-53
    before = X.clone()
    Y = time_warp(X, torch.tensor(lens), W, u)
    near(X, before)  # the input is left as it was
    for n, frames in enumerate(lens):
        points = range(W + 1, frames - 1 - W)
        if points:
            c = points[int(u[n, 0] * len(points))]
            d = c + range(-W, W + 1)[int(u[n, 1] * (2 * W + 1))]
            t = np.arange(frames)
            source = np.interp(t, [0, d, frames - 1], [0, c, frames - 1])
            for old, new in zip(before[n, :frames].T, X[n, :frames].T, strict=True):
                new[:] = torch.from_numpy(np.interp(source, t, old))
    assert_close(Y, X, rtol=1e-5, atol=1e-5)


def test_an_utterance_is_augmented_by_its_seed_in_any_batch_and_in_training_alone():
    X, lens, seeds = noise(8, 200, 40, seed=2), torch.tensor(WARPED), torch.arange(8)
    for text in ("", "freq_masks: 0, time_masks: 0, time_warp: 10"):
        augmentation = make(text)
        Y = augmentation(X, lens, seeds)
        for n, frames in enumerate(WARPED):
            alone = augmentation(X[[n], :frames], lens[[n]], seeds[[n]])
            near(alone[0], Y[n, :frames])
            near(Y[n, frames:], X[n, frames:])
            if text:
                assert (alone[0] != X[n, :frames]).any() == (frames >= 23)
        assert not augmentation(X, lens, seeds + 9).equal(Y)
        near(augmentation.eval()(X, lens, seeds), X)
    near(make("freq_masks: 0, time_masks: 0")(X, lens, seeds), X)
    # a mask is no wider for the warp, and stands where it stood
    near(augment([200, 90], "time_warp: 40"), augment([200, 90]))
