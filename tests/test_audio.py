"""Every container, rate and channel count reads as the tone that was written; every damage has its message.

Expected values are constructed: a sine whose formula is known, a file cut at a known byte.
"""

import struct

import numpy as np
import pytest
import soundfile

from asr.audio import load as audio
from asr.errors import UserError

TONE_HZ = 440.0
LOSSLESS = {"wav": {}, "flac": {}, "sph": {"format": "NIST"}}
LOSSY = {"ogg": {}, "opus": {"format": "OGG", "subtype": "OPUS"}, "mp3": {}}
KINDS = LOSSLESS | LOSSY


def tone(rate, seconds=1.0, level=0.5):
    return level * np.sin(2 * np.pi * TONE_HZ * np.arange(round(rate * seconds)) / rate)


def save(path, rate=16000, seconds=1.0, channels=1, **options):
    """Write a tone; a second channel is half as loud, so that their mean is 0.75 of the first."""
    wave = np.stack([tone(rate, seconds) / (1 + channel) for channel in range(channels)], axis=1)
    soundfile.write(path, wave, rate, **options)
    return path


def cases():
    for kind in KINDS:
        for rate in (8000, 16000, 44100, 48000):
            for channels in (1, 2):
                if not (kind == "opus" and rate == 44100):  # Opus has no such rate
                    yield pytest.param(kind, rate, channels, id=f"{kind}-{rate}-{channels}")


@pytest.mark.parametrize("kind,rate,channels", list(cases()))
def test_every_container_reads_as_the_tone_it_holds(tmp_path, kind, rate, channels):
    path = save(tmp_path / f"tone.{kind}", rate, channels=channels, **KINDS[kind])
    found = audio.info(path)
    assert (found.rate, found.channels) == (rate, channels)
    assert found.duration == pytest.approx(
        1.0, abs=0 if kind in LOSSLESS else 0.1
    )  # mp3 pads to whole frames
    wave = audio.load(path, 16000)
    assert wave.dtype == np.float32 and wave.ndim == 1 and np.abs(wave).max() <= 1
    assert len(wave) == pytest.approx(found.duration * 16000, abs=1)
    expected = tone(16000, level=0.5 if channels == 1 else 0.375)
    middle = slice(2000, 14000)  # off the edges, where resampling and lossy coding ring
    if kind in LOSSLESS:
        np.testing.assert_allclose(wave[middle], expected[middle], atol=1e-3)
    else:
        assert np.sqrt(np.mean(wave[middle] ** 2)) == pytest.approx(
            np.sqrt(np.mean(expected[middle] ** 2)), rel=0.05
        )
        assert abs(np.argmax(np.abs(np.fft.rfft(wave[:16000]))) - TONE_HZ) <= 1


def test_a_part_is_what_the_whole_holds_there(tmp_path):
    path = save(tmp_path / "a.flac")
    whole, piece = audio.load(path, 16000), audio.load(path, 16000, start=0.25, duration=0.5)
    np.testing.assert_array_equal(piece, whole[4000:12000])
    np.testing.assert_array_equal(audio.load(path, 16000, start=0.75), whole[12000:])
    np.testing.assert_array_equal(
        audio.load(path, 16000, duration=1.0008), whole
    )  # rounded up by under 1 ms


def test_a_part_begins_at_the_nearest_sample(tmp_path):
    path = save(tmp_path / "a.flac", 44100)
    assert 0.57 * 44100 < 25137  # in binary fractions
    np.testing.assert_array_equal(
        audio.load(path, 44100, start=0.57), audio.load(path, 44100)[25137:]
    )


def test_what_a_lower_rate_cannot_hold_is_filtered_away(tmp_path):
    """A tone of 12 kHz at 16 kHz would come back as one of 4 kHz."""
    soundfile.write(
        tmp_path / "a.wav", 0.5 * np.sin(2 * np.pi * 12000 * np.arange(48000) / 48000), 48000
    )
    assert np.abs(audio.load(tmp_path / "a.wav", 16000)[2000:14000]).max() < 1e-4


def test_float_samples_beyond_one_are_clipped(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.array([0.5, 1.5, -3.0]), 16000, subtype="FLOAT")
    np.testing.assert_array_equal(
        audio.load(tmp_path / "a.wav", 16000), np.array([0.5, 1, -1], dtype=np.float32)
    )


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0x7FFFF000])
def test_a_wav_written_to_a_pipe_has_no_length_in_its_header_and_is_read(tmp_path, size):
    content = save(tmp_path / "a.wav").read_bytes()
    place = content.index(b"data") + 4
    (tmp_path / "a.wav").write_bytes(
        content[:place] + struct.pack("<I", size) + content[place + 4 :]
    )
    assert (
        audio.info(tmp_path / "a.wav").samples
        == len(audio.load(tmp_path / "a.wav", 16000))
        == 16000
    )


def refused(path, message, **part):
    """Both calls refuse the file, in the same words."""
    for call in (lambda: audio.load(path, 16000, **part), lambda: audio.info(path)):
        with pytest.raises(UserError) as error:
            call()
        assert str(error.value) == f"{path}: {message}"


def test_missing_file(tmp_path):
    refused(tmp_path / "a.wav", "no such file")


def test_a_folder(tmp_path):
    refused(tmp_path, "is a folder; expected a sound file")


