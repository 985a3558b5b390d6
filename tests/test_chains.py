"""Sound that a decoder would lose silently is read, or refused: files joined by `cat`, headers that lie, bad pages.

Expected values are constructed: the parts' own samples, one behind the other; numbers put into a header.
"""

import os
import re
import struct
import subprocess
import sys
import threading
from io import BytesIO
from unittest.mock import Mock

import numpy as np
import pytest
import soundfile
import yaml
from refusals import refused
from small import each, options, rows
from test_audio import unreadable

from asr.audio import decoder_messages, faults, mp3, ogg
from asr.audio import load as audio
from asr.data import shar

RATE = 16000
KINDS = options("""
    mp3: {format: MP3}, cbr.mp3: {format: MP3, bitrate_mode: CONSTANT}, ogg: {format: OGG},
    opus: {format: OGG, subtype: OPUS}, flac: {format: FLAC}, sph: {format: NIST}, au: {format: AU},
    aiff: {format: AIFF}, wav: {format: WAV}
""")


def speech(seconds, seed=0):
    """Noise that grows and fades, so that a bit rate that varies does so."""
    rng = np.random.default_rng(seed)
    n = round(seconds * RATE)
    return 0.3 * rng.uniform(-1, 1, n) * np.abs(np.sin(np.arange(n) / RATE * 3))


def encoded(waveform, kind, rate=RATE, **options):
    file = BytesIO()
    soundfile.write(file, waveform, rate, **KINDS[kind], **options)
    return file.getvalue()


def written(path, waveform):
    path.write_bytes(encoded(waveform, path.suffix[1:]))
    return path


def frames(content):
    """Where an mp3's frames begin, the one without sound first."""
    at, places = 0, []
    while found := mp3.frame(bytes(content[at : at + 4])):
        places.append(at)
        at += found.length
    return places


def bare(content):
    """An mp3 without the frame that says how many there are, as of a stream."""
    return content[frames(content)[1] :]


@each("kind", KINDS)
@each("seconds", [(1.0, 1.5), (1.0, 1.0), (0.7, 0.02, 0.4)], ids=str)
def test_files_joined_by_cat_are_read_one_behind_the_other(tmp_path, kind, seconds):
    """So they are in an archive; in a Shar they are one FLAC, for others, as lhotse, would read the first."""
    path, parts, waves = tmp_path / f"x.{kind}", [], []
    for n, length in enumerate(seconds):
        parts.append(encoded(speech(length, n), kind))
        path.write_bytes(parts[-1])
        waves.append(audio.load(path, RATE))
    whole, expected = b"".join(parts), np.concatenate(waves)
    path.write_bytes(whole)
    assert audio.info(path).samples == len(expected) == pytest.approx(sum(seconds) * RATE, rel=0.02)
    np.testing.assert_array_equal(audio.load(path, RATE), expected)
    first = round(seconds[0] * RATE) - 1600
    across = audio.load(path, RATE, first / RATE, 0.2)
    np.testing.assert_allclose(across, expected[first : first + 3200], atol=2e-3)
    (tmp_path / "x.tar").write_bytes(b"#" * 512 + whole)
    for size, samples in ((len(whole), len(expected)), (len(parts[0]), len(waves[0]))):
        assert audio.info(f"{tmp_path}/x.tar:512+{size}").samples == samples
    suffix, content = shar.recording(str(path))
    assert suffix == ".flac" and soundfile.info(BytesIO(content)).frames == len(expected)


@each(
    "name, error, says",
    [
        ("raw.os.pread", OSError(5, "Input/output error"), r"can't be read \(Input/output error"),
        ("raw.os.open", PermissionError(13, "Not permitted"), r"can't be read \(Not permitted"),
        ("sound.Sound._read", MemoryError(), "is too long for this machine's memory"),
    ],
)
def test_what_the_system_refuses_is_one_line(tmp_path, monkeypatch, name, error, says):
    path, failing = written(tmp_path / "x.ogg", speech(1)), Mock(side_effect=error)
    monkeypatch.setattr(f"asr.audio.{name}", failing)
    monkeypatch.setattr(faults, "open", failing, raising=False)
    refused(f"{path}: {says}", audio.load, path, RATE)


@each("kind", ["mp3", "ogg", "wav"])
def test_joined_files_of_two_rates_are_refused_with_what_makes_one_of_them(tmp_path, kind):
    (tmp_path / f"x.{kind}").write_bytes(encoded(speech(1), kind) + encoded(speech(1), kind, 8000))
    unreadable(tmp_path / f"x.{kind}", r".*16000 Hz × 1, 8000 Hz × 1\); join them: ffmpeg -i .*x\.")


