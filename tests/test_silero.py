"""Speech by Silero's network: real utterances joined with known pauses are found; noise and tones aren't.

The judges are the joined recording's own places, and what the package makes of the whole waveform.
"""

import itertools
import re
import sys
from importlib.util import find_spec

import numpy as np
import pytest
import soundfile
import torch
from refusals import refused
from runs import status_of

from asr.audio import load as audio
from asr.cli import decode
from asr.transcription import segmentation, silero
from asr.transcription.silero import CERTAIN, PERHAPS, Silero, speech

RATE = 16_000
needs_silero = pytest.mark.skipif(
    not find_spec("silero_vad"), reason="silero-vad isn't installed; the extra vad has it"
)


@pytest.fixture(scope="module")
def joined(shared_data, tmp_path_factory):
    """Join eight utterances of LibriSpeech with seconds of faint noise between them; a path, and their places."""
    rng, parts, places, at = np.random.default_rng(0), [], [], 0
    for path in audio.find(shared_data / "librispeech")[:8]:
        waveform = audio.load(path, RATE)
        pause = 3e-4 * rng.standard_normal(round(rng.uniform(1, 3) * RATE)).astype(np.float32)
        parts += [pause, waveform]
        start = at + len(pause)
        at = start + len(waveform)
        places.append((start / RATE, at / RATE))
    path = tmp_path_factory.mktemp("joined") / "x.wav"
    soundfile.write(path, np.concatenate(parts), RATE)
    return str(path), places


def found(path, longest=15.0):
    how = path, RATE, 0.0, audio.info(path).duration, None, longest, "silero"
    pieces = segmentation.finish(segmentation.segment(*how))
    return [(piece.start, piece.end) for piece in pieces]


def check_pieces(pieces, expected, places):
    """Each piece is within one utterance and the pauses beside it; each stretch of the package is within pieces."""
    assert all(sum(a < y and b > x for x, y in places) == 1 for a, b in pieces)
    for stretch in expected:
        times = np.arange(stretch["start"] + 0.05, stretch["end"] - 0.05, 0.01)
        assert all(any(a <= time <= b for a, b in pieces) for time in times)


@needs_silero
@pytest.mark.slow
def test_real_speech_is_found_between_pauses(joined):
    import silero_vad

    path, places = joined
    network, waveform = Silero(RATE).network, torch.from_numpy(audio.load(path, RATE))
    judge = silero_vad.get_speech_timestamps
    stretches = judge(waveform, network, return_seconds=True, min_silence_duration_ms=250)
    pieces = found(path)
    assert len(pieces) >= len(places) == 8 and sum(b - a for a, b in pieces) < 75.0
    check_pieces(pieces, stretches, places)
    for fault in (pieces[1:], [(pieces[0][0], pieces[-1][1])]):
        with pytest.raises(AssertionError):
            check_pieces(fault, stretches, places)
    short = found(path, longest=4.0)
    assert all(b - a <= 4.0 + 1e-6 for a, b in short)
    check_pieces(short, stretches, places)


@needs_silero
def test_blocks_of_a_recording_are_heard_as_the_whole(joined, monkeypatch):
    """Against the package's own loop over the whole waveform."""
    monkeypatch.setattr(segmentation, "READ", 7.68)
    path, _ = joined
    network, threads = Silero(RATE), torch.get_num_threads()
    blocks = [audio.load(path, RATE, *span) for span in segmentation._spans(0.0, 20.0)]
    whole = torch.from_numpy(audio.load(path, RATE, 0.0, 20.0))[None]
    with torch.no_grad():
        expected = network.network.audio_forward(whole, sr=RATE)[0].numpy()
    network.network.reset_states()
    forgetful = (Silero(RATE)(block) for block in blocks)
    for found, same in ((map(network, blocks), True), (forgetful, False)):
        assert np.array_equal(np.concatenate([*found]), expected) == same
    assert torch.get_num_threads() == threads


@needs_silero
def test_neither_noise_nor_tones_are_speech(tmp_path):
    rng, n = np.random.default_rng(0), 20 * RATE
    swelling = 0.5 + 0.5 * np.sin(np.arange(n) * 2 * np.pi / RATE)
    brown = np.cumsum(rng.standard_normal(n)) * 1e-3
    white, tone = 0.1 * rng.standard_normal(n), 0.3 * np.sin(np.arange(n) / 6)
    path = str(tmp_path / "x.wav")
    for sound in (white * swelling, brown - brown.mean(), tone * swelling):
        soundfile.write(path, np.clip(sound, -1, 1), RATE)
        assert found(path) == []


def test_speech_is_what_reaches_certainty_and_stays_likely():
    """Against a walk in both directions from each certain chunk."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        chances = rng.choice([0.1, PERHAPS, 0.4, CERTAIN, 0.9], 12)
        expected = np.zeros(12, bool)
        for at, step in itertools.product(np.flatnonzero(chances >= CERTAIN), (-1, 1)):
            while 0 <= at < 12 and chances[at] >= PERHAPS:
                expected[at], at = True, at + step
        # a frame of 10 ms belongs to the chunk of 32 ms that its middle is in
        frames = [bool(expected[min(int((n * 10 + 5) // 32), 11)]) for n in range(40)]
        assert speech(chances, 40, 0.01).tolist() == frames


def test_a_missing_package_is_one_sentence_and_status_2(monkeypatch, tmp_path, stderr):
    monkeypatch.setitem(sys.modules, "silero_vad", None)
    silero._network.cache_clear()
    refused("pip install silero-vad", Silero, RATE)
    wave = tmp_path / "x.wav"
    wave.touch()
    assert status_of(decode.main, "--model", tmp_path, wave, "--vad", "silero") == 2
    error = stderr()
    assert error.count("\n") == 1
    assert re.search(": --vad: silero-vad can't be imported.*pip install silero-vad", error)