def test_zero_bytes(tmp_path):
    (tmp_path / "a.wav").touch()
    refused(tmp_path / "a.wav", "is empty (0 bytes); expected a recording")


def test_zero_samples(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.zeros(0), 16000)
    refused(tmp_path / "a.wav", "has no samples; expected a recording")


@pytest.mark.parametrize("name", ["a.wav", "a.flac", "a.raw", "a.mp3", "a.m4a"])
def test_text_by_the_name_of_a_sound_file(tmp_path, name):
    (tmp_path / name).write_text("these are words, not sound: 你好\n" * 40)
    refused(tmp_path / name, "is text, not sound")


def test_bytes_that_are_nothing(tmp_path):
    (tmp_path / "a.wav").write_bytes(bytes(1000))
    expected = "can't be read as sound (Format not recognised); expected wav, flac, ogg, opus, mp3 or NIST sphere"
    refused(tmp_path / "a.wav", expected)


@pytest.mark.parametrize(
    "name,head",
    [
        ("x.m4a", b"\0\0\0\x20ftypM4A "),
        ("x.mp4", b"\0\0\0\x20ftypisom"),
        ("x.webm", b"\x1aE\xdf\xa3"),
        ("x.aac", b"\xff\xf1\x50\x80"),
        ("wrong-suffix.wav.x", b"\0\0\0\x20ftypM4A "),
    ],
)
def test_what_needs_conversion_names_the_command(tmp_path, name, head):
    path = tmp_path / name
    path.write_bytes(head + bytes(range(256)) * 4)
    wav = path.with_suffix(".wav")
    refused(
        path, f"libsndfile can't read this kind; convert it: ffmpeg -i {path} -ar 16000 -ac 1 {wav}"
    )


@pytest.mark.parametrize("kind", ["wav", "sph"])
@pytest.mark.parametrize("share", [0.3, 0.99])
def test_truncated_uncompressed(tmp_path, kind, share):
    """Cut at a known byte: 44 (RIFF) or 1024 (sphere) bytes of header, 2 bytes a sample."""
    path = save(tmp_path / f"a.{kind}", **KINDS[kind])
    header, kept = (44, 1024)[kind == "sph"], round(16000 * share)
    path.write_bytes(path.read_bytes()[: header + 2 * kept])
    message = f"truncated or damaged: got {kept} of 16000 samples; copy or record it again"
    refused(path, message)
    refused(path, message, start=0.1, duration=0.1)


@pytest.mark.parametrize("kind", ["flac", "mp3"])
def test_truncated_compressed(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    noise = np.random.default_rng(0).uniform(
        -0.5, 0.5, 48000
    )  # a FLAC of noise is large enough to be cut
    soundfile.write(path, noise, 16000)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    for call in (lambda: audio.load(path, 16000), lambda: audio.info(path)):
        with pytest.raises(
            UserError,
            match=r"a\.\w+: truncated or damaged: got \d+ of 48000 samples; copy or record",
        ):
            call()


@pytest.mark.parametrize("kind", ["ogg", "opus"])
def test_truncated_ogg(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    soundfile.write(
        path, np.random.default_rng(0).uniform(-0.5, 0.5, 16000 * 4), 16000, **KINDS[kind]
    )
    path.write_bytes(path.read_bytes()[:-100])
    for call in (lambda: audio.load(path, 16000), lambda: audio.info(path)):
        with pytest.raises(UserError, match=r"truncated or damaged: an Ogg page is cut off"):
            call()


@pytest.mark.parametrize(
    "start,duration,asked",
    [(0.5, 0.6, "0.500 to 1.100"), (0.5, 0.502, "0.500 to 1.002"), (2.0, None, "2.000 to 1.000")],
)
def test_a_part_beyond_the_end(tmp_path, start, duration, asked):
    path = save(tmp_path / "a.wav")
    with pytest.raises(UserError) as error:
        audio.load(path, 16000, start=start, duration=duration)
    assert str(error.value) == f"{path}: {asked} s were requested, but the file has 1.000 s"


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_samples_that_are_no_numbers(tmp_path, value):
    wave = tone(16000)
    wave[8000] = value
    soundfile.write(tmp_path / "a.wav", wave, 16000, subtype="FLOAT")
    with pytest.raises(UserError) as error:
        audio.load(tmp_path / "a.wav", 16000, start=0.25)
    message = "has NaN or infinite samples, the first at 0.500 s; write the file again"
    assert str(error.value) == f"{tmp_path / 'a.wav'}: {message}"


def test_real_files_of_every_corpus(shared_data):
    """Rates as the folder's README states them; a file of each kind decodes as long as its header says."""
    real = {
        "an4/wav/an4test_clstk/fcaw/an406-fcaw-b.sph": 16000,
        "yesno/waves_yesno/0_0_0_0_1_1_1_1.wav": 8000,
        "librispeech/LibriSpeech/test-other/1688/142285/1688-142285-0000.flac": 16000,
        "common_voice_en/clips/common_voice_en_111554.opus": None,  # Opus says 48000 or what it was made from
    }
    for name, rate in real.items():
        found = audio.info(shared_data / name)
        assert rate in (None, found.rate)
        wave = audio.load(shared_data / name, 16000)
        assert (
            len(wave) == pytest.approx(found.duration * 16000, abs=1) and np.abs(wave).max() > 0.005
        )
