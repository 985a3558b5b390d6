"""Uploads and requests as tests send them to asr-serve, and what its answers hold."""

import io
import random
import time
from contextlib import suppress

import soundfile
from served import connected
from spoken import HOW, RATE, say

from asr.serving.app import create_app
from asr.serving.engine import Engine
from asr.serving.options import ServingOptions

TEXT = "--AB_CDA--EB_D--C_C_A_E--"
PATH = "/v1/audio/transcriptions"
OPTIONS = ServingOptions(
    max_megabytes=0.4,
    max_minutes=0.5,
    requests_per_minute=100_000,
    receive_seconds=0.4,
    cors="https://friend.org",
)


def sound(waveform=None, kind="WAV", subtype=None, rate=RATE):
    """A sound file's bytes."""
    file = io.BytesIO()
    soundfile.write(file, say(TEXT) if waveform is None else waveform, rate, subtype, format=kind)
    return file.getvalue()


WAV = sound()


def application(recognizer):
    """The application that serves a recognizer of tones, with low limits."""
    return create_app({"tones": Engine(recognizer, HOW)}, OPTIONS)


def send(client, content=WAV, name="a.wav", **data):
    return client.post(PATH, files={"file": (name, content)}, data=data)


def error_of(answer):
    """OpenAI's error object, complete."""
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"], answer.text
    return error


def refusal(answer):
    return answer.status_code, error_of(answer)["code"]


FORM = "multipart/form-data; boundary=X"


def field(name, content, file=""):
    """A part of a form."""
    file = f'; filename="{file}"' if file else ""
    head = f'--X\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'
    return head.encode() + content + b"\r\n"


NOISE = random.Random(0).randbytes(3000)
START, END = field("file", b"", "a.wav")[:-2], b"\r\n--X--\r\n"
HEAD = f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {FORM}\r\n".encode()
SIZED = HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n%s"


def post_of(content, more=b""):
    """A request that transcribes, and ends its connection."""
    body = more + START + content + END
    return SIZED % (len(body), body)


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
