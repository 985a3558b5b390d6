"""Every container, rate and channel count reads as the tone that was written; every damage has its message.

Expected values are constructed: a sine whose formula is known, a file cut at a known byte.
"""

import re
import struct

import numpy as np
import pytest
import soundfile
from pytest import approx
from refusals import refused

from asr.audio import headers
from asr.audio import load as audio
from asr.audio.sound import opened

each = pytest.mark.parametrize
TONE_HZ = 440.0
LOSSLESS = {"wav": {}, "flac": {}, "sph": {"format": "NIST"}}
KINDS = LOSSLESS | {"ogg": {}, "opus": {"format": "OGG", "subtype": "OPUS"}, "mp3": {}}


def tone(rate, level=0.5, frequency=TONE_HZ):
    """One second."""
    return level * np.sin(2 * np.pi * frequency * np.arange(rate) / rate)


def save(path, rate=16000, channels=1):
    """Write a tone of a second; a second channel is half as loud, so that their mean is 0.75 of the first."""
    wave = np.stack([tone(rate) / (1 + channel) for channel in range(channels)], axis=1)
    soundfile.write(path, wave, rate, **KINDS[path.suffix[1:]])
    return path


@each("channels", [1, 2])
@each("rate", [8000, 16000, 44100, 48000])
@each("kind", KINDS)
def test_every_container_reads_as_the_tone_it_holds(tmp_path, kind, rate, channels):
    if (kind, rate) == ("opus", 44100):
        return  # Opus has no such rate
    path, exact = save(tmp_path / f"tone.{kind}", rate, channels), kind in LOSSLESS
    found, wave = audio.info(path), audio.load(path, 16000)
    assert (found.rate, found.channels) == (rate, channels)
    assert found.duration == approx(1.0, abs=0 if exact else 0.1)  # mp3 pads to whole frames
    assert wave.dtype == np.float32 and wave.ndim == 1 and np.abs(wave).max() <= 1
    assert len(wave) == approx(found.duration * 16000, abs=1)
    middle = slice(2000, 14000)  # off the edges, where resampling and lossy coding ring
    wave, expected = wave[middle], tone(16000, level=0.5 if channels == 1 else 0.375)[middle]
    if exact:
        np.testing.assert_allclose(wave, expected, atol=1e-3)
    else:
        assert np.argmax(np.abs(np.fft.rfft(wave))) == TONE_HZ / 16000 * len(wave)
        assert np.std(wave) == approx(np.std(expected), rel=0.05)


def test_a_part_is_what_the_whole_holds_there(tmp_path):
    path = save(tmp_path / "a.flac", 44100)
    whole = audio.load(path, 44100)
    assert 0.57 * 44100 < 25137  # in binary fractions
    for start, duration, first, last in (
        (0.25, 0.5, 11025, 33075),
        (0.75, None, 33075, 44100),
        (0.0, 1.0008, 0, 44100),  # rounded up by under 1 ms
        (0.57, None, 25137, 44100),
    ):
        np.testing.assert_array_equal(audio.load(path, 44100, start, duration), whole[first:last])


def test_what_a_lower_rate_cannot_hold_is_filtered_away(tmp_path):
    """A tone of 12 kHz at 16 kHz would come back as one of 4 kHz."""
    soundfile.write(tmp_path / "a.wav", tone(48000, frequency=12000), 48000)
    assert np.abs(audio.load(tmp_path / "a.wav", 16000)[2000:14000]).max() < 1e-4


def test_float_samples_beyond_one_are_clipped(tmp_path):
    soundfile.write(tmp_path / "a.wav", [0.5, 1.5, -3.0], 16000, subtype="FLOAT")
    assert audio.load(tmp_path / "a.wav", 16000).tolist() == [0.5, 1, -1]


@each("size", [0xFFFFFFFF, 0x7FFFF000])
def test_a_wav_written_to_a_pipe_has_no_length_in_its_header_and_is_read(tmp_path, size):
    path = save(tmp_path / "a.wav")
    head, samples = path.read_bytes().split(b"data", 1)
    path.write_bytes(head + b"data" + struct.pack("<I", size) + samples[4:])
    assert audio.info(path).samples == len(audio.load(path, 16000)) == 16000


def unreadable(path, says, **part):
    """Both calls refuse the file, in the same words, which begin so."""
    for call in (lambda: audio.load(path, 16000, **part), lambda: audio.info(path)):
        refused(f"^{re.escape(str(path))}: {says}", call)


TEXT = "these are words, not sound: 你好\n".encode() * 40
MP4 = b"\0\0\0\x20ftypM4A "


