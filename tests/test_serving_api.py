"""The HTTP API: what OpenAI's own client gets, and the right status for everything hostile that is sent.

What is expected of transcripts is what `asr.transcribe` gives for the same file. The recognizer is that of
spoken.py, whose letters are tones. Statuses are stated here, by what is wrong with each request.
"""

import asyncio
import io
import json
import logging
import os
import random
import re
import shutil
import struct
import subprocess
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import openai
import pysubs2
import pytest
import schemathesis
import soundfile
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from refusals import refused
from runs import status_of
from served import connected, serving, wait_until
from small import each, near, rows, slow
from spoken import HOW, RATE, say

import asr
from asr.cli import serve as command
from asr.serving import guard, uploads
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


def sound(waveform=None, kind="WAV", subtype=None, rate=RATE):
    """A sound file's bytes."""
    file = io.BytesIO()
    soundfile.write(file, say(TEXT) if waveform is None else waveform, rate, subtype, format=kind)
    return file.getvalue()


WAV = sound()


@pytest.fixture(scope="module")
def transcribed(recognizer, tmp_path_factory):
    """What the function makes of a file's bytes."""
    path = tmp_path_factory.mktemp("expected") / "x"

    def transcribed(content, recognizer=recognizer, **more):
        path.write_bytes(content)
        return asr.transcribe(recognizer, path, **vars(HOW) | more)

    return transcribed


@pytest.fixture(scope="module")
def expected(transcribed):
    return transcribed(WAV)


@pytest.fixture(scope="module")
def client(recognizer):
    app = create_app({"tones": Engine(recognizer, HOW)}, OPTIONS)
    with TestClient(app, raise_server_exceptions=False) as made:
        yield made


@pytest.fixture(scope="module")
def address(recognizer):
    pytest.MonkeyPatch().setattr(guard, "DRAIN_SECONDS", 0.3)
    with serving({"tones": Engine(recognizer, HOW)}, OPTIONS) as address:
        yield address


@pytest.fixture(scope="module")
def create(address):
    """OpenAI's client, asked for a transcript."""
    with openai.OpenAI(base_url=f"http://{address}/v1", api_key="any", max_retries=0) as made:
        ask = made.audio.transcriptions.create
        yield lambda content=WAV, **more: ask(file=("a.wav", content), model="x", **more)


def send(client, content=WAV, name="a.wav", **data):
    return client.post(PATH, files={"file": (name, content)}, data=data)


def error_of(answer):
    """OpenAI's error object, complete."""
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"], answer.text
    return error


def refusal(answer):
    return answer.status_code, error_of(answer)["code"]


# OpenAI's client, in every format


def test_json_and_text(create, expected):
    found = create(language="en", temperature=0)
    assert found.text == expected.text and found.model == "tones"
    assert found.usage.type == "duration" and found.usage.seconds == 5
    assert create(response_format="text", prompt="Hm,") == expected.text + "\n"


@each("kind", ["srt", "vtt"])
def test_subtitles(create, expected, kind):
    cues = pysubs2.SSAFile.from_string(create(response_format=kind), format_=kind)
    assert " ".join(cue.plaintext for cue in cues).split() == expected.text.split()
    assert abs(cues[0].start / 1000 - expected.segments[0].start) < 0.01


@each("wanted", [["word"], ["segment"], ["word", "segment"]])
def test_verbose_json(create, expected, wanted):
    strategy = {"type": "server_vad", "threshold": 0.4}
    how = {"response_format": "verbose_json", "chunking_strategy": strategy}
    found = create(timestamp_granularities=wanted, **how)
    words = [w for part in expected.segments for w in part.words]
    assert found.text == expected.text and abs(found.duration - expected.duration) < 1e-3
    assert bool(found.segments) == ("segment" in wanted)
    if "word" in wanted:
        near([(w.start, w.end) for w in found.words], [(w.start, w.end) for w in words], 6e-4)
        assert [w.word for w in found.words] == [w.text for w in words]
    for got, part in zip(found.segments or [], expected.segments, strict=False):
        assert (got.text, got.tokens) == (part.text, part.nbest[0].tokens)
        near(np.exp(got.avg_logprob), part.confidence, 1e-6)


def test_logprobs(create, expected):
    found = create(include=["logprobs"]).logprobs
    assert "".join(one.token for one in found).split() == expected.text.split()
    near([np.exp(one.logprob) for one in found], expected.segments[0].nbest[0].confidences, 1e-6)


def test_streams_of_events(create, expected):
    delta, done = create(stream=True)
    assert (delta.type, done.type) == ("transcript.text.delta", "transcript.text.done")
    assert delta.delta == done.text == expected.text


