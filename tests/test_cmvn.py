"""Prove CMVN: numpy's mean and deviation, of the training set and of each utterance, whatever stands in the padding."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from asr.features.cmvn import CMVN
from asr.features.frontend import Frontend, FrontendSettings


def test_cmvn_is_numpys_mean_and_deviation():
    rng = torch.Generator().manual_seed(1)
    lens = [torch.tensor([7, 3]), torch.tensor([4, 5, 1])]
    batches = [(torch.randn(len(n), int(n.max()), 6, generator=rng) * 5 - 11, n) for n in lens]
    for X, n in batches:
        for row, length in zip(X, n, strict=True):
            row[length:] = torch.nan
    real = np.concatenate(
        [
            row[:length]
            for X, n in batches
            for row, length in zip(X.numpy(), n.tolist(), strict=True)
        ]
    )
    cmvn = CMVN(6)
    cmvn.fit(iter(batches))
    assert_close(cmvn.mean, torch.from_numpy(real.mean(0)))
    assert_close(cmvn.std, torch.from_numpy(real.std(0)))
    Z, n = cmvn(*batches[0]), batches[0][1]
    assert_close(
        Z[1, :3], torch.from_numpy((batches[0][0][1, :3].numpy() - real.mean(0)) / real.std(0))
    )
    assert not Z[1, 3:].any()
    assert set(cmvn.state_dict()) == {"mean", "std"}


def test_cmvn_of_a_constant_feature_is_finite():
    cmvn = CMVN(2)
    X, X_lens = torch.full((1, 5, 2), -15.9), torch.tensor([5])
    cmvn.fit([(X, X_lens)])
    assert_close(cmvn(X, X_lens), torch.zeros_like(X), rtol=0, atol=0.1)


@pytest.mark.parametrize("kind", ["utterance_mean", "utterance"])
def test_an_utterances_own_statistics_take_its_level_and_microphone_away(kind):
    """numpy's of each utterance; then a gain of each bin, a constant in the logarithm, changes nothing."""
    X = torch.randn(3, 9, 4, generator=torch.Generator().manual_seed(1)) * 5 - 11
    X_lens = torch.tensor([9, 4, 1])
    for row, length in zip(X, X_lens, strict=True):
        row[length:] = torch.nan
    own = [
        row[:length].numpy() - row[:length].numpy().mean(0)
        for row, length in zip(X, X_lens, strict=True)
    ]
    if kind == "utterance":
        own = [rows / np.sqrt(rows.var(0) + 0.01) for rows in own]
    cmvn = CMVN(4, kind)
    cmvn.fit([(X[:2], X_lens[:2]), (X[2:], X_lens[2:])])
    deviation = np.concatenate(own).std(0)
    assert_close(cmvn.std, torch.from_numpy(deviation))
    assert_close(cmvn.mean, torch.zeros(4), rtol=0, atol=1e-5)
    Z = cmvn(X, X_lens)
    for row, length, rows in zip(Z, X_lens, own, strict=True):
        assert_close(row[:length], torch.from_numpy(rows / deviation), rtol=1e-5, atol=1e-5)
        assert not row[length:].any()
    microphone = torch.tensor([3.0, -2.0, 0.5, 7.0])
    assert_close(cmvn(X + microphone, X_lens), Z, rtol=1e-4, atol=1e-5)
    louder = CMVN(4, kind)
    assert torch.allclose(louder(3 * X, X_lens), louder(X, X_lens), atol=0.01) == (
        kind == "utterance"
    )
    assert_close(cmvn(X[1:2, :4], X_lens[1:2])[0], Z[1, :4])


def test_the_frontend_centers_utterances_when_asked():
    settings = {"fbank": {"sample_rate": 8000, "mels": 24}}
    plain, centred = (
        Frontend(FrontendSettings(**settings, cmvn=kind)) for kind in ("global", "utterance_mean")
    )
    lens = torch.tensor([4000, 2500])
    waveforms = torch.randn(2, 4000, generator=torch.Generator().manual_seed(1)) * 0.1
    (quiet, X_lens), (loud, _) = (centred(gain * waveforms, lens) for gain in (0.1, 1.0))
    assert_close(quiet, loud, rtol=1e-3, atol=1e-3)
    assert (plain(waveforms, lens)[0] - plain(0.1 * waveforms, lens)[0]).abs().max() > 4
    assert_close(loud.sum(1), torch.zeros(2, 24), rtol=0, atol=2e-3)
    assert not loud[1, X_lens[1] :].any()
