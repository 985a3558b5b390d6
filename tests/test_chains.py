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

import numpy as np
import pytest
import soundfile

from asr.audio import decoder_messages, mp3, ogg
from asr.audio import load as audio
from asr.data import shar
from asr.errors import UserError

RATE = 16000
KINDS = {
    "mp3": {"format": "MP3"},
    "cbr.mp3": {"format": "MP3", "bitrate_mode": "CONSTANT"},
    "ogg": {"format": "OGG"},
    "opus": {"format": "OGG", "subtype": "OPUS"},
    "flac": {"format": "FLAC"},
    "sph": {"format": "NIST"},
    "au": {"format": "AU"},
    "aiff": {"format": "AIFF"},
    "wav": {"format": "WAV"},
}


def speech(seconds, seed=0):
    """Noise that grows and fades, so that a bit rate that varies does so."""
    rng = np.random.default_rng(seed)
    n = round(seconds * RATE)
    return 0.3 * rng.uniform(-1, 1, n) * np.abs(np.sin(np.arange(n) / RATE * 3))


def encoded(waveform, rate=RATE, **options):
    file = BytesIO()
    soundfile.write(file, waveform, rate, **options)
    return file.getvalue()


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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seconds", [(1.0, 1.5), (1.0, 1.0), (0.7, 0.02, 0.4)], ids=str)
def test_files_joined_by_cat_are_read_one_behind_the_other(tmp_path, kind, seconds):
    parts = [encoded(speech(s, n), **KINDS[kind]) for n, s in enumerate(seconds)]
    for n, part in enumerate(parts):
        (tmp_path / f"{n}.{kind}").write_bytes(part)
    expected = np.concatenate(
        [audio.load(tmp_path / f"{n}.{kind}", RATE) for n in range(len(parts))]
    )
    path = tmp_path / f"all.{kind}"
    path.write_bytes(b"".join(parts))
    assert audio.info(path).samples == len(expected) == pytest.approx(sum(seconds) * RATE, rel=0.02)
    np.testing.assert_array_equal(audio.load(path, RATE), expected)
    across = (seconds[0] - 0.1, seconds[0] + 0.1)
    np.testing.assert_allclose(
        audio.load(path, RATE, across[0], 0.2),
        expected[round(across[0] * RATE) :][: round(0.2 * RATE)],
        atol=2e-3,
    )


@pytest.mark.parametrize("kind", ["mp3", "opus"])
def test_joined_files_in_an_archive(tmp_path, kind):
    parts = [encoded(speech(s), **KINDS[kind]) for s in (0.5, 0.25)]
    whole = b"".join(parts)
    (tmp_path / "x.tar").write_bytes(b"#" * 512 + whole)
    assert audio.info(f"{tmp_path}/x.tar:512+{len(whole)}").samples == 12000
    assert audio.info(f"{tmp_path}/x.tar:512+{len(parts[0])}").samples == 8000


@pytest.mark.parametrize("kind", ["mp3", "flac", "opus"])
def test_joined_files_are_one_flac_in_a_shar(tmp_path, kind):
    """Others, as lhotse, would read the first."""
    (tmp_path / f"x.{kind}").write_bytes(
        b"".join(encoded(speech(s), **KINDS[kind]) for s in (0.5, 0.25))
    )
    suffix, content = shar.recording(str(tmp_path / f"x.{kind}"))
    assert suffix == ".flac" and soundfile.info(BytesIO(content)).frames == 12000