@pytest.fixture
def mp3_path(tmp_path):
    return tmp_path / "x.mp3"


@each("kind", ["mp3", "cbr.mp3"])
def test_an_mp3_without_a_length_is_read_whole(mp3_path, kind):
    """libmpg123 guesses by the first frames' bit rate: of one that varies it read the first half."""
    quiet_then_loud = np.concatenate([speech(2) * 1e-4, speech(4, 1)])
    content = bare(encoded(quiet_then_loud, kind))
    mp3_path.write_bytes(content)
    samples, waveform = audio.info(mp3_path).samples, audio.load(mp3_path, RATE)
    assert samples == pytest.approx(len(frames(content)) * 576, abs=600)  # the decoder's delay
    assert len(waveform) == samples >= 6 * RATE and np.std(waveform[-RATE:]) > 0.05


def test_an_mp3_cut_from_a_stream_begins_within_a_frame(mp3_path):
    mp3_path.write_bytes(bare(encoded(speech(4), "mp3"))[1001:])
    samples = audio.info(mp3_path).samples
    assert samples > 3.5 * RATE and len(audio.load(mp3_path, RATE)) == samples


def test_tags_between_and_around_are_passed_over(mp3_path):
    part = encoded(speech(1), "mp3")
    id3 = b"ID3\4\0\0\0\0\1\0" + b"\xff\xfb\x90\x64" * 32  # which hold what looks like frames
    ape = b"APETAGEX\xd0\7\0\0" + struct.pack("<IIQ", 64, 1, 0) + bytes(72)
    mp3_path.write_bytes(id3 + part + b"TAG" + bytes(125) + id3 + part + ape)
    assert audio.info(mp3_path).samples == 2 * RATE


# headers that lie


def claiming(kind, place, form, value, seconds=1):
    """A file with a number put into its header; None is the place of an mp3's count of frames."""
    content = bytearray(encoded(speech(seconds), kind))
    place = mp3.frame(bytes(content[:4])).info + 8 if place is None else place
    struct.pack_into(form, content, place, value)
    return bytes(content)


@each("said", [0, 3, 20])
def test_frames_that_a_header_doesnt_count_are_heard(mp3_path, said):
    mp3_path.write_bytes(claiming("mp3", None, ">I", said, seconds=2))
    assert audio.info(mp3_path).duration > 1.99


# a flac's 64 bits: 20 of the rate (16000 Hz), 3 of channels, 5 of bits (16), 36 count the samples
LIES = """
mp3     | null | >I | 0xffffffff         | truncated or damaged
mp3     | null | >I | 60                 | truncated or damaged
cbr.mp3 | null | >I | 0xffffffff         | truncated or damaged
cbr.mp3 | null | >I | 60                 | truncated or damaged
wav     | 24   | <I | 0x7fffffff         | .*2,147,483,647 Hz, expected 1,000 to 1,000,000
wav     | 24   | <I | 1                  | .* 1 Hz, expected
wav     | 24   | <I | 0                  | can't be read as sound
wav     | 22   | <H | 65535              | can't be read as sound
wav     | 40   | <I | 0x7ffe0000         | truncated or damaged: got 16000 of
flac    | 18   | >Q | 0x03e800ffffffffff | truncated or damaged: .* 68719476735 samples
flac    | 18   | >Q | 0x03e800f000000000 | .*doesn't state its length.*: ffmpeg -i
au      | 16   | >I | 3                  | .* 3 Hz, expected
"""


@each("kind, place, form, value, says", rows(LIES))
def test_a_header_that_lies_is_refused_by_both(tmp_path, kind, place, form, value, says):
    content = claiming(kind, yaml.safe_load(place), form, int(value, 0))
    (tmp_path / f"x.{kind}").write_bytes(content)
    unreadable(tmp_path / f"x.{kind}", says)


