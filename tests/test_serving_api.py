"""The HTTP API: what OpenAI's own client gets, and the right status for everything hostile that is sent.

What is expected of transcripts is what `asr.transcribe` gives for the same file. The recognizer is that of
test_live.py, whose letters are tones. Statuses are stated here, by what is wrong with each request.
"""

import asyncio
import io
import json
import logging
import os
import random
import re
import shutil
import socket
import struct
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import openai
import pysubs2
import pytest
import soundfile
from fastapi import FastAPI
from fastapi.testclient import TestClient
from small import near, rows
from test_live import HOW, RATE, recognizer, say  # noqa: F401 - a fixture
from test_serving_engine import short  # noqa: F401

import asr
from asr.cli import serve as command
from asr.serving import guard, server, uploads
from asr.serving.app import create_app
from asr.serving.engine import Bounds, Engine
from asr.serving.options import ServingOptions
from asr.serving.service import Limiter

TEXT = "--AB_CDA--EB_D--C_C_A_E--"
PATH = "/v1/audio/transcriptions"
OPTIONS = ServingOptions(
    max_megabytes=0.4,
    max_minutes=0.5,
    requests_per_minute=100_000,
    receive_seconds=0.4,
    cors="https://friend.org",
)
FFMPEG = pytest.mark.skipif(not shutil.which("ffmpeg"), reason="no ffmpeg")
each = pytest.mark.parametrize


def sound(waveform=None, kind="WAV", subtype=None, rate=RATE):
    """A sound file's bytes."""
    file = io.BytesIO()
    soundfile.write(file, say(TEXT) if waveform is None else waveform, rate, subtype, format=kind)
    return file.getvalue()


WAV = sound()


@contextmanager
def serving(engines, options=OPTIONS, token=""):
    """Serve as asr-serve does, on a free port; give it."""
    app = engines if isinstance(engines, FastAPI) else create_app(engines, options, token)
    running = server.Server(server.settings(app, port=0))
    thread = threading.Thread(target=running.run)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    try:
        yield running.servers[0].sockets[0].getsockname()[1]
    finally:
        running.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def expected(recognizer, tmp_path_factory):  # noqa: F811
    path = tmp_path_factory.mktemp("expected") / "x.wav"
    path.write_bytes(WAV)
    return asr.transcribe(recognizer, path, **vars(HOW))


@pytest.fixture(scope="module")
def client(recognizer):  # noqa: F811
    app = create_app({"tones": Engine(recognizer, HOW)}, OPTIONS)
    with TestClient(app, raise_server_exceptions=False) as made:
        yield made


@pytest.fixture(scope="module")
def port(recognizer):  # noqa: F811
    pytest.MonkeyPatch().setattr(guard, "DRAIN_SECONDS", 0.3)
    with serving({"tones": Engine(recognizer, HOW)}) as number:
        yield number


@pytest.fixture(scope="module")
def theirs(port):
    """OpenAI's client."""
    with openai.OpenAI(
        base_url=f"http://127.0.0.1:{port}/v1", api_key="any", max_retries=0
    ) as made:
        yield made.audio.transcriptions


def send(client, content=WAV, name="a.wav", headers=None, **data):
    return client.post(PATH, files={"file": (name, content)}, data=data, headers=headers)


def error_of(answer):
    """OpenAI's error object, complete."""
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"], answer.text
    return error


