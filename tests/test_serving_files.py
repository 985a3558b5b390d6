"""Uploaded files: every kind of sound, and the right status for everything else, however damaged.

Statuses are stated here, by what is wrong with each file.
"""

import os
import random
import shutil
import struct
import subprocess
import threading
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from posted import NOISE, WAV, error_of, post_of, raw, refusal, send, sound
from served import connected, serving, wait_until
from small import each
from spoken import HOW, RATE, say

import asr
from asr.serving import uploads
from asr.serving.app import create_app
from asr.serving.engine import Engine
from asr.serving.options import ServingOptions

FFMPEG = pytest.mark.skipif(not shutil.which("ffmpeg"), reason="no ffmpeg")


@each("kind", ["FLAC", "OGG VORBIS", "OGG OPUS", "MP3", "WAV FLOAT"])
def test_kinds_of_sound(client, transcribed, kind):
    content = sound(None, *kind.split())
    text = transcribed(content).text
    for name in ("a.wav", "blob", "../../etc/passwd", "a\0b.mp3", "x" * 500, "a.webm"):
        assert send(client, content, name).json()["text"] == text


@FFMPEG
@each("kind", ["webm", "m4a", "mp4", "mkv"])
def test_containers_of_browsers(client, tmp_path, kind, monkeypatch):
    def converted(content):
        paths = [tmp_path / f"{len(content)}.{suffix}" for suffix in ("wav", kind)]
        paths[0].write_bytes(content)
        subprocess.run(["ffmpeg", "-v", "error", "-i", *paths], check=True)
        return paths[1].read_bytes()

    content = converted(WAV)
    assert send(client, content, "blob").json()["text"].startswith("A")
    assert refusal(send(client, converted(sound(say("-" * 200))))) == (413, "too_long")
    monkeypatch.setenv("PATH", "/nowhere")
    assert refusal(send(client, content, f"a.{kind}")) == (415, "unsupported_format")