@each("kind", ["ogg", "opus"])
def test_a_damaged_page_is_not_passed_over(tmp_path, kind):
    content = bytearray(encoded(speech(4), kind))
    assert len(ogg.links(bytes(content))) == 1
    content[len(content) // 2] ^= 1
    (tmp_path / "x.ogg").write_bytes(content)
    unreadable(tmp_path / "x.ogg", "truncated or damaged: an Ogg page")


# what is no regular file


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x.wav")
    unreadable(tmp_path / "x.wav", "is a device or a pipe")
    assert audio.find(tmp_path) == []


@each(
    "name, says",
    [
        ("/dev/zero", "is a device or a pipe"),
        ("/dev/null", "is a device or a pipe"),
        ("a\0b.wav", "has a NUL"),
        ("a\udcff.wav", "no such file"),
        ("\ud800.wav", "isn't UTF-8"),
        ("https://example.com/a.wav", "URLs aren't fetched"),
        ("x" * 5000, "can't be read"),
    ],
)
def test_names_that_no_sound_file_has(name, says):
    refused(says, audio.info, name)
    refused(says, audio.load, name, RATE)


# channels


def stereo(path, *channels):
    soundfile.write(path, np.stack(channels, axis=1), RATE)
    return path


def test_opposite_channels_are_reported_once_with_the_name_and_what_to_do(tmp_path, stderr):
    wave = speech(1)
    for n, second in enumerate((wave, np.zeros_like(wave))):
        audio.load(stereo(tmp_path / f"{n}.wav", wave, second), RATE)
    audio.load(stereo(tmp_path / "none.wav", 0 * wave, 0 * wave), RATE)
    path = stereo(tmp_path / "opposite.wav", wave, -wave)
    np.testing.assert_allclose(audio.load(path, RATE, channel=1), -wave, atol=1e-4)
    assert stderr() == ""
    for _ in range(2):
        audio.load(path, RATE)
    said = stderr()
    assert said.count(str(path)) == 1 and "cancel each other out" in said and "--channel" in said


@each("channel", [2, -1])
def test_a_channel_that_is_not_there(tmp_path, channel):
    path = stereo(tmp_path / "x.wav", speech(1), speech(1))
    says = f"has 2 channels, .* channel {channel} was requested"
    refused(says, audio.load, path, RATE, channel=channel)


# what decoders write by themselves


PROGRAM = """
import sys
from asr.audio import load as audio
audio.info(sys.argv[1])
for part in ((), (1.0, 0.5), (2.5,), ()):
    audio.load(sys.argv[1], 16000, *part)
"""


def decoded(path, **streams):
    """What native code, which writes past Python's sys.stderr, writes in a process of its own."""
    command = [sys.executable, "-c", PROGRAM, path]
    return subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True, **streams).stderr


def test_a_decoder_is_quiet_of_a_good_file_and_of_a_bad_one_the_file_is_named(tmp_path):
    good = encoded(speech(4), "cbr.mp3", compression_level=0.9)
    (tmp_path / "good.mp3").write_bytes(good + good)
    bad = bytearray(good)
    rng = np.random.default_rng(1)
    for place in frames(good)[10:60:5]:
        bad[place + 6 : place + 40] = rng.bytes(34)
    (tmp_path / "bad.mp3").write_bytes(bad)
    assert decoded(tmp_path / "good.mp3") == ""
    said = decoded(tmp_path / "bad.mp3").splitlines()
    start = f"{tmp_path}/bad.mp3: damaged: its decoder says"
    assert said and all(line.startswith(start) for line in said)


def test_a_closed_stderr_is_no_fault(tmp_path):
    decoded(written(tmp_path / "x.mp3", speech(4)), preexec_fn=lambda: os.close(2))


WRITTEN = b"""\
[src/libmpg123/x.c:f():1] error: big_values too large!
somebody else's line
[src/libmpg123/x.c:f():1] error: part2_3_length (800) too large for available bit count (728)
"""


def test_what_others_write_meanwhile_is_passed_on(capfd):
    with decoder_messages.caught() as complaints:
        os.write(2, WRITTEN)
    assert complaints == ["error: big_values too large!"]
    assert capfd.readouterr().err == "somebody else's line\n"


def test_a_child_process_has_its_own_stderr(capfd):
    """One that is forked while another thread catches would else write into nothing, and wait for ever to catch."""
    entered, leave = threading.Event(), threading.Event()

    def catch():
        with decoder_messages.caught():
            entered.set()
            leave.wait(5)

    thread = threading.Thread(target=catch)
    thread.start()
    entered.wait()
    threading.Timer(0.2, leave.set).start()
    child = os.fork()
    if not child:
        with decoder_messages.caught():
            pass
        os.write(2, b"heard\n")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    thread.join()
    assert re.sub(r".*DeprecationWarning.*\n.*\n", "", capfd.readouterr().err) == "heard\n"