class TestOpenAI:
    """Their client, in every format."""

    def test_json_and_text(self, theirs, expected):
        found = theirs.create(file=("a.wav", WAV), model="whisper-1", language="en", temperature=0)
        assert found.text == expected.text and found.model == "tones"
        assert found.usage.type == "duration" and found.usage.seconds == 5
        text = theirs.create(file=("a.wav", WAV), model="x", response_format="text", prompt="Hm,")
        assert text == expected.text + "\n"

    @each("kind", ["srt", "vtt"])
    def test_subtitles(self, theirs, expected, kind):
        text = theirs.create(file=("a.wav", WAV), model="x", response_format=kind)
        cues = pysubs2.SSAFile.from_string(text, format_=kind)
        assert " ".join(cue.plaintext for cue in cues).split() == expected.text.split()
        assert abs(cues[0].start / 1000 - expected.segments[0].start) < 0.01

    @each("wanted", [["word"], ["segment"], ["word", "segment"]])
    def test_verbose_json(self, theirs, expected, wanted):
        found = theirs.create(
            file=("a.wav", WAV),
            model="x",
            response_format="verbose_json",
            timestamp_granularities=wanted,
            chunking_strategy={"type": "server_vad", "threshold": 0.4},
        )
        words = [w for part in expected.segments for w in part.words]
        assert found.text == expected.text and abs(found.duration - expected.duration) < 1e-3
        assert bool(found.segments) == ("segment" in wanted)
        if "word" in wanted:
            near([(w.start, w.end) for w in found.words], [(w.start, w.end) for w in words], 6e-4)
            assert [w.word for w in found.words] == [w.text for w in words]
        for got, part in zip(found.segments or [], expected.segments, strict=False):
            assert (got.text, got.tokens) == (part.text, part.nbest[0].tokens)
            near(np.exp(got.avg_logprob), part.confidence, 1e-6)

    def test_logprobs(self, theirs, expected):
        found = theirs.create(file=("a.wav", WAV), model="x", include=["logprobs"])
        assert "".join(one.token for one in found.logprobs).split() == expected.text.split()
        best = expected.segments[0].nbest[0]
        near([np.exp(one.logprob) for one in found.logprobs], best.confidences, 1e-6)

    def test_streams_of_events(self, theirs, recognizer, expected, monkeypatch):  # noqa: F811
        events = list(theirs.create(file=("a.wav", WAV), model="x", stream=True))
        assert [e.type for e in events] == ["transcript.text.delta", "transcript.text.done"]
        assert events[0].delta == events[1].text == expected.text

    def test_hotwords_and_the_model_s_own_case(self, theirs, recognizer, tmp_path):  # noqa: F811
        """Each keyword is a hotword; small letters are taken to the model's capitals."""
        (tmp_path / "x.wav").write_bytes(WAV)
        found = theirs.create(file=("a.wav", WAV), model="x", keywords=["cda", "E B"])
        how = vars(HOW) | {"hotwords": ("CDA", "E B")}
        assert found.text == asr.transcribe(recognizer, tmp_path / "x.wav", **how).text

    def test_errors_are_theirs(self, theirs):
        with pytest.raises(openai.BadRequestError) as caught:
            theirs.create(file=("a.wav", b""), model="x")
        assert caught.value.param == "file" and caught.value.code == "invalid_audio"
        with pytest.raises(openai.APIStatusError) as caught:
            theirs.create(file=("a.wav", b"\0" * 500_000), model="x")
        assert caught.value.status_code == 413


def test_several_models_are_told_apart(recognizer):  # noqa: F811
    engines = {"one": Engine(recognizer, HOW), "two": Engine(recognizer, HOW)}
    with TestClient(create_app(engines, OPTIONS)) as client:
        answer = send(client, model="whisper-1")
        assert answer.status_code == 404 and "one, two" in error_of(answer)["message"]
        assert send(client, model="two").json()["model"] == "two"
        listed = client.get("/v1/models").json()["data"]
        assert [(one["id"], one["live"]) for one in listed] == [("one", True), ("two", True)]
        assert client.get("/v1/models/two").json()["id"] == "two"
        assert client.get("/v1/models/three").status_code == 404


@each(
    "kind, subtype",
    [("FLAC", None), ("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", None), ("WAV", "FLOAT")],
)
def test_kinds_of_sound(client, recognizer, tmp_path, kind, subtype):  # noqa: F811
    (tmp_path / "x").write_bytes(content := sound(None, kind, subtype, RATE))
    text = asr.transcribe(recognizer, tmp_path / "x", **vars(HOW)).text
    for name in ("a.wav", "blob", "../../etc/passwd", "a\0b.mp3", "x" * 500, "a.webm"):
        assert send(client, content, name).json()["text"] == text


def in_container(folder, kind):
    (folder / "x.wav").write_bytes(WAV)
    out = folder / f"x.{kind}"
    subprocess.run(["ffmpeg", "-v", "error", "-i", folder / "x.wav", out], check=True)
    return out.read_bytes()


@FFMPEG
@each("kind", ["webm", "m4a", "mp4", "mkv"])
def test_containers_of_browsers(client, recognizer, tmp_path, kind, monkeypatch):  # noqa: F811
    content = in_container(tmp_path, kind)
    assert send(client, content, "blob").json()["text"].split()[0][0] == "A"
    longer = say("-" * 200)
    (tmp_path / "long.wav").write_bytes(sound(longer))
    subprocess.run(
        ["ffmpeg", "-v", "error", "-i", tmp_path / "long.wav", tmp_path / f"l.{kind}"], check=True
    )
    answer = send(client, (tmp_path / f"l.{kind}").read_bytes())
    assert (answer.status_code, error_of(answer)["code"]) == (413, "too_long")
    monkeypatch.setenv("PATH", "/nowhere")
    answer = send(client, content, f"a.{kind}")
    assert (answer.status_code, error_of(answer)["code"]) == (415, "unsupported_format")