def test_a_disk_that_fails_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "x.ogg").write_bytes(encoded(speech(1), format="OGG"))

    def failing(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(audio.os, "pread", failing)
    with pytest.raises(UserError, match=r"x.ogg: can't be read \(Input/output error\)"):
        audio.info(tmp_path / "x.ogg")


def test_joined_files_of_two_rates_are_refused_with_what_makes_one_of_them(tmp_path):
    for kind in ("mp3", "ogg", "wav"):
        parts = encoded(speech(1), **KINDS[kind]), encoded(speech(1), 8000, **KINDS[kind])
        (tmp_path / f"x.{kind}").write_bytes(b"".join(parts))
        for call in (audio.info, lambda path: audio.load(path, RATE)):
            with pytest.raises(
                UserError, match=r"16000 Hz × 1, 8000 Hz × 1\); join them: ffmpeg -i .*x\."
            ):
                call(tmp_path / f"x.{kind}")


@pytest.mark.parametrize("vary", [True, False])
def test_an_mp3_without_a_length_is_read_whole(tmp_path, vary):
    """libmpg123 guesses by the first frames' bit rate: of one that varies it read the first half."""
    mode = {} if vary else {"bitrate_mode": "CONSTANT"}
    quiet_then_loud = np.concatenate([speech(2) * 1e-4, speech(4, 1)])
    content = bare(encoded(quiet_then_loud, format="MP3", **mode))
    (tmp_path / "x.mp3").write_bytes(content)
    count = len(frames(content)) * 576
    assert audio.info(tmp_path / "x.mp3").samples == pytest.approx(
        count, abs=600
    )  # less the decoder's delay
    waveform = audio.load(tmp_path / "x.mp3", RATE)
    assert len(waveform) == audio.info(tmp_path / "x.mp3").samples >= 6 * RATE
    assert np.sqrt(np.mean(waveform[-RATE:] ** 2)) > 0.05


def test_an_mp3_cut_from_a_stream_begins_within_a_frame(tmp_path):
    content = bare(encoded(speech(4), format="MP3"))
    (tmp_path / "x.mp3").write_bytes(content[1001:])
    assert audio.info(tmp_path / "x.mp3").duration > 3.5
    assert len(audio.load(tmp_path / "x.mp3", RATE)) == audio.info(tmp_path / "x.mp3").samples


def test_tags_between_and_around_are_passed_over(tmp_path):
    part = encoded(speech(1), format="MP3")
    id3 = b"ID3\4\0\0\0\0\1\0" + b"\xff\xfb\x90\x64" * 32  # which hold what looks like frames
    ape = b"APETAGEX\xd0\7\0\0" + struct.pack("<IIQ", 64, 1, 0) + bytes(72)
    (tmp_path / "x.mp3").write_bytes(id3 + part + b"TAG" + bytes(125) + id3 + part + ape)
    assert audio.info(tmp_path / "x.mp3").samples == 2 * RATE


@pytest.mark.parametrize("said", [0, 3, 20])
def test_frames_that_a_header_doesnt_count_are_heard(tmp_path, said):
    content = bytearray(encoded(speech(2), format="MP3"))
    place = mp3.frame(bytes(content[:4])).info + 8
    content[place : place + 4] = struct.pack(">I", said)
    (tmp_path / "x.mp3").write_bytes(content)
    assert audio.info(tmp_path / "x.mp3").duration > 1.99


@pytest.mark.parametrize("kind", ["mp3", "cbr.mp3"])
def test_frames_that_a_header_counts_and_the_file_lacks_are_missed(tmp_path, kind):
    content = bytearray(encoded(speech(2), **KINDS[kind]))
    place = mp3.frame(bytes(content[:4])).info + 8
    for said in (2**32 - 1, 2 * len(frames(content))):
        content[place : place + 4] = struct.pack(">I", said)
        (tmp_path / "x.mp3").write_bytes(content)
        for call in (audio.info, lambda path: audio.load(path, RATE)):
            with pytest.raises(UserError, match="truncated or damaged"):
                call(tmp_path / "x.mp3")


@pytest.mark.parametrize("kind", ["ogg", "opus"])
def test_a_damaged_page_is_not_passed_over(tmp_path, kind):
    content = bytearray(encoded(speech(4), **KINDS[kind]))
    assert len(ogg.links(bytes(content))) == 1
    content[len(content) // 2] ^= 1
    (tmp_path / "x.ogg").write_bytes(content)
    for call in (audio.info, lambda path: audio.load(path, RATE)):
        with pytest.raises(UserError, match=r"x.ogg: truncated or damaged: an Ogg page"):
            call(tmp_path / "x.ogg")


# headers that lie


def lying(kind, change):
    content = bytearray(encoded(speech(1), **KINDS[kind]))
    change(content)
    return content


def put(place, form, value):
    return lambda content: struct.pack_into(form, content, place, value)


def claim_flac(samples):
    """Of STREAMINFO's 64 bits from byte 18 on the last 36 count the samples."""

    def change(content):
        bits = int.from_bytes(content[18:26], "big") >> 36 << 36
        content[18:26] = (bits | samples).to_bytes(8, "big")

    return change


@pytest.mark.parametrize(
    "kind, change, says",
    [
        ("wav", put(24, "<I", 2**31 - 1), "2,147,483,647 Hz, expected 1,000 to 1,000,000"),
        ("wav", put(24, "<I", 1), "1 Hz, expected"),
        ("wav", put(24, "<I", 0), "can't be read as sound"),
        ("wav", put(22, "<H", 65535), "can't be read as sound"),
        ("wav", put(40, "<I", 0x7FFE0000), "truncated or damaged: got 16000 of"),
        ("flac", claim_flac(2**36 - 1), "truncated or damaged: got .* of 68719476735 samples"),
        ("flac", claim_flac(0), "doesn't state its length.*: ffmpeg -i"),
        ("au", put(16, ">I", 3), "3 Hz, expected"),
    ],
)
def test_a_header_that_lies_is_refused_by_both(tmp_path, kind, change, says):
    (tmp_path / f"x.{kind}").write_bytes(lying(kind, change))
    for call in (audio.info, lambda path: audio.load(path, RATE)):
        with pytest.raises(UserError, match=f"x.{kind}: .*{says}"):
            call(tmp_path / f"x.{kind}")


def test_what_memory_cannot_hold_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "x.wav").write_bytes(encoded(speech(1), format="WAV"))

    def full(*_):
        raise MemoryError

    monkeypatch.setattr(audio.Sound, "_read", full)
    with pytest.raises(UserError, match="x.wav: is too long for this machine's memory; cut it"):
        audio.load(tmp_path / "x.wav", RATE)


# what is no regular file


def test_a_pipe_and_a_device_are_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x.wav")
    for path in (tmp_path / "x.wav", "/dev/zero", "/dev/null"):
        for call in (audio.info, lambda path: audio.load(path, RATE)):
            with pytest.raises(UserError, match="is a device or a pipe"):
                call(path)
    assert audio.find(tmp_path) == []


@pytest.mark.parametrize(
    "name, says",
    [
        ("a\0b.wav", "has a NUL"),
        ("a\udcff.wav", "no such file"),
        ("\ud800.wav", "isn't UTF-8"),
        ("https://example.com/a.wav", "URLs aren't fetched"),
        ("x" * 5000, "can't be read"),
    ],
)
def test_names_that_no_file_has(name, says):
    for call in (audio.info, lambda path: audio.load(path, RATE)):
        with pytest.raises(UserError, match=says):
            call(name)


def test_an_unreadable_file_is_called_so(tmp_path, monkeypatch):
    """Rights don't bind root, so the system's answer is given here."""
    monkeypatch.setattr(
        audio.os, "open", lambda *_: (_ for _ in ()).throw(PermissionError(13, "Permission denied"))
    )
    monkeypatch.setattr(
        "builtins.open", lambda *_: (_ for _ in ()).throw(PermissionError(13, "Permission denied"))
    )
    with pytest.raises(UserError, match=r"x.wav: can't be read \(Permission denied\)"):
        audio.info(tmp_path / "x.wav")


# channels


def stereo(path, *channels):
    soundfile.write(path, np.stack(channels, axis=1), RATE)
    return path


def test_opposite_channels_are_told_once_with_the_name_and_what_to_do(tmp_path, capsys):
    wave = speech(1)
    audio.load(stereo(tmp_path / "same.wav", wave, wave), RATE)
    audio.load(stereo(tmp_path / "half.wav", wave, np.zeros_like(wave)), RATE)
    audio.load(stereo(tmp_path / "none.wav", 0 * wave, 0 * wave), RATE)
    path = stereo(tmp_path / "opposite.wav", wave, -wave)
    np.testing.assert_allclose(audio.load(path, RATE, channel=1), -wave, atol=1e-4)
    assert capsys.readouterr().err == ""
    for _ in range(2):
        audio.load(path, RATE)
    said = capsys.readouterr().err
    assert said.count(str(path)) == 1 and "cancel each other out" in said and "--channel" in said


def test_a_channel_that_is_not_there(tmp_path):
    path = stereo(tmp_path / "x.wav", speech(1), speech(1))
    for channel in (2, -1):
        with pytest.raises(
            UserError, match=f"has 2 channels, counted from 0; channel {channel} was requested"
        ):
            audio.load(path, RATE, channel=channel)


# what decoders write by themselves


def test_a_decoder_is_quiet_of_a_good_file_and_of_a_bad_one_the_file_is_named(tmp_path):
    """In a process of its own, for native code writes past Python's sys.stderr."""
    good = encoded(speech(4), format="MP3", bitrate_mode="CONSTANT", compression_level=0.9)
    (tmp_path / "good.mp3").write_bytes(good + good)
    bad = bytearray(good)
    rng = np.random.default_rng(1)
    for place in frames(good)[10:60:5]:
        bad[place + 6 : place + 40] = rng.integers(0, 256, 34, np.uint8).tobytes()
    (tmp_path / "bad.mp3").write_bytes(bad)
    code = (
        "import sys; from asr.audio import load as audio\n"
        "for name in sys.argv[1:]:\n"
        "    audio.info(name); [audio.load(name, 16000, *part) for part in ((), (1.0, 0.5), (2.5,), ())]"
    )
    told = {}
    for name in ("good", "bad"):
        ran = subprocess.run(
            [sys.executable, "-c", code, tmp_path / f"{name}.mp3"], capture_output=True, text=True
        )
        assert ran.returncode == 0 and ran.stdout == ""
        told[name] = ran.stderr
    assert told["good"] == ""
    assert all(
        line.startswith(f"{tmp_path}/bad.mp3: damaged: its decoder says")
        for line in told["bad"].splitlines()
    )
    assert told["bad"]


def test_what_others_write_meanwhile_is_passed_on(capfd):
    with decoder_messages.caught() as complaints:
        os.write(2, b"[src/libmpg123/x.c:f():1] error: big_values too large!\n")
        os.write(2, b"somebody else's line\n")
        os.write(
            2,
            b"[src/libmpg123/x.c:f():1] error: part2_3_length (800) too large for available bit count (728)\n",
        )
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


def test_a_closed_stderr_is_no_fault(tmp_path):
    (tmp_path / "x.mp3").write_bytes(encoded(speech(1), format="MP3"))
    code = "import sys; from asr.audio import load as audio; audio.load(sys.argv[1], 16000); print('fine')"
    command = f'{sys.executable} -c "{code}" {tmp_path / "x.mp3"} 2>&-'
    assert subprocess.run(command, shell=True, capture_output=True, text=True).stdout == "fine\n"