def test_hotwords_and_the_model_s_own_case(create, transcribed):
    """Each keyword is a hotword; small letters are taken to the model's capitals."""
    expected = transcribed(WAV, hotwords=("CDA", "E B"))
    assert create(keywords=["cda", "E B"]).text == expected.text


def test_errors_are_openai_s(create):
    caught = pytest.raises(openai.BadRequestError, create, b"")
    assert caught.value.param == "file" and caught.value.code == "invalid_audio"


def test_several_models_are_told_apart(recognizer):
    engines = {"one": Engine(recognizer, HOW), "two": Engine(recognizer, HOW)}
    with TestClient(create_app(engines, OPTIONS)) as client:
        answer = send(client, model="whisper-1")
        assert answer.status_code == 404 and "one, two" in error_of(answer)["message"]
        assert send(client, model="two").json()["model"] == "two"
        listed = client.get("/v1/models").json()["data"]
        assert [(one["id"], one["live"]) for one in listed] == [("one", True), ("two", True)]
        assert client.get("/v1/models/two").json()["id"] == "two"
        assert client.get("/v1/models/three").status_code == 404


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


def test_long_files_come_by_and_by(short, transcribed):
    content = sound(say(TEXT * 8))
    engine = Engine(short, HOW, bounds=Bounds(batch_seconds=4.0))
    with TestClient(create_app({"a": engine}, ServingOptions())) as client:
        answer = send(client, content, stream="true")
    *deltas, done = [json.loads(line[6:]) for line in answer.text.split("\n\n") if line]
    assert {one["type"] for one in deltas} == {"transcript.text.delta"} and len(deltas) > 3
    text = "".join(one["delta"] for one in deltas)
    assert text == done["text"] == transcribed(content, short).text


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
    data, written = {}, {"\\t": "\t", "\\x1b": "\x1b", "\\0": "\0"}
    for pair in fields.split("&"):
        name, _, value = pair.partition("=")
        for old, new in (written | {"$LONG": "x" * 15_000, "$DEEP": '{"a":' * 5000}).items():
            value = value.replace(old, new)
        data.setdefault(name, []).append(value)
    answer = send(client, **data)
    assert answer.status_code == int(status), answer.text
    if status != "200":
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


NOISE, MP4 = random.Random(0).randbytes(3000), box(b"ftyp", b"isom")
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


FORM = "multipart/form-data; boundary=X"


def field(name, content, file=""):
    """A part of a form."""
    file = f'; filename="{file}"' if file else ""
    head = f'--X\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'
    return head.encode() + content + b"\r\n"


START, END = field("file", b"", "a.wav")[:-2], b"\r\n--X--\r\n"
BODIES = {
    "no boundary": ("multipart/form-data", WAV, 400),
    "JSON": ("application/json", b'{"file": "/etc/passwd"}', 415),
    "a form": ("application/x-www-form-urlencoded", b"file=/etc/passwd", 415),
    "no kind": ("", WAV, 415),
    "another charset": (FORM + "; charset=punycode", START + WAV + END, 415),
    "another kind": ("audio/wav", WAV, 415),
    "another boundary": (FORM.replace("X", "Y"), START + b"--X--", 400),
    "a long boundary": (FORM.replace("X", "x" * 9000), b"--" + b"x" * 9000, 400),
    "not Latin": (FORM.replace("X", "ÿ"), b"--X--\r\n", 400),
}
FORMS = {  # 400
    "nothing": b"",
    "no parts": b"--X--\r\n",
    "noise": NOISE,
    "a part without a name": b"--X\r\n\r\nx" + END,
    "a file as text": field("file", b"/etc/passwd") + END,
    "text as a file": field("model", b"x", "a") + END,
    "two files": field("file", b"x", "a") * 2 + END,
    "no end": START + WAV[:500],
    "many fields": b"".join(field(f"{n}", b"x") for n in range(400)) + END,
    "a long field": field("prompt", b"x" * 70_000) + END,
    "a long header": b"--X\r\nA: " + b"x" * 300_000,
}
BODIES |= {name: (FORM, content, 400) for name, content in FORMS.items()}


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
        assert answer.headers[name] and "unsafe" not in answer.headers[name]
    assert "server" not in answer.headers
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
def guarded(recognizer):
    options = ServingOptions(cors="https://friend.org", hosts="localhost,127.0.0.1,[::1]")
    app = create_app({"tones": Engine(recognizer, HOW)}, options, SECRET)
    with TestClient(app, base_url="http://localhost:8000") as made:
        yield made