def test_long_files_come_by_and_by(short, tmp_path):  # noqa: F811
    content = sound(say(TEXT * 8))
    (tmp_path / "x.wav").write_bytes(content)
    expected = asr.transcribe(short, tmp_path / "x.wav", **vars(HOW))
    options = ServingOptions()
    with TestClient(
        create_app({"a": Engine(short, HOW, bounds=Bounds(batch_seconds=4.0))}, options)
    ) as client:
        answer = send(client, content, stream="true")
        events = [json.loads(line[6:]) for line in answer.text.split("\n\n") if line]
    deltas = [one["delta"] for one in events if one["type"] == "transcript.text.delta"]
    assert len(deltas) > 3 and "".join(deltas) == events[-1]["text"] == expected.text


FIELDS = """
response_format=xml                          | 400 | response_format
response_format=                             | 400 | response_format
response_format=JSON                         | 400 | response_format
response_format=diarized_json                | 400 | response_format
response_format=../../etc/passwd             | 400 | response_format
temperature=hot                              | 400 | temperature
temperature=-1                               | 400 | temperature
temperature=nan                              | 400 | temperature
temperature=inf                              | 400 | temperature
temperature=1e999                            | 400 | temperature
temperature=3                                | 400 | temperature
timestamp_granularities[]=word               | 400 | timestamp_granularities
timestamp_granularities[]=letter&response_format=verbose_json | 400 | timestamp_granularities
include[]=logprobs&response_format=text      | 400 | include
include[]=everything                         | 400 | include
include[]=logprobs&include[]=logprobs        | 400 | include
stream=perhaps                               | 400 | stream
stream=true&response_format=srt              | 400 | stream
stream=true&response_format=verbose_json     | 400 | stream
nbest=0                                      | 400 | nbest
nbest=11                                     | 400 | nbest
nbest=-1                                     | 400 | nbest
nbest=1.5                                    | 400 | nbest
nbest=99999999999999999999999999             | 400 | nbest
nbest=3                                      | 400 | nbest
language=english please                      | 400 | language
language=../..                               | 400 | language
language=<script>                            | 400 | language
keywords[]=                                  | 400 | keywords
keywords[]=ЖЖЖ                               | 400 | keywords
keywords[]=A\tinf                            | 400 | keywords
keywords[]=A\x1b[2J                          | 400 | keywords
keywords[]=$LONG                             | 400 | keywords
chunking_strategy=server_vad                 | 400 | chunking_strategy
chunking_strategy={"type": "server_vad", "threshold": 2}  | 400 | chunking_strategy
chunking_strategy={"type": "none"}           | 400 | chunking_strategy
chunking_strategy={"type": "server_vad", "x": 1}          | 400 | chunking_strategy
chunking_strategy={                          | 400 | chunking_strategy
chunking_strategy=$DEEP                      | 400 | chunking_strategy
chunking_strategy[type]=none                 | 400 | chunking_strategy
chunking_strategy[]=auto                     | 400 | chunking_strategy
chunking_strategy[threshold]=1e400&chunking_strategy[type]=server_vad | 400 | chunking_strategy
known_speaker_names[]=Ann                    | 400 | known_speaker_names[]
path=/etc/passwd                             | 400 | path
model_path=/etc                              | 400 | model_path
hotwords=/etc/passwd                         | 400 | hotwords
lm=/etc                                      | 400 | lm
device=cuda                                  | 400 | device
__class__=x                                  | 400 | __class__
model_config=x                               | 400 | model_config
beam=1000000                                 | 400 | beam
response_format=json&response_format=text    | 400 | response_format
model=$LONG                                  | 400 | model
prompt=$LONG$LONG                            | 400 | prompt
model=../../etc/passwd                       | 200 | -
model=whisper-1'; DROP TABLE models; --      | 200 | -
model=a\0b                                   | 200 | -
language=en&languages[]=en&prompt=x&temperature=0.2&chunking_strategy=auto | 200 | -
chunking_strategy={"type": "server_vad", "silence_duration_ms": 300} | 200 | -
keywords[]=a&keywords[]=A&keywords[]=b       | 200 | -
"""