@each(
    "name, content, says",
    [
        ("a.wav", None, "no such file"),
        (".", None, "is a folder; expected a sound file"),
        ("a.wav", b"", r"is empty \(0 bytes\)"),
        *((f"a.{kind}", TEXT, "is text, not sound") for kind in ("wav", "flac", "raw", "m4a")),
        ("a.wav", bytes(1000), r"can't be read as sound .*; expected wav, flac"),
        ("x.m4a", MP4, "convert"),
        ("x.mp4", b"\0\0\0\x20ftypisom", "convert"),
        ("x.webm", b"\x1aE\xdf\xa3", "convert"),
        ("x.aac", b"\xff\xf1\x50\x80", "convert"),
        ("wrong-suffix.wav.x", MP4, "convert"),
    ],
)
def test_what_is_no_sound_is_refused_with_the_command_that_converts_it(
    tmp_path, name, content, says
):
    path = tmp_path / name
    if says == "convert":
        content += bytes(range(256)) * 4
        says = f".*convert it: ffmpeg -i {path} -ar 16000 -ac 1 {path.with_suffix('.wav')}$"
    if content is not None:
        path.write_bytes(content)
    unreadable(path, says)


def test_zero_samples(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.zeros(0), 16000)
    unreadable(tmp_path / "a.wav", "has no samples")


@each(
    "kind, kept, says",
    [
        *(
            (kind, header + 2 * samples, f"got {samples} of 48000 samples")  # 2 bytes a sample
            for kind, header in (("wav", 44), ("sph", 1024))
            for samples in (14000, 47500)
        ),
        ("flac", 30000, r"got \d+ of 48000 samples"),
        ("mp3", 5000, r"got \d+ of 48000 samples"),
        ("ogg", -100, "an Ogg page is cut off"),
        ("opus", -100, "an Ogg page is cut off"),
    ],
)
def test_what_is_truncated_is_refused(tmp_path, kind, kept, says):
    path = tmp_path / f"a.{kind}"
    soundfile.write(path, np.random.default_rng(0).uniform(-0.5, 0.5, 48000), 16000, **KINDS[kind])
    content = path.read_bytes()
    assert len(content) > kept
    path.write_bytes(content[:kept])
    for part in ({}, {"start": 0.1, "duration": 0.1} if "got 1" in says else {}):
        unreadable(path, f"truncated or damaged: {says}", **part)


@each("at, duration, end", [(0.5, 0.6, 1.1), (0.5, 0.502, 1.002), (2.0, None, 1.0)])
def test_a_part_beyond_the_end(tmp_path, at, duration, end):
    path = save(tmp_path / "a.wav")
    refused(f"^{path}: {at:.3f} to {end:.3f} s .* 1.000 s$", audio.load, path, 16000, at, duration)


@each("value", [np.nan, np.inf])
def test_samples_that_are_no_numbers(tmp_path, value):
    wave, path = tone(16000), tmp_path / "a.wav"
    wave[8000] = value
    soundfile.write(path, wave, 16000, subtype="FLOAT")
    refused(f"^{path}: has NaN or infinite .* 0.500 s", audio.load, path, 16000, start=0.25)


def test_real_files_of_every_corpus(shared_data):
    """Rates as the folder's README states them; a file of each kind decodes as long as its header says."""
    real = {
        "an4/wav/an4test_clstk/fcaw/an406-fcaw-b.sph": 16000,
        "yesno/waves_yesno/0_0_0_0_1_1_1_1.wav": 8000,
        "librispeech/LibriSpeech/test-other/1688/142285/1688-142285-0000.flac": 16000,
        "common_voice_en/clips/common_voice_en_111554.opus": None,  # Opus says 48000 or what it was made from
    }
    for name, rate in real.items():
        found, wave = audio.info(shared_data / name), audio.load(shared_data / name, 16000)
        assert rate in (None, found.rate) and np.abs(wave).max() > 0.005
        assert len(wave) == approx(found.duration * 16000, abs=1)


def test_a_plain_wav_is_described_as_libsndfile_does_and_others_are_left_to_it(tmp_path):
    """Each byte of the header changed, and ends cut off or added: what is described at all, libsndfile describes so."""
    path, plain = tmp_path / "x.wav", 0
    soundfile.write(path, np.random.default_rng(1).normal(0, 0.1, (50, 2)), 8000)
    whole = path.read_bytes()
    assert audio.plain_wav(path) == audio.AudioInfo(8000, 50, 2)
    changed = [
        whole[:n] + bytes([whole[n] ^ bit]) + whole[n + 1 :]
        for n in range(44)
        for bit in (1, 2, 128)
    ]
    others = whole[:-4], whole + b"LIST\0\0\0\0", whole + whole, whole[:44], whole[:9]
    for content in (*changed, *others):
        path.write_bytes(content)
        if found := audio.plain_wav(path):
            plain += 1
            with opened(path) as sound:
                assert found == audio.AudioInfo(sound.rate, sound.frames, sound.channels)
            assert len(audio.load(path, 8000)) == approx(found.duration * 8000, abs=1)
    assert 0 < plain < 50


@each("asked, together", [(1000, 16), (7, 3), (3, 7), (1, 1)])
def test_headers_of_many_files_come_once_each_and_in_order(tmp_path, monkeypatch, asked, together):
    monkeypatch.setattr(headers, "ASKED", asked)
    monkeypatch.setattr(headers, "TOGETHER", together)
    paths = [tmp_path / f"{n}.wav" for n in range(1, 31)]
    for n, path in enumerate(paths, 1):
        soundfile.write(path, np.zeros(n), 8000)
    many = paths * 40  # more than are asked at once
    assert [found.samples for found in headers.read_headers(many)] == [*range(1, 31)] * 40