@each("header, status", rows(HEADERS))
def test_headers(guarded, header, status):
    name, _, value = header.partition(":")
    headers = {name: value.strip().encode("latin-1")}
    answers = [guarded.get(x, headers=headers) for x in ("/v1/models", "/metrics", "/openapi.json")]
    posted = guarded.post(PATH, headers=headers)
    assert {answer.status_code for answer in answers} == {int(status)}
    assert posted.status_code == (415 if status == "200" else int(status))
    if status != "200":
        list(map(error_of, [*answers, posted]))
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
    client = TestClient(create_app({}, ServingOptions(hosts=command.hosts(args))))
    for hosts, status in ((known, 200), (unknown.strip("-"), 421)):
        for host in hosts.split():
            assert client.get("/health", headers={"Host": host}).status_code == status, host


def test_other_pages_may_ask_if_they_are_named(guarded):
    origin, allowed = {"Origin": "https://friend.org"}, "access-control-allow-origin"
    ask = origin | {"Access-Control-Request-Method": "POST"}
    asking = ask | {"Access-Control-Request-Headers": "authorization"}
    assert guarded.options(PATH, headers=asking).headers[allowed] == origin["Origin"]
    bearer = origin | {"Authorization": f"Bearer {SECRET}"}
    assert guarded.get("/v1/models", headers=bearer).headers[allowed]
    evil = guarded.options(PATH, headers=ask | {"Origin": "https://evil.org"})
    assert evil.status_code in (400, 403) and allowed not in evil.headers


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


def test_what_is_too_much_or_too_late_is_told(recognizer, monkeypatch):
    options = ServingOptions(requests_per_minute=3, transcribe_seconds=0.3, max_requests=1)
    engine = Engine(recognizer, HOW)
    with TestClient(create_app({"a": engine}, options)) as client:
        with monkeypatch.context() as patched:
            patched.setattr(engine._batches, "admit", lambda: False)
            assert refusal(send(client)) == (504, "timeout")
            patched.setattr(client.app.state.service, "arriving", Counter(another=1))
            assert refusal(send(client)) == (429, "queue_full")
        assert send(client).status_code == 200
        answer = send(client)
        assert answer.status_code == 429 and int(answer.headers["retry-after"]) > 0
        assert error_of(answer)["type"] == "rate_limit_error"
        assert client.get("/metrics").status_code == 429
    with TestClient(create_app({"a": engine}, ServingOptions())) as client:  # it is closed
        assert refusal(send(client)) == (503, "shutting_down")


def test_one_address_leaves_room_for_others(recognizer, monkeypatch):
    engine, mine = Engine(recognizer, HOW), "testclient"
    with TestClient(create_app({"a": engine}, ServingOptions(max_requests=4))) as client:
        for held, status in [({mine: 2}, 200), ({mine: 3}, 429), ({"another": 3}, 200)]:
            monkeypatch.setattr(client.app.state.service, "arriving", Counter(held))
            assert send(client).status_code == status
            assert client.app.state.service.arriving == held


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


def raw(address, *parts, pause=0.0):
    """Send bytes as slowly as one likes; return the answer."""
    answer = b""
    with connected(address) as line, suppress(ConnectionError):
        for part in parts:
            line.sendall(part)
            time.sleep(pause)
        while block := line.recv(65536):
            answer += block
    return answer


UPGRADE = (
    b"%s /v1/stream?%s HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n%s\r\n"
)
HEAD = f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {FORM}\r\n".encode()
SIZED = HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n%s"
CHUNKED = [HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"%x\r\n%s\r\n" % (len(START), START)]