def wav(channels=1, rate=RATE, bits=16, data=4000, claimed=None, kind=1, content=None):
    """A header that may lie, and samples."""
    body = b"\1\0" * (data // 2) if content is None else content
    size = len(body) if claimed is None else claimed
    align = channels * bits // 8
    form = struct.pack("<HHIIHH", kind, channels, rate, rate * align % 2**32, align % 2**16, bits)
    head = b"RIFF" + struct.pack("<I", min(size + 36, 2**32 - 1)) + b"WAVEfmt \x10\0\0\0" + form
    return head + b"data" + struct.pack("<I", size) + body


def flac(samples):
    """A FLAC file whose header claims another number of samples."""
    content = bytearray(sound(None, "FLAC"))
    content[21] = content[21] & 0xF0 | samples >> 32
    content[22:26] = struct.pack(">I", samples % 2**32)
    return bytes(content)


def box(kind, content=b""):
    return struct.pack(">I", 8 + len(content)) + kind + content


MP4 = box(b"ftyp", b"isom")
FLOATS = struct.pack("<4f", 0.1, float("nan"), float("inf"), 0.1) * 500
NESTED = b"".join(struct.pack(">I", 80_000 - 8 * n) + b"moov" for n in range(9000))
KNOWN_BAD = {  # 400: damaged, empty, or samples that can't be
    "nothing": b"",
    "claims 2^31 frames": wav(claimed=2**31 - 2**17),
    "not a number": wav(kind=3, bits=32, content=FLOATS),
    "one sample": wav(data=2),
    "no samples": wav(data=0),
    "a rate of 1 Hz": wav(rate=1),
    "40 channels": wav(channels=40, data=80_000),
    "a FLAC cut": sound(None, "FLAC")[:9000],
    "an Ogg cut": sound(None, "OGG", "VORBIS")[:7000],
    "an Opus cut": sound(None, "OGG", "OPUS")[:7000],
    "a WAV cut": WAV[:5001],
    "MP4 of nothing": box(b"ftyp", b"isom\0\0\0\0"),
    "MP4 of noise": MP4 + box(b"moov", NOISE),
    "MP4 whose box claims all": b"\xff\xff\xff\xffmoov" + bytes(500),
    "MP4 of boxes in boxes": MP4 + NESTED,
    "Matroska of noise": b"\x1aE\xdf\xa3" + NOISE,
    "Matroska that claims all": b"\x1aE\xdf\xa3\x01\xff\xff\xff\xff\xff\xff\xff" + bytes(100),
    "ASF of noise": b"0&\xb2u\x8ef\xcf\x11" + NOISE,
    "AAC of noise": b"\xff\xf1" + NOISE,
}
TOO_LONG = {  # 413: more than half a minute
    "an hour of silence in FLAC": sound(np.zeros(3600 * RATE, np.int16), "FLAC"),
    "an hour of silence in Opus": sound(np.zeros(600 * RATE, np.float32), "OGG", "OPUS"),
    "31 s": wav(bits=8, data=31 * RATE),
}
NO_SOUND = {  # 415
    "text": b"hello, world\n",
    "HTML": b"<!doctype html><script>alert(1)</script>",
    "a playlist": b"#EXTM3U\n#EXT-X-TARGETDURATION:1\nfile:///etc/passwd\n",
    "a concat script": b"ffconcat version 1.0\nfile /etc/passwd\n",
    "an SDP": b"v=0\nc=IN IP4 10.0.0.1\nm=audio 5004 RTP/AVP 96\n",
    "XML with an entity": b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>',
    "JPEG": b"\xff\xd8\xff\xe0" + bytes(900),
    "ZIP": b"PK\3\4" + NOISE,
    "a pickle": b"\x80\x04cos\nsystem\n(S'touch /tmp/owned'\ntR.",
    "zeros": bytes(5000),
    "a RIFF of no WAVE": b"RIFF\x10\0\0\0AVI LIST" + bytes(20),
    "RIFF alone": b"RIFF",
    "fLaC alone": b"fLaC",
    "OggS alone": b"OggS",
    "ID3 alone": b"ID3\4\0\0\x7f\x7f\x7f\x7f",
    "zero channels": wav(channels=0),
    **{f"noise {n}": random.Random(n).randbytes(200 * n + 50) for n in range(6)},
}


def cases(table, status):
    return [pytest.param(content, status, id=name) for name, content in table.items()]


FILES = cases(KNOWN_BAD, {400}) + cases(TOO_LONG, {413}) + cases(NO_SOUND, {415})
UNSURE = {"a rate of 4 GHz": wav(rate=2**32 - 1), "UTF-16": "hello".encode("utf-16") * 50}
FILES += cases(UNSURE, {400, 415})  # libsndfile takes the latter for MP3
FILES += cases({f"WAV[:{n}]": WAV[:n] for n in range(1, 46)}, {400, 415})
FILES += cases({f"FLAC of 2^{n}": flac((1 << n) - 1) for n in (20, 32, 36)}, {400, 413})


@each("content, statuses", FILES)
def test_files(client, content, statuses):
    """With the right name, with a name that lies, and without one."""
    for name in ("a.wav", "a.webm", "a"):
        answer = send(client, content, name)
        error = error_of(answer)
        assert answer.status_code in statuses, (answer.status_code, error)
        assert error["param"] == "file" and "/tmp" not in error["message"], error


def test_damage_anywhere_in_a_header_is_an_answer(client):
    """Bytes of each header are changed; whatever comes of it is a text or a refusal."""
    draw = random.Random(1)
    for content in (WAV, sound(None, "FLAC"), sound(None, "OGG", "VORBIS"), sound(None, "MP3")):
        for _ in range(12):
            damaged = bytearray(content)
            for _ in range(3):
                damaged[draw.randrange(60)] = draw.randrange(256)
            assert send(client, bytes(damaged)).status_code in (200, 400, 413, 415)


def test_a_header_that_leaves_the_length_open_is_read_as_far_as_it_goes(client):
    """As one that a pipe's writer leaves: 2^32 bytes."""
    streamed = wav(claimed=2**32 - 2**20, content=WAV[44:])
    assert send(client, streamed).json() == send(client).json()


def test_slow_decodings_hold_up_nobody_else(recognizer, tmp_path, monkeypatch):
    """ffmpeg never ends here: others are served, whoever leaves ends it, and the server's end hands back the rest."""
    slow, begun = tmp_path / "ffmpeg", tmp_path / "begun"
    slow.write_text(f"#!/bin/sh\necho $$ >> {begun}\nexec sleep 600\n")
    slow.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    engine, given = Engine(recognizer, HOW), []
    close = engine.close
    monkeypatch.setattr(engine, "close", lambda seconds: (given.append(seconds), close(seconds)))
    app = create_app({"a": engine}, ServingOptions(shutdown_seconds=0.2))
    folder = Path(app.state.service.folder)
    with ExitStack() as stack:
        with serving(app) as address:

            def ask(content):
                line = stack.enter_context(connected(address))
                line.sendall(post_of(content))
                return line

            lines = [ask(KNOWN_BAD["Matroska of noise"]) for _ in range(40)]
            wait_until(lambda: begun.exists() and begun.read_text().count("\n") >= 2)
            assert b" 200 " in raw(address, b"GET /health HTTP/1.0\r\nHost: a\r\n\r\n")
            assert raw(address, post_of(WAV)).startswith(b"HTTP/1.1 200")
            assert begun.read_text().count("\n") == uploads.DECODERS
            for line in lines[:-1]:
                line.close()
            wait_until(lambda: len(list(folder.iterdir())) == 1)
            engine._batches.admit = lambda: False  # it waits
            left = [lines[-1], ask(WAV)]
            wait_until(lambda: engine.load[0] == 1)
        for line in left:
            answer = line.recv(9999)
            assert answer.startswith(b"HTTP/1.1 503") and b"shutting_down" in answer
    assert set(given) == {0.0}  # the server has waited already
    for process in map(int, begun.read_text().split()):
        pytest.raises(ProcessLookupError, os.kill, process, 0)


def test_what_ffmpeg_makes_when_its_request_has_gone_is_removed(tmp_path, monkeypatch):
    folder, begun = tmp_path / "request", threading.Event()
    folder.mkdir()  # without the upload: the request has removed that

    def decode(path, out, seconds, most, stop):
        begun.set()
        assert stop.wait(9)
        out.touch()
        raise asr.UserError("stopped")

    monkeypatch.setattr(uploads.containers, "is_installed", lambda: True)
    monkeypatch.setattr(uploads.containers, "decode", decode)
    decoders = uploads.Decoders(ServingOptions())
    with decoders.decoding(folder / "upload.webm", "Ann") as future:
        assert begun.wait(9)
    assert future.exception(9) and not folder.exists()
    decoders.close()


def test_nothing_of_an_upload_stays(client):
    assert list(Path(client.app.state.service.folder).iterdir()) == []
