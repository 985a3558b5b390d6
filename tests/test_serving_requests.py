"""Requests that asr-serve refuses: forms, paths, names, tokens, rates, and connections that are slow or broken.

Statuses are stated here, by what is wrong with each request.
"""

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from posted import (
    END,
    FORM,
    HEAD,
    NOISE,
    PATH,
    SIZED,
    START,
    WAV,
    error_of,
    field,
    post_of,
    raw,
    refusal,
    send,
)
from served import connected, serving, wait_until
from small import each, rows
from spoken import HOW

from asr.cli import serve as command
from asr.serving import guard
from asr.serving.app import create_app
from asr.serving.engine import Engine
from asr.serving.options import ServingOptions
from asr.serving.service import Limiter

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


UPGRADE = (
    b"%s /v1/stream?%s HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n%s\r\n"
)
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