BROKEN = {
    b"": [[b"GET /hea", *[b"x"] * 30]],  # a byte now and then
    b"408": [
        [b""],  # says nothing
        [b"GET /health HTTP/1.1\r\n"],  # and stops
        [SIZED % (9999, START)],
    ],
    b"413": [[SIZED % (500_001, b"")], [*CHUNKED, (b"4000\r\n" + bytes(0x4000) + b"\r\n") * 30]],
    b"4": [
        [SIZED % (10**23, b"")],
        [b"\x16\x03\x01\x02\x00\x01\x00"],  # TLS
        [b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"x" * 20_000, b"x\r\n\r\n"],
        [UPGRADE % (b"POST", b"", b"")],
    ],
    b"400": [
        [SIZED % (-5, b"")],
        [HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n"],
        [b"GET /health HTTP/x\r\nHost: x\r\n\r\n"],
        [b"GET /health\r\n\r\n"],
        [b"GET /health HTTP/1.1\r\n\r\n"],  # no Host
        [b"GET /h\xff HTTP/1.1\r\nHost: x\r\n\r\n"],
        [UPGRADE % (b"GET", b"", b"Content-Length: 1\r\n")],
        [UPGRADE % (b"GET", b"x" * 9000, b"")],
        [UPGRADE % (b"GET", b"", b"A: b\r\n" * 200)],
        [SIZED % (399_999, b"--X\r\n\r\n"), bytes(300_000)],  # goes on after a mistake
    ],
}


@each("status, parts", [(status, parts) for status in BROKEN for parts in BROKEN[status]])
def test_slow_and_broken_connections(address, status, parts):
    began = time.monotonic()
    answer = raw(address, *parts, pause=0.05)
    assert answer.startswith(b"HTTP/1.1 " + status) or answer == status, answer[:100]
    assert time.monotonic() - began < 4


TARGETS = """
/../../etc/passwd      /..%2f..%2fetc/passwd   /%2e%2e/%2e%2e/app.py   /..%5c..%5capp.py   //etc/passwd
/%2fetc/passwd         /./../app.py            /static/../../app.py    /index.html/../..   /%c0%ae%c0%ae/app.py
/v1/%2e%2e/app.py      /..;/app.py             /%252e%252e/app.py      /v1/models/../..    /~root/.ssh/id_rsa
"""


@each("target", TARGETS.split())
def test_no_path_leads_out(address, target):
    line = f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    answer = raw(address, line.encode())
    assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 307")), answer[:200]
    assert b"root:" not in answer and b"import" not in answer


def test_a_header_that_leaves_the_length_open_is_read_as_far_as_it_goes(client):
    """As one that a pipe's writer leaves: 2^32 bytes."""
    streamed = wav(claimed=2**32 - 2**20, content=WAV[44:])
    assert send(client, streamed).json() == send(client).json()


def test_connections_are_counted_and_a_client_that_leaves_frees_its_work(recognizer):
    engine = Engine(recognizer, HOW)
    app = create_app({"a": engine}, ServingOptions(max_connections=3, receive_seconds=5))
    folder = Path(app.state.service.folder)
    with serving(app) as address:
        with connected(address), connected(address), connected(address):
            time.sleep(0.1)
            assert raw(address, b"").startswith(b"HTTP/1.1 503")
        time.sleep(0.1)
        engine._batches.admit = lambda: False  # it waits
        for more in (b"", field("stream", b"true")):
            whole = post_of(WAV, more)
            with connected(address) as line:
                line.sendall(whole)
                wait_until(lambda: engine.load[0] == 1 and list(folder.iterdir()))
            wait_until(lambda: engine.load[0] == 0 and not list(folder.iterdir()))
        del engine._batches.admit
        assert raw(address, whole).startswith(b"HTTP/1.1 200")


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


def post_of(content, more=b""):
    """A request that transcribes, and ends its connection."""
    body = more + START + content + END
    return SIZED % (len(body), body)


@each("turns", range(5))
def test_a_cancellation_is_not_lost_when_a_body_comes_at_that_moment(client, turns):
    async def is_canceled():
        body = asyncio.get_running_loop().create_future()
        before = guard.Guard(None, client.app.state.service)
        exchange = guard._Exchange(before, {}, lambda: body, None)
        task = asyncio.ensure_future(exchange.receive())
        await asyncio.sleep(0.01)
        body.set_result({"type": "http.request", "more_body": True})
        for _ in range(turns):
            await asyncio.sleep(0)
        was_running = task.cancel()
        await asyncio.wait([task])
        return task.cancelled() == was_running

    assert asyncio.run(is_canceled())


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
    model = [] if "--model" in arguments else ["--model", tmp_path]
    assert status_of(command.main, *model, *arguments.split()) == 2
    assert message in capsys.readouterr().err


def test_names_of_models(tmp_path):
    for name in ("exp/a/model", "exp/b", "x"):
        (tmp_path / name).mkdir(parents=True)
    given = f"{tmp_path}/exp/a/model {tmp_path}/exp/b c={tmp_path}/x".split()
    assert list(command.named(given)) == ["a", "b", "c"]
    refused("name of its own", command.named, [*given, f"a={tmp_path}/x"])


@slow
def test_schemathesis_finds_no_fault(recognizer):
    """It makes requests from the OpenAPI, right and wrong ones: none may end in a 500, nor in what isn't described."""
    app = create_app({"tones": Engine(recognizer, HOW)}, OPTIONS)
    with TestClient(app, raise_server_exceptions=False):
        schema = schemathesis.openapi.from_asgi("/openapi.json", app)
        for operation in schema.get_all_operations():

            @settings(max_examples=40, suppress_health_check=list(HealthCheck))
            @given(case=operation.ok().as_strategy())
            def check(case):
                assert case.call().status_code < 500

            check()
