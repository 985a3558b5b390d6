"""Prove CMVN: numpy's mean and deviation, of the training set and of each utterance, whatever stands in the padding."""

import numpy as np
import pytest
import torch
from small import near, noise
from torch.testing import assert_close

from asr.features.cmvn import CMVN
from asr.features.frontend import Frontend, FrontendSettings
from asr.ops import length_mask

LENS = torch.tensor([9, 4, 1, 7, 3])


def utterances():
    """Features with NaN in the padding, and the real frames of each as numpy's arrays."""
    X = noise(5, 9, 4, seed=1).float() * 5 - 11
    X[length_mask(LENS, 9)] = torch.nan
    return X, [row[:length].numpy() for row, length in zip(X, LENS, strict=True)]


@pytest.mark.parametrize("kind", ["global", "utterance_mean", "utterance"])
def test_cmvn_is_numpys_mean_and_deviation(kind):
    """Of the training set; before, if asked, of each utterance."""
    X, own = utterances()
    if kind != "global":
        own = [rows - rows.mean(0) for rows in own]
    if kind == "utterance":
        own = [rows / np.sqrt(rows.var(0) + 0.01) for rows in own]
    cmvn, real = CMVN(4, kind), np.concatenate(own)
    cmvn.fit((X[part], LENS[part]) for part in (slice(2), slice(2, 5)))
    near(cmvn.mean, torch.from_numpy(real.mean(0)), 1e-5)
    assert_close(cmvn.std, torch.from_numpy(real.std(0)))
    assert cmvn.state_dict().keys() == {"mean", "std"}
    Z = cmvn(X, LENS)
    for row, length, rows in zip(Z, LENS, own, strict=True):
        expected = torch.from_numpy((rows - real.mean(0)) / real.std(0))
        assert_close(row[:length], expected, rtol=1e-5, atol=1e-5)
        assert not row[length:].any()
    assert_close(cmvn(X[1:2, :4], LENS[1:2])[0], Z[1, :4])


def test_cmvn_of_a_constant_feature_is_finite():
    cmvn, constant = CMVN(2), (torch.full((1, 5, 2), -15.9), torch.tensor([5]))
    cmvn.fit([constant])
    near(cmvn(*constant), torch.zeros(1, 5, 2), 0.1)


def test_the_frontend_centers_utterances_when_asked():
    fbank, lens = {"sample_rate": 8000, "mels": 24}, torch.tensor([4000, 2500])
    waveforms = noise(2, 4000, seed=1).float() * 0.1
    for kind in ("global", "utterance_mean"):
        frontend = Frontend(FrontendSettings(fbank=fbank, cmvn=kind))
        (quiet, X_lens), (loud, _) = (frontend(gain * waveforms, lens) for gain in (0.1, 1.0))
        assert ((quiet - loud).abs().max() < 1e-3) == (kind == "utterance_mean")
    near(loud.sum(1), torch.zeros(2, 24), 2e-3)
    assert not loud[1, X_lens[1] :].any()
