"""A recognizer for streams, whose texts are known.

It is a real one with random weights, but for CTC's output layer: it is fitted so that each letter is a tone, and
silence the blank.
"""

import random
from dataclasses import asdict, is_dataclass

import numpy as np
import pytest
import soundfile
import torch
import yaml
from small import sizes

from asr.features.frontend import FrontendSettings
from asr.models.recognizer import Recognizer
from asr.text import tokenizer as tokenizers
from asr.transcription.options import SearchOptions

RATE, SPACE = 8000, "_"
LETTERS = tokenizers.train("characters", ["ABCDE A"])
SOUNDS = dict(zip("ABCDE", LETTERS.encode("ABCDE"), strict=True))
SOUNDS |= {SPACE: LETTERS.encode("A A")[1], "-": 0}
TEXT = "--AB_CDA-------EB_D-----------C-C_A_E--"
FINALS = ["AB CDA", "EB D", "CC A E"]  # of TEXT
HOW = SearchOptions(mode="ctc", beam=4)
SIZES = "both: {d_model: 32, layers: 2, heads: 2}, encoder: {channels: 32, chunk: {frames: %s, left: 4}}"
ROUNDED = {"score", "scores", "confidence", "confidences", "uncalibrated"}
FEATURES = FrontendSettings(fbank={"sample_rate": RATE, "mels": 20})


def say(sounds, seconds=0.2, rate=RATE):
    """A tone for each letter, and noise that is as faint in every band at every rate."""
    t = np.arange(round(seconds * rate)) / rate
    tones = [np.sin(2 * np.pi * 250 * 1.5 ** SOUNDS[s] * t) * (s != "-") for s in sounds]
    noise = np.random.default_rng(len(sounds)).standard_normal(len(t) * len(sounds))
    faint = 1e-3 * (rate / RATE) ** 0.5
    return (0.3 * np.concatenate(tones) + faint * noise).astype(np.float32)


def pcm(waveform):
    """Its samples in 16 bits."""
    return (np.clip(waveform, -1, 1) * 32767).astype("<i2")


def fit(chunks="4"):
    """Fit CTC's output layer to tones, by least squares; the encoder has chunks of so many frames."""
    torch.manual_seed(0)
    made = Recognizer(FEATURES, sizes(SIZES % chunks), LETTERS)
    sounds = "".join(random.Random(0).choices([*SOUNDS, *"----"], k=800))
    with torch.no_grad():
        waveform = torch.from_numpy(say(sounds))[None]
        H = made.eval().encode(waveform, torch.tensor([waveform.size(1)]))[0][0]
        ids = torch.tensor([SOUNDS[sounds[int((n + 1.5) / 5)]] for n in range(len(H))])
        wanted = 12.0 * torch.nn.functional.one_hot(ids, LETTERS.vocabulary)
        found = torch.linalg.lstsq(torch.nn.functional.pad(H, (0, 1), value=1.0), wanted).solution
        made.model.ctc_out.weight.copy_(found[:-1].T)
        made.model.ctc_out.bias.copy_(found[-1])
    made.longest = 20.0
    return made


def write_folder(root, recognizer):
    """A model folder, and recordings beside it."""
    config = {"features": FEATURES.model_dump(), "model": sizes(SIZES % "4").model_dump()}
    recognizer.save(root / "model", yaml.safe_dump(config))
    for name, rate in (("a.wav", RATE), ("b.flac", 16000)):
        soundfile.write(root / name, say(TEXT, rate=rate), rate)
    bad = np.where(np.arange(2 * RATE) == 1.5 * RATE, np.nan, say("A", 2.0))
    soundfile.write(root / "nan.wav", bad, RATE, "FLOAT")
    return root


def assert_alike(got, expected, atol=1e-4, rounded=False):
    """Compare transcripts or events: scores and confidences to `atol`, all else to the letter."""
    if is_dataclass(expected):
        got, expected = asdict(got), asdict(expected)
    if isinstance(expected, dict):
        for name, value in expected.items():
            assert_alike(got[name], value, atol, rounded or name in ROUNDED)
    elif isinstance(expected, list | tuple):
        for pair in zip(got, expected, strict=True):
            assert_alike(*pair, atol, rounded)
    elif rounded:
        assert got == pytest.approx(expected, rel=0, abs=atol, nan_ok=True)
    else:
        assert got == expected


def run(stream, waveform, cuts=(), rate=None):
    """Push a waveform in portions that end at `cuts`."""
    events = [event for part in np.split(waveform, cuts) for event in stream.push(part, rate)]
    return events + stream.finish()