@each("fields, status, param", rows(FIELDS))
def test_fields(client, fields, status, param):
    data = {}
    for pair in fields.split("&"):
        name, _, value = pair.partition("=")
        value = value.replace("$LONG", "x" * 15_000).replace("$DEEP", '{"a":' * 5000)
        data.setdefault(name, []).append(
            value.replace("\\t", "\t").replace("\\x1b", "\x1b").replace("\\0", "\0")
        )
    answer = send(client, **data)
    assert answer.status_code == int(status), answer.text
    if answer.status_code != 200:
        error = error_of(answer)
        assert error["param"] == param and error["type"] == "invalid_request_error"
        assert len(error["message"]) < 300 and "/tmp" not in error["message"]


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


RANDOM = random.Random(0)
FLOATS = np.frombuffer(struct.pack("<4f", 0.1, float("nan"), float("inf"), 0.1) * 500, np.float32)
NESTED = b"".join(struct.pack(">I", 80_000 - 8 * n) + b"moov" for n in range(9000))
KNOWN_BAD = {  # 400: damaged, empty, or samples that can't be
    "nothing": b"",
    "claims 2^31 frames": wav(claimed=2**31 - 2**17),
    "not a number": wav(kind=3, bits=32, content=FLOATS.tobytes()),
    "one sample": wav(data=2),
    "no samples": wav(data=0),
    "a rate of 1 Hz": wav(rate=1),
    "40 channels": wav(channels=40, data=80_000),
    "255 channels": wav(channels=255, data=255 * 4 * 100),
    "a FLAC cut": sound(None, "FLAC")[:9000],
    "an Ogg cut": sound(None, "OGG", "VORBIS")[:7000],
    "an Opus cut": sound(None, "OGG", "OPUS")[:7000],
    "a WAV cut": WAV[:5001],
    "MP4 of nothing": box(b"ftyp", b"isom\0\0\0\0"),
    "MP4 of noise": box(b"ftyp", b"isom") + box(b"moov", RANDOM.randbytes(3000)),
    "MP4 whose box claims all": b"\xff\xff\xff\xffmoov" + bytes(500),
    "MP4 of boxes in boxes": box(b"ftyp", b"isom")
    + b"".join(struct.pack(">I", 80000 - 8 * n) + b"moov" for n in range(9000)),
    "Matroska of noise": b"\x1aE\xdf\xa3" + RANDOM.randbytes(3000),
    "Matroska that claims all": b"\x1aE\xdf\xa3\x01\xff\xff\xff\xff\xff\xff\xff" + bytes(100),
    "ASF of noise": b"0&\xb2u\x8ef\xcf\x11" + RANDOM.randbytes(3000),
    "AAC of noise": b"\xff\xf1" + RANDOM.randbytes(3000),
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
    "SVG": b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>',
    "PNG": b"\x89PNG\r\n\x1a\n" + RANDOM.randbytes(900),
    "JPEG": b"\xff\xd8\xff\xe0" + bytes(900),
    "PDF": b"%PDF-1.7\n" + RANDOM.randbytes(900),
    "ZIP": b"PK\3\4" + RANDOM.randbytes(900),
    "gzip": b"\x1f\x8b\x08" + RANDOM.randbytes(900),
    "ELF": b"\x7fELF" + RANDOM.randbytes(900),
    "a pickle": b"\x80\x04cos\nsystem\n(S'touch /tmp/owned'\ntR.",
    "shell": b"#!/bin/sh\ntouch /tmp/owned\n",
    "JSON": b'{"a": 1}',
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
CUTS = [1, 3, 4, 8, 11, 12, 16, 20, 22, 24, 30, 35, 36, 40, 43, 44, 45]
FILES += [pytest.param(WAV[:n], {400, 415}, id=f"WAV[:{n}]") for n in CUTS]
FILES += [
    pytest.param(flac(n), {400, 413}, id=f"FLAC of {n}") for n in (1 << 20, 1 << 32, (1 << 36) - 1)
]


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


FORM = "multipart/form-data; boundary=X"


def field(name, content, file=""):
    """A part of a form."""
    file = f'; filename="{file}"' if file else ""
    return (
        f'--X\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'.encode()
        + content
        + b"\r\n"
    )


START, END = field("file", b"", "a.wav")[:-2], b"\r\n--X--\r\n"
BODIES = {
    "no boundary": ("multipart/form-data", WAV, 400),
    "JSON": ("application/json", b'{"file": "/etc/passwd"}', 415),
    "a form": ("application/x-www-form-urlencoded", b"file=/etc/passwd", 415),
    "no kind": ("", WAV, 415),
    "another charset": (FORM + "; charset=punycode", START + WAV + END, 415),
    "another kind": ("audio/wav", WAV, 415),
    "nothing": (FORM, b"", 400),
    "no parts": (FORM, b"--X--\r\n", 400),
    "noise": (FORM, RANDOM.randbytes(3000), 400),
    "another boundary": (FORM.replace("X", "Y"), START + b"--X--", 400),
    "a long boundary": (FORM.replace("X", "x" * 9000), b"--" + b"x" * 9000, 400),
    "not Latin": (FORM.replace("X", "ÿ"), b"--X--\r\n", 400),
    "a part without a name": (FORM, b"--X\r\n\r\nx" + END, 400),
    "a file as text": (FORM, field("file", b"/etc/passwd") + END, 400),
    "text as a file": (FORM, field("model", b"x", "a") + END, 400),
    "two files": (FORM, field("file", b"x", "a") * 2 + END, 400),
    "no end": (FORM, START + WAV[:500], 400),
    "many fields": (FORM, b"".join(field(f"{n}", b"x") for n in range(400)) + END, 400),
    "a long field": (FORM, field("prompt", b"x" * 70_000) + END, 400),
    "a long header": (FORM, b"--X\r\nA: " + b"x" * 300_000, 400),
}


@each("name", BODIES)
def test_bodies(client, name):
    kind, content, status = BODIES[name]
    headers = {"Content-Type": kind.encode("latin-1")} if kind else {}
    answer = client.post(PATH, content=content, headers=headers)
    assert answer.status_code == status, answer.text
    assert error_of(answer)["type"] == "invalid_request_error"


PATHS = """
PUT    /v1/audio/transcriptions                | 405
DELETE /v1/models/tones                        | 405
POST   /v1/models                              | 405
POST   /health                                 | 405
TRACE  /v1/models                              | 405
GET    /v1/audio/translations                  | 404
GET    /v1                                     | 404
GET    /docs                                   | 404
GET    /redoc                                  | 404
GET    /.git/config                            | 404
GET    /.env                                   | 404
GET    /app.py                                 | 404
GET    /static/index.html                      | 404
GET    /index.html%00.js                       | 404
GET    /health                                 | 200
GET    /metrics                                | 200
GET    /openapi.json                           | 200
GET    /v1/models                              | 200
GET    /v1/models/gpt-4o-transcribe            | 200
GET    /                                       | 200
"""


@each("request_line, status", rows(PATHS))
def test_paths(client, request_line, status):
    method, path = request_line.split()
    answer = client.request(method, path)
    assert answer.status_code == int(status), answer.text
    for name in ("content-security-policy", "x-content-type-options", "referrer-policy"):
        assert answer.headers[name]
    assert (
        "unsafe" not in answer.headers["content-security-policy"] and "server" not in answer.headers
    )
    if int(status) >= 400:
        error_of(answer)


SECRET = "a long secret"
HEADERS = """
Authorization: Bearer a long secret                  | 200
authorization: bearer a long secret                  | 200
Authorization:                                       | 401
Authorization: Bearer                                | 401
Authorization: a long secret                         | 401
Authorization: Basic a long secret                   | 401
Authorization: Bearer a long secre                   | 401
Authorization: Bearer a long secrets                 | 401
Authorization: Bearer A LONG SECRET                  | 401
Authorization: Bearer ÿ                              | 401
X-Api-Key: a long secret                             | 401
Cookie: token=a long secret                          | 401
Host: evil.org                                       | 421
Host: localhost.evil.org                             | 421
Host: evil.org:8000                                  | 421
Host: [::1                                           | 421
Host:                                                | 421
Origin: https://evil.org                             | 403
Origin: null                                         | 403
Origin: http://[                                     | 403
Origin: https://friend.org.evil.org                  | 403
Origin: http://friend.org                            | 403
"""


@pytest.fixture(scope="module")
def guarded(recognizer):  # noqa: F811
    options = ServingOptions(cors="https://friend.org", hosts="localhost,127.0.0.1,[::1]")
    app = create_app({"tones": Engine(recognizer, HOW)}, options, SECRET)
    with TestClient(app, base_url="http://localhost:8000") as made:
        yield made


@each("header, status", rows(HEADERS))
def test_headers(guarded, header, status):
    name, _, value = header.partition(":")
    headers = {name: value.strip().encode("latin-1")}
    for method, path in (
        ("GET", "/v1/models"),
        ("GET", "/metrics"),
        ("POST", PATH),
        ("GET", "/openapi.json"),
    ):
        answer = guarded.request(method, path, headers=headers)
        assert answer.status_code == (415 if method == "POST" and status == "200" else int(status))
        if int(status) >= 400:
            error_of(answer)
    if status == "401":
        assert guarded.get("/health", headers=headers).json() == {"status": "ok"}
        assert guarded.get("/", headers=headers).status_code == 200


NAMES = """
--port 80      | localhost:8000 127.0.0.1 10.1.2.3:80 [fe80::1] [::1]:80 | evil.org a.org:80 10.1.2.3.evil.org [::1
--host 0.0.0.0 | LOCALHOST 192.168.1.7:8000 [2001:db8::1]:8000 | evil.org 0x7f000001 192.168.1.7.nip.io box
--host asr.lan | asr.lan:8000 localhost 10.1.2.3               | evil.org lan
--hosts Box    | box:8000 10.1.2.3 localhost                   | evil.org asr.box
--hosts *      | box evil.org 10.1.2.3                         | -
"""


@each("arguments, known, unknown", rows(NAMES))
def test_names_without_a_token(arguments, known, unknown):
    """A page's own name that DNS leads here (rebinding) is refused; an address is nobody's name."""
    args = command.arguments().parse_args(["--model", "x", "--without-token", *arguments.split()])
    app = create_app({}, ServingOptions(hosts=command.hosts(args)))
    client = TestClient(app)
    for host in known.split():
        assert client.get("/health", headers={"Host": host}).status_code == 200, host
    for host in unknown.strip("-").split():
        assert client.get("/health", headers={"Host": host}).status_code == 421, host


def test_other_pages_may_ask_if_they_are_named(guarded):
    ask = {"Origin": "https://friend.org", "Access-Control-Request-Method": "POST"}
    headers = {"Access-Control-Request-Headers": "authorization"} | ask
    assert (
        guarded.options(PATH, headers=headers).headers["access-control-allow-origin"]
        == ask["Origin"]
    )
    bearer = {"Authorization": f"Bearer {SECRET}", "Origin": "https://friend.org"}
    assert guarded.get("/v1/models", headers=bearer).headers["access-control-allow-origin"]
    evil = guarded.options(PATH, headers=ask | {"Origin": "https://evil.org"})
    assert evil.status_code in (400, 403) and "access-control-allow-origin" not in evil.headers


def test_a_bucket_gives_what_it_holds_and_fills_evenly():
    now = [0.0]
    limiter = Limiter(60, lambda: now[0])
    assert [limiter.wait("a") for _ in range(60)] == [0.0] * 60
    assert 0 < limiter.wait("a") <= 1 and limiter.wait("b") == 0.0
    now[0] += 1.0
    assert limiter.wait("a") == 0.0 and limiter.wait("a") > 0
    for n in range(20_000):
        limiter.wait(f"{n}")
    assert len(limiter._left) <= 10_000


def test_what_is_too_much_or_too_late_is_told(recognizer, monkeypatch):  # noqa: F811
    options = ServingOptions(requests_per_minute=3, transcribe_seconds=0.3, max_requests=1)
    engine = Engine(recognizer, HOW)
    with TestClient(create_app({"a": engine}, options)) as client:
        with monkeypatch.context() as patched:
            patched.setattr(engine._batches, "admit", lambda: False)
            answer = send(client)
            assert (answer.status_code, error_of(answer)["code"]) == (504, "timeout")
            client.app.state.service.arriving = 1
            answer = send(client)
            assert (answer.status_code, error_of(answer)["code"]) == (429, "queue_full")
            client.app.state.service.arriving = 0
        assert send(client).status_code == 200
        answer = send(client)
        assert answer.status_code == 429 and int(answer.headers["retry-after"]) > 0
        assert error_of(answer)["type"] == "rate_limit_error"
        metrics = client.get("/metrics")
        assert metrics.status_code == 429
    with TestClient(create_app({"a": engine}, ServingOptions())) as client:  # it is closed
        answer = send(client)
        assert (answer.status_code, error_of(answer)["code"]) == (503, "shutting_down")


def test_logs_and_metrics_say_nothing_of_what_was_said(client, caplog):
    caplog.set_level(logging.INFO, "asr")
    text = send(client, prompt="geheim", model="geheim").json()["text"]
    client.get("/v1/models/geheim?geheim=geheim")
    line = json.loads(caplog.messages[0])
    assert line["route"] == PATH and line["status"] == 200 and line["audio"] > 4
    everything = client.get("/metrics").text + "\n".join(caplog.messages)
    assert "geheim" not in everything and text not in everything
    assert re.search(r'asr_audio_seconds_total\{model="tones"\} [1-9]', everything)
    assert re.search(r'asr_batch_size_count\{model="tones"\} [1-9]', everything)
    assert f'asr_requests_total{{route="{PATH}",status="200"}}' in everything


def raw(port, *parts, pause=0.0, seconds=5.0):
    """Send bytes as slowly as one likes; return the answer and the seconds until the end."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as line:
        answer = b""
        try:
            for part in parts:
                line.sendall(part)
                time.sleep(pause)
            while block := line.recv(65536):
                answer += block
        except (ConnectionError, TimeoutError):
            pass
    return answer, time.monotonic() - began


UPGRADE = (
    b"%s /v1/stream?%s HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n%s\r\n"
)
HEAD = (
    f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: multipart/form-data; boundary=X\r\n"
)


@each(
    "parts, pause, status",
    [
        ([b""], 0, b"408"),  # says nothing
        ([b"GET /health HTTP/1.1\r\n"], 0, b"408"),  # and stops
        ([b"GET /hea", *[b"x"] * 30], 0.05, b""),  # a byte now and then
        ([HEAD.encode() + b"Content-Length: 9999\r\n\r\n" + START], 0, b"408"),
        ([HEAD.encode() + b"Content-Length: 500001\r\n\r\n"], 0, b"413"),
        ([HEAD.encode() + b"Content-Length: -5\r\n\r\n"], 0, b"400"),
        ([HEAD.encode() + b"Content-Length: 99999999999999999999999\r\n\r\n"], 0, b"4"),
        ([HEAD.encode() + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n"], 0, b"400"),
        (
            [
                HEAD.encode() + b"Transfer-Encoding: chunked\r\n\r\n",
                b"%x\r\n%s\r\n" % (len(START), START),
                *[b"4000\r\n" + bytes(0x4000) + b"\r\n"] * 30,
            ],
            0,
            b"413",
        ),
        ([b"\x16\x03\x01\x02\x00\x01\x00"], 0, b"4"),  # TLS
        ([b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"x" * 20_000, b"x\r\n\r\n"], 0.05, b"4"),
        ([b"GET /health HTTP/x\r\nHost: x\r\n\r\n"], 0, b"400"),
        ([b"GET /health\r\n\r\n"], 0, b"400"),
        ([b"GET /health HTTP/1.1\r\n\r\n"], 0, b"400"),  # no Host
        ([b"GET /h\xff HTTP/1.1\r\nHost: x\r\n\r\n"], 0, b"400"),
        ([UPGRADE % (b"POST", b"", b"")], 0, b"4"),
        ([UPGRADE % (b"GET", b"", b"Content-Length: 1\r\n")], 0, b"400"),
        ([UPGRADE % (b"GET", b"x" * 9000, b"")], 0, b"400"),
        ([UPGRADE % (b"GET", b"", b"A: b\r\n" * 200)], 0, b"400"),
        # a mistake at the beginning of a body that goes on
        (
            [
                f"{HEAD}Connection: close\r\nContent-Length: 399999\r\n\r\n--X\r\n\r\n".encode(),
                bytes(300_000),
            ],
            0,
            b"400",
        ),
    ],
)
def test_slow_and_broken_connections(port, parts, pause, status):
    answer, seconds = raw(port, *parts, pause=pause)
    assert answer.startswith(b"HTTP/1.1 " + status) or answer == status, answer[:100]
    assert seconds < 4


TARGETS = """
/../../etc/passwd      /..%2f..%2fetc/passwd   /%2e%2e/%2e%2e/app.py   /..%5c..%5capp.py   //etc/passwd
/%2fetc/passwd         /./../app.py            /static/../../app.py    /index.html/../..   /%c0%ae%c0%ae/app.py
/v1/%2e%2e/app.py      /..;/app.py             /%252e%252e/app.py      /v1/models/../..    /~root/.ssh/id_rsa
"""


@each("target", TARGETS.split())
def test_no_path_leads_out(port, target):
    line = f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    answer, _ = raw(port, line.encode())
    assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 307")), answer[:200]
    assert b"root:" not in answer and b"import" not in answer


def test_a_header_that_leaves_the_length_open_is_read_as_far_as_it_goes(client):
    """As one that a pipe's writer leaves: 2^32 bytes."""
    streamed = wav(claimed=2**32 - 2**20, content=WAV[44:])
    assert send(client, streamed).json() == send(client).json()


def test_connections_are_counted_and_a_client_that_leaves_frees_its_work(recognizer):  # noqa: F811
    engine = Engine(recognizer, HOW)
    options = ServingOptions(max_connections=3, receive_seconds=5)
    app = create_app({"a": engine}, options)
    with serving(app, options) as port:
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
        time.sleep(0.1)
        assert raw(port, b"")[0].startswith(b"HTTP/1.1 503")
        for line in idle:
            line.close()
        time.sleep(0.1)
        engine._batches.admit = lambda: False  # it waits
        folder = Path(app.state.service.folder)
        for more in (b"", field("stream", b"true")):
            whole = post_of(WAV, more)
            with socket.create_connection(("127.0.0.1", port)) as line:
                line.sendall(whole)
                wait_until(lambda: engine.load[0] == 1 and list(folder.iterdir()))
            wait_until(lambda: engine.load[0] == 0 and not list(folder.iterdir()))
        del engine._batches.admit
        assert raw(port, whole)[0].startswith(b"HTTP/1.1 200")


def test_slow_decodings_hold_up_nobody_else(recognizer, tmp_path, monkeypatch):  # noqa: F811
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
        with serving(app, app.state.service.options) as port:

            def ask(content):
                line = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                line.sendall(post_of(content))
                return line

            lines = [ask(KNOWN_BAD["Matroska of noise"]) for _ in range(40)]
            wait_until(lambda: begun.exists() and begun.read_text().count("\n") >= 2)
            assert raw(port, b"GET /health HTTP/1.0\r\nHost: a\r\n\r\n", seconds=30)[0].count(
                b" 200 "
            )
            assert raw(port, post_of(WAV), seconds=30)[0].startswith(b"HTTP/1.1 200")
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
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def post_of(content, more=b""):
    """A request that transcribes, and ends its connection."""
    body = more + START + content + END
    return f"{HEAD}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@each("turns", range(5))
def test_a_cancellation_is_not_lost_when_a_body_comes_at_that_moment(client, turns):
    async def is_canceled():
        body = asyncio.get_running_loop().create_future()

        async def receive():
            return await body

        before = guard.Guard(None, client.app.state.service)
        task = asyncio.ensure_future(guard._Exchange(before, {}, receive, None).receive())
        await asyncio.sleep(0.01)
        body.set_result({"type": "http.request", "more_body": True})
        for _ in range(turns):
            await asyncio.sleep(0)
        was_running = task.cancel()
        await asyncio.wait([task])
        return task.cancelled() == was_running

    assert asyncio.run(is_canceled())


def wait_until(is_so, seconds=5.0):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_nothing_of_an_upload_stays(client):
    assert list(Path(client.app.state.service.folder).iterdir()) == []


REFUSED = """
--host 0.0.0.0                 | --host: got 0.0.0.0
--host ::                      | --host: got ::
--host asr.example.org         | --host: got asr.example.org
--certfile a.pem               | --certfile and --keyfile
--certfile a --keyfile b       | no such file
--port 70000                   | --port
--max-megabytes 0              | --max-megabytes
--batch-seconds 0              | --batch-seconds
--model nowhere                | no such model folder
--mode ctc-greedy --lm x       | --mode
"""


@each("arguments, message", rows(REFUSED))
def test_the_command_refuses(tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.delenv("ASR_TOKEN", raising=False)
    model = [] if "--model" in arguments else ["--model", str(tmp_path)]
    with pytest.raises(SystemExit) as stopped:
        command.main([*model, *arguments.split()])
    assert stopped.value.code == 2 and message in capsys.readouterr().err


def test_names_of_models(tmp_path):
    for name in ("exp/a/model", "exp/b", "x"):
        (tmp_path / name).mkdir(parents=True)
    given = [str(tmp_path / "exp/a/model"), str(tmp_path / "exp/b"), f"c={tmp_path}/x"]
    assert list(command.named(given)) == ["a", "b", "c"]
    with pytest.raises(asr.UserError, match="name of its own"):
        command.named([*given, f"a={tmp_path}/x"])


@pytest.mark.slow
def test_schemathesis_finds_no_fault(recognizer):  # noqa: F811
    """It makes requests from the OpenAPI, right and wrong ones: none may end in a 500, nor in what isn't described."""
    import schemathesis

    app = create_app({"tones": Engine(recognizer, HOW)}, OPTIONS)
    with TestClient(app, raise_server_exceptions=False):
        schema = schemathesis.openapi.from_asgi("/openapi.json", app)
        schema.config.generation.update(max_examples=40)
        for operation in schema.get_all_operations():
            run_operation(operation.ok())


def run_operation(operation):
    from hypothesis import HealthCheck, given, settings

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def check(case):
        assert case.call().status_code < 500

    check()
