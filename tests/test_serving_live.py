"""WebSocket clients: each gets the very events that its stream gives alone, and whatever else one sends is refused.

What is expected comes from `asr.stream` on the same samples, and for OpenAI's events from their own client, which
parses them. The recognizer is that of spoken.py, whose letters are tones.
"""

import asyncio
import base64
import collections
import json
import logging
import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from types import SimpleNamespace
from unittest.mock import Mock, call

import httpx
import numpy as np
import openai
import pytest
from refusals import refused
from served import connected, serving, wait_until
from small import each, options, rows, sizes, slow
from spoken import FEATURES, HOW, LETTERS, TEXT, assert_alike, pcm, say
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.sync.client import connect

import asr
from asr.models.recognizer import Recognizer
from asr.serving import live, server
from asr.serving.app import create_app
from asr.serving.engine import Bounds, Engine
from asr.serving.options import ServingOptions
from scripts import soak_serve as soak

SECRET = "geheim-ß"
SHORT, FINALS = TEXT[:20], ["AB CDA", "EB D"]


@pytest.fixture(scope="module")
def engine(recognizer):
    return Engine(recognizer, HOW, bounds=Bounds(streams=9))


@pytest.fixture(scope="module")
def address(engine):
    with serving({"tones": engine}) as address:  # which closes the engine in the end
        yield f"ws://{address}/v1/stream"


@pytest.fixture
def other(recognizer):
    """One more engine."""
    with Engine(recognizer, HOW) as made:
        yield made


def send(socket, *messages):
    """Send samples, texts, or what becomes JSON."""
    for message in messages:
        socket.send(json.dumps(message) if isinstance(message, dict) else message)


def receive(socket):
    return json.loads(socket.recv(timeout=20))


def talk(address, *messages, **more):
    """Send messages; return all events, and the code that closes the connection."""
    events = []
    with connect(address, **more) as socket:
        with suppress(ConnectionClosed):
            send(socket, *messages)
        try:
            while True:
                events.append(receive(socket))
        except ConnectionClosed as closed:
            return events, closed.rcvd and closed.rcvd.code


def config(**more):
    return {"type": "config", "rate": 8000} | more


def append(samples):
    """As OpenAI's clients send them."""
    audio = base64.b64encode(samples).decode()
    return {"type": "input_audio_buffer.append", "audio": audio}


END, COMMIT = {"type": "end"}, {"type": "input_audio_buffer.commit"}


def portions(samples, seed):
    """Cut interleaved samples (n, channels) anywhere."""
    draw = np.random.default_rng(seed)
    size = int(draw.choice([60, 700, 5000, 30_000]))
    cuts = np.sort(draw.integers(0, len(samples), max(1, len(samples) // size)))
    return [part.tobytes() for part in np.split(samples, cuts)]


def alone(recognizer, waveform, rate=8000, **more):
    """What asr.stream gives."""
    stream = asr.stream(recognizer, **vars(HOW) | more)
    return [event.as_json() for event in stream.push(waveform, rate) + stream.finish()]


def test_clients_side_by_side_get_what_each_gets_alone(address, recognizer):
    draw = random.Random(0)
    texts = ["".join(draw.choices("ABCDE_-----", k=draw.randint(5, 15))) for _ in range(7)]
    kinds = [(8000, 1), (16_000, 1), (8000, 2), (48_000, 1), (8000, 1), (44_100, 2)]

    def client(n):
        rate, channels = kinds[n % 6]
        samples = pcm(say([TEXT, *texts][n], rate=rate))
        whole = np.stack([samples, samples // 3], 1)[:, :channels]
        mean = whole.mean(1, dtype=np.float32) / 32768
        setup = config(rate=rate, channels=channels)
        found = talk(address, setup, *portions(whole, n), END)
        return found, alone(recognizer, samples if channels == 1 else mean, rate)

    with ThreadPoolExecutor(8) as pool:
        for (events, code), expected in pool.map(client, range(8)):
            assert code == 1000
            assert (events[0]["type"], events[0]["model"]) == ("ready", "tones")
            assert_alike(events[1:-1], expected, 2e-4)
            count = sum(event["type"] == "final" for event in expected)
            assert events[-1] == {"type": "end", "segments": count}


def test_a_broken_stream_goes_on_where_its_last_segment_ended(address, engine, recognizer):
    samples = pcm(say(SHORT))
    whole = alone(recognizer, samples)
    with connect(address) as socket:
        send(socket, config(), samples[: 3 * len(samples) // 4].tobytes())
        while (event := receive(socket))["type"] != "final":
            pass
        socket.socket.close()  # without a word
    resume = {"segment": event["number"] + 1, "time": event["position"]}
    rest = samples[round(8000 * event["position"]) :]
    events, code = talk(address, config(resume=resume), rest.tobytes(), END)
    assert_alike(events[1:-1], [event for event in whole if event["number"] > 0], 2e-4)
    assert code == 1000 and events[-1]["segments"] == 2
    wait_until(lambda: engine.load[3] == 0)  # whoever left was forgotten


def test_hotwords_nbest_and_chunk_are_the_search_s(address, recognizer, tmp_path):
    samples, how = pcm(say(SHORT)), {"chunk": 0.16, "nbest": 3}
    (tmp_path / "words").write_text("EB D\n")
    expected = alone(recognizer, samples, hotwords=str(tmp_path / "words"), **how)
    events, _ = talk(address, config(hotwords=["eb d"], **how), samples.tobytes(), END)
    assert_alike(events[1:-1], expected, 2e-4)
    finals = [event for event in events if event["type"] == "final"]
    assert [event["nbest"][0]["text"] for event in finals] == FINALS
    assert all(len(event["nbest"]) == 3 for event in finals)


HOSTILE = """
no JSON                       | {"type": "config"                                             | bad_message
no object                     | ["config"]                                                    | bad_message
no type                       | {"rate": 8000}                                                | bad_message
a type that is no text        | {"type": {"type": "config"}}                                  | bad_message
another type                  | {"type": "start"}                                             | bad_message
the end first                 | {"type": "end"}                                               | bad_message
samples first                 | b: 0000                                                       | bad_message
NaN                           | {"type": "config", "rate": NaN}                               | bad_message
infinity                      | {"type": "config", "resume": {"time": 1e999}}                 | bad_message
a rate beyond all             | {"type": "config", "rate": 1000000000}                        | bad_message
a rate below                  | {"type": "config", "rate": -8000}                             | bad_message
a rate as text                | {"type": "config", "rate": "8000"}                            | bad_message
another format                | {"type": "config", "format": "f32le"}                         | bad_message
many channels                 | {"type": "config", "channels": 4096}                          | bad_message
an unknown field              | {"type": "config", "path": "/etc/passwd"}                     | bad_message
a negative time               | {"type": "config", "resume": {"segment": 0, "time": -1}}      | bad_message
a chunk that isn't there      | {"type": "config", "chunk": 0.5}                              | bad_message
letters that aren't there     | {"type": "config", "hotwords": ["ZÜRICH"]}                    | bad_message
hotwords that are no list     | {"type": "config", "hotwords": "A"}                           | bad_message
a second config               | ok {"type": "config"}                                         | bad_message
an odd count of bytes         | ok b: 000000                                                  | bad_audio
half a frame of two channels  | stereo b: 0000                                                | bad_audio
"""


@each("_, sent, code", rows(HOSTILE))
def test_hostile_messages_are_answered_and_closed(address, _, sent, code):
    before, _, rest = sent.partition(" ")
    first = {"ok": [config()], "stereo": [config(channels=2)]}.get(before, [])
    sent = rest if first else sent
    message = bytes.fromhex(sent[3:]) if sent[:3] == "b: " else sent
    events, closed = talk(address, *first, message)
    assert [event["type"] for event in events] == ["ready"] * len(first) + ["error"]
    assert events[-1]["code"] == code and events[-1]["message"] and events[-1]["fix"]
    assert closed == live.CODES[code]


@each(
    "message, code",
    [
        ("[" * 100_000 + "]" * 100_000, "bad_message"),
        (config(hotwords=["A" * 90] * 9000), "bad_message"),
        (config(hotwords=["A" * 90] * 12_000), "too_large"),
        (bytes(2**20 + 2), "too_large"),
    ],
)
def test_huge_messages(address, message, code):
    events, closed = talk(address, message)
    assert (events[-1]["code"], closed) == (code, live.CODES[code])


def test_fuzzed_frames_never_fail_the_server(address, caplog):
    draw = random.Random(3)
    good = [json.dumps(config()), '{"type": "ping"}', json.dumps(END)]
    for _ in range(50):
        messages = draw.choices([*good[:2], bytes(3200)], k=draw.randint(0, 3))
        spoiled = bytearray(draw.choice([*map(str.encode, good), draw.randbytes(40)]))
        for _ in range(draw.randint(1, 6)):
            spoiled[draw.randrange(len(spoiled))] = draw.randrange(256)
        spoiled = draw.choice([spoiled.decode("utf8", "replace"), bytes(spoiled)])
        events, code = talk(address, *messages, spoiled, bytes(3), END)
        assert events[-1]["type"] == "error" and code == live.CODES[events[-1]["code"]]
        assert events[-1]["code"] in ("bad_message", "bad_audio")
    events, code = talk(address, config(), pcm(say(SHORT)).tobytes(), END)
    assert [e["text"] for e in events if e["type"] == "final"] == FINALS and code == 1000


def test_a_ping_is_answered_and_nothing_follows_the_end(address):
    events, code = talk(address, config(), {"type": "ping"}, END, bytes(320))
    assert [event["type"] for event in events][:2] == ["ready", "pong"] and code in (1000, 4400)


def test_silence_of_a_client_ends_it(address, monkeypatch):
    monkeypatch.setattr(live, "FIRST", 0.05)
    assert talk(address)[1] == live.CODES["timeout"]
    monkeypatch.setattr(live, "FIRST", 10)
    monkeypatch.setattr(live, "IDLE", 0.05)
    events, code = talk(address, config())
    assert (events[-1]["code"], code) == ("timeout", 4408)


def test_streams_are_counted(address):
    with ExitStack() as stack:
        for _ in range(9):
            socket = stack.enter_context(connect(address))
            send(socket, config())
            assert receive(socket)["type"] == "ready"
        events, code = talk(address, config())
        assert (events[-1]["code"], code) == ("too_many", 4429)


def test_a_failure_of_the_server_shows_nothing_of_it(address, monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("/home/secret")

    monkeypatch.setattr(live, "samples", fail)
    events, code = talk(address, config(), bytes(2))
    assert (events[-1]["code"], code) == ("internal", 4500) and "secret" not in str(events)
    assert "/home/secret" in caplog.text


@pytest.fixture(scope="module")
def guarded(recognizer):
    """Two models, one of which can't read streams, behind a token."""
    whole = Recognizer(FEATURES, sizes(), LETTERS).eval()
    engines = {"tones": Engine(recognizer, HOW), "whole": Engine(whole)}
    with serving(engines, ServingOptions(cors="https://a.org"), SECRET) as address:
        yield address


TOKENS = """
stream   |                                                      | geheim-ß
stream   | additional_headers: {Authorization: Bearer bad}      | geheim-ß
stream   |                                                      | wrong
stream   |                                                      | -
stream   | subprotocols: [asr, openai-insecure-api-key.bad]      | -
realtime |                                                      | -
realtime | subprotocols: [realtime, openai-insecure-api-key.bad] | -
"""


@each("path, more, token", rows(TOKENS))
def test_a_token_is_asked_for(guarded, path, more, token):
    setup = config(model="tones", token=token.strip("-"))
    events, closed = talk(f"ws://{guarded}/v1/{path}", setup, END, **options(more))
    if token == SECRET:
        assert events[-1]["type"] == "end"
    else:
        error = events[0].get("error", events[0])
        assert (error["code"], closed, len(events)) == ("unauthorized", 4401, 1)


def test_a_token_in_a_header_or_a_subprotocol(other):
    with serving({"tones": other}, token="a-b.c_1") as address:
        for path in ("stream", "realtime"):
            for more in (
                {"additional_headers": {"Authorization": "Bearer a-b.c_1"}},
                {"subprotocols": ["x", live.KEY + "a-b.c_1"]},
            ):
                with connect(f"ws://{address}/v1/{path}", **more) as socket:
                    send(socket, config())
                    assert receive(socket)["type"] in ("ready", "session.created")
                    assert socket.subprotocol == more.get("subprotocols", [None])[0]


@each(
    "origin, admitted",
    [("http://{}", True), ("https://a.org", True), ("https://evil.org", False), ("null", False)],
)
def test_pages_of_other_sites_are_kept_out(guarded, origin, admitted):
    outcome = nullcontext() if admitted else pytest.raises(InvalidStatus, match="403")
    url = f"ws://{guarded}/v1/stream"
    with outcome, connect(url, origin=origin.format(guarded)):
        pass


@each("model, code", [("whole", "not_live"), ("other", "unknown_model"), (None, "unknown_model")])
def test_models_by_name(guarded, model, code):
    events, closed = talk(f"ws://{guarded}/v1/stream", config(model=model, token=SECRET))
    assert (events[-1]["code"], closed) == (code, live.CODES[code])


class Peer:
    """The server's side of a WebSocket, without a network: what a client sends, and how fast it reads."""

    def __init__(self, app, *messages):
        self.app, self.read, self.sent = app, 0, []
        self.messages = [{"type": "websocket.connect"}]
        for got in messages:
            kind = "text" if isinstance(got, str) else "bytes"
            self.messages.append({"type": "websocket.receive", kind: got})
        self.blocked = lambda event: False

    async def receive(self):
        self.read += 1
        if self.read > len(self.messages):
            await asyncio.sleep(60)
        return self.messages[self.read - 1]

    async def send(self, event):
        while self.blocked(event):
            await asyncio.sleep(0.01)
        self.sent.append(event)

    def run(self, seconds=20):
        """Return the code with which it is closed."""
        scope = {"type": "websocket", "path": "/v1/stream", "headers": [], "subprotocols": []}
        scope |= {"query_string": b"", "scheme": "ws", "server": ("a", 1), "client": ("b", 2)}
        asyncio.run(asyncio.wait_for(self.app(scope, self.receive, self.send), seconds))
        return self.sent[-1]["code"]


def test_nothing_more_is_read_while_much_waits(other, monkeypatch):
    messages = json.dumps(config()), *[bytes(1600)] * 9, json.dumps(END)
    peer, reads = Peer(create_app({"tones": other}), *messages), []

    def backlog(_):
        reads.append(peer.read)
        return 99 if len(reads) < 8 else 0

    monkeypatch.setattr(live.Live, "backlog", property(backlog))
    assert peer.run() == 1000 and max(reads) == 11
    assert reads[:8] == [3] * 8  # the config and one frame, until there was room


def test_small_frames_are_read_as_fast_as_large_ones(other, monkeypatch):
    """A turn takes a second of audio, of however many frames: beside a search, turns are few."""
    live, samples = other.open(print).result(10), np.zeros(80, np.float32)
    alone = SimpleNamespace(wake=lambda: None)  # the engine's thread sees nothing
    monkeypatch.setattr(live, "_engine", alone)
    for _ in range(150):
        live.feed(samples, 8000)
    assert live.backlog == pytest.approx(1.5) and live.take()
    assert live.backlog == pytest.approx(0.5, abs=0.011) and live.take()
    assert live.backlog == 0 and not live.take()
    refused("got 0 Hz", live.feed, samples, 0)
    monkeypatch.undo()
    live.close()


@each("slow, waiting", [(0.05, 1000), (60, 3)])
def test_whoever_does_not_read_is_closed(other, monkeypatch, slow, waiting):
    samples = pcm(say(SHORT)).tobytes()
    peer = Peer(create_app({"tones": other}), json.dumps(config()), samples)
    peer.blocked = lambda event: "partial" in event.get("text", "")
    monkeypatch.setattr(live, "SLOW", slow)
    monkeypatch.setattr(live, "WAITING", waiting)
    assert peer.run() == live.CODES["slow_reader"]


def logged(caplog, count):
    """The lines of the log, once there are so many."""

    def lines():
        return [json.loads(one) for one in caplog.messages if one.startswith("{")]

    wait_until(lambda: len(lines()) >= count)
    return lines()


@each("log_text", [False, True])
def test_each_connection_has_a_line_in_the_log(other, caplog, log_text):
    caplog.set_level(logging.INFO, "asr")
    samples, setup = pcm(say(SHORT)), json.dumps(config())
    with serving({"tones": other}, ServingOptions(log_text=log_text)) as address:
        url = f"ws://{address}/v1/stream"
        talk(url, setup, samples.tobytes(), END)
        talk(url, "{")
        with pytest.raises(InvalidStatus, match="403"):
            connect(url, origin="https://evil.org")
        with pytest.raises(InvalidStatus, match="403"):
            connect(url.replace("stream", "nothing"))
        with connect(url.replace("stream", "realtime")) as socket:
            send(socket, append(samples), COMMIT)
            while "completed" not in receive(socket)["type"]:
                pass
            socket.close(3999)
        lines = logged(caplog, 5)
        counted = httpx.get(f"http://{address}/metrics").text
    whole, wrong, evil, nothing, realtime = lines
    found = [(line.pop("route"), line.pop("status")) for line in lines]
    expected = [("/v1/stream", 1000), ("/v1/stream", 4400), *[("other", 403)] * 2]
    assert found == [*expected, ("/v1/realtime", 3999)]
    expected.append(("/v1/realtime", "other"))  # of a client's choice
    for route, status in expected:
        count = f"{expected.count((route, status))}.0"
        assert f'asr_requests_total{{route="{route}",status="{status}"}} {count}' in counted
    assert all(line.pop("client") == "127.0.0.1" and len(line.pop("id")) == 32 for line in lines)
    assert 0 < whole.pop("seconds") < 20
    size = len(setup) + samples.nbytes + len(json.dumps(END))
    known = {"bytes": size, "model": "tones", "audio": round(len(samples) / 8000, 2)}
    assert whole == known | ({"text": FINALS} if log_text else {})
    assert wrong.keys() == evil.keys() == nothing.keys() == {"seconds", "bytes"}
    assert realtime["bytes"] > 4 / 3 * samples.nbytes and realtime["model"] == "tones"
    assert realtime["audio"] == round(len(samples) / 24_000, 2)
    assert bool(log_text) == ("text" in realtime) == (FINALS[0] in "".join(caplog.messages))


HANDSHAKE = (
    "GET /v1/realtime HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


def frame(data, kind=Opcode.TEXT):
    """A client's."""
    return Frame(kind, data).serialize(mask=True)


@contextmanager
def never_reading(address):
    """A client that has sent samples."""
    with connected(address) as line:
        line.sendall(HANDSHAKE.encode())
        assert b"101 Switching" in line.recv(9999)
        line.sendall(frame(json.dumps(append(pcm(say("-AB_")))).encode()))
        line.settimeout(0.1)
        yield line


def push(line, data, seconds):
    """Send again and again; return the bytes."""
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        with suppress(TimeoutError):
            count += line.send(data[count % len(data) :])
    return count


# a mistake whose answer is as long
LONG = frame(json.dumps({"type": "x", "event_id": 512 * "x"}).encode())


def test_a_client_that_never_reads_is_cut_off(other, monkeypatch, caplog):
    """Its socket and the server's buffer are full, so that the server can't even say why."""
    caplog.set_level(logging.INFO, "asr")
    for module, name in ((live, "SLOW"), (live, "PARTING"), (server, "STUCK")):
        monkeypatch.setattr(module, name, 0.2)
    with serving({"tones": other}) as address:
        with never_reading(address) as line, pytest.raises(ConnectionError):
            push(line, LONG * 100, 10)
        assert logged(caplog, 1)[0]["status"] == 4408


def test_the_server_s_end_does_not_wait_for_who_never_reads(other, monkeypatch):
    monkeypatch.setattr(server, "STUCK", 0.2)
    with ExitStack() as stack:
        with serving({"tones": other}) as address:
            line = stack.enter_context(never_reading(address))
            push(line, LONG * 100, 1)
            began = time.monotonic()
        assert time.monotonic() - began < 3


@each("count", [3, 50])
def test_an_answer_that_nobody_reads_ends_its_connection(other, count):
    """The server's buffer takes all of three, but not of fifty. Until it is cut off, nobody else is let in."""
    options = ServingOptions(receive_seconds=0.2, max_connections=1)
    with serving({"tones": other}, options) as address, connected(address) as line:
        line.sendall(b"GET /style.css HTTP/1.1\r\nHost: a\r\n\r\n" * count)
        time.sleep(0.1)
        wait_until(lambda: httpx.get(f"http://{address}/health").status_code == 200)


@each("left, done", [(9, call._await_reader(9)), (10, call.transport.abort())])
def test_whoever_reads_slowly_is_waited_for(left, done):
    connection = Mock()
    connection.transport.get_write_buffer_size.return_value = left
    server.LimitedHTTP._look(connection, 10)
    assert connection.mock_calls[1:] == [done]


def test_pongs_do_not_pile_up(other):
    """Of a hundred thousand pings those are answered that fit: the rest would fill the memory."""
    pings, count = frame(bytes(125), Opcode.PING) * 1000, 0
    with serving({"tones": other}) as address, never_reading(address) as line:
        sent = push(line, pings, 2)
        line.settimeout(1)
        with suppress(TimeoutError):
            while True:
                count += len(line.recv(1 << 16))
    assert count < 1_000_000 and sent > 10 * count


@slow
def test_a_short_soak(folder, capsys):
    soak.main([*(str(folder / name) for name in ("model", "a.wav", "b.flac")), "--minutes", "0.1"])
    last = capsys.readouterr().out.splitlines()[-1]
    assert "'200': " in last and "'streamed': " in last


@each("bad", ["differs", "500", "refused", "lost: OSError", "noise: 500"])
def test_a_soak_finds_what_is_wrong(bad):
    made = object.__new__(soak.Soak)
    for more, well in (({"differs": 0, "noise: 415": 1}, True), ({bad: 1}, False)):
        made.counts = collections.Counter({"200": 9} | more)
        assert made.is_well() == well


def session(**more):
    settings = {"format": {"type": "audio/pcm", "rate": 24_000}, "transcription": {"model": "x"}}
    return {"type": "transcription", "audio": {"input": settings | more}}


ITEM = "conversation.item.input_audio_transcription"


@each("turns", [{"type": "server_vad"}, None])
def test_openai_s_client_speaks_with_it(address, recognizer, turns):
    samples, found = pcm(say(SHORT, rate=24_000)), []
    url = address.replace("ws", "http", 1).replace("/stream", "")
    official = openai.OpenAI(api_key="x", base_url=url)
    with official.realtime.connect(extra_query={"intent": "transcription"}) as connection:
        connection.session.update(session=session(turn_detection=turns))
        for part in portions(samples[:, None], 1):
            connection.input_audio_buffer.append(audio=base64.b64encode(part).decode())
        connection.input_audio_buffer.commit()
        connection.input_audio_buffer.commit()  # a second one, of nothing
        while not found or found[-1].type != "error":
            found.append(connection.recv())
    assert [event.type for event in found[:2]] == ["session.created", "session.updated"]
    assert "without audio" in found[-1].error.message
    items = [event.item_id for event in found if event.type == "input_audio_buffer.committed"]
    completed = {event.item_id: event for event in found if event.type == f"{ITEM}.completed"}
    assert list(completed) == items and len({*items}) == len(items)
    texts = [event.transcript for event in completed.values()]
    if turns:
        finals = [e for e in alone(recognizer, samples, 24_000) if e["type"] == "final"]
        assert texts == [final["text"] for final in finals] == FINALS
        ends = [e.audio_end_ms for e in found if e.type == "input_audio_buffer.speech_stopped"]
        assert ends == [round(1000 * final["end"]) for final in finals]
        assert sum(e.type == "input_audio_buffer.speech_started" for e in found) == 2
    else:  # these tones know no space in silence
        assert texts == ["".join(FINALS)]
        assert completed[items[0]].usage.seconds == pytest.approx(len(samples) / 24_000, abs=1e-3)
    for item, text in zip(items, texts, strict=True):
        deltas = [e.delta for e in found if e.type == f"{ITEM}.delta" and e.item_id == item]
        assert "".join(deltas) == text and len(deltas) > 1 - bool(turns)


WRONG = """
{"type": "response.create", "event_id": "mine"}
{"type": "input_audio_buffer.append", "audio": "§"}
{"type": "input_audio_buffer.append", "audio": "AAAA"}
{"type": "session.update", "session": {"type": "realtime"}}
{
"""


def test_a_session_goes_on_after_mistakes_and_in_the_first_version(address):
    samples = append(pcm(say("-AB--", rate=24_000)))
    update = {"type": "transcription_session.update", "session": {"turn_detection": None}}
    long = {"type": "response.create", "event_id": "x" * 100_000}
    keywords, kind = {"keywords": ["A" * 101]}, {"type": "audio/pcmu"}
    sessions = session(transcription=keywords), session(format=kind)
    sessions = [{"type": "session.update", "session": wrong} for wrong in sessions]
    mistakes = *WRONG.strip().splitlines(), long, *sessions, b"\0\0"
    clear = {"type": "input_audio_buffer.clear"}
    url, kinds, events = address.replace("stream", "realtime"), [], []
    with connect(url, additional_headers={"OpenAI-Beta": "realtime=v1"}) as socket:
        send(socket, *mistakes, update, samples, update, clear, *[samples, COMMIT] * 2)
        while kinds.count(f"{ITEM}.completed") < 2:
            events.append(receive(socket))
            kinds.append(events[-1]["type"])
    assert kinds[0] == "transcription_session.created"
    assert kinds[1:10] == ["error"] * 9 and events[1]["error"]["event_id"] == "mine"
    assert max(len(json.dumps(event)) for event in events[:10]) < 1000
    assert kinds[10] == "transcription_session.updated"
    rest = [kind for kind in kinds[11:] if not kind.endswith("delta")]
    turn = ["input_audio_buffer.committed", "conversation.item.created", f"{ITEM}.completed"]
    assert rest == ["error", "input_audio_buffer.cleared", *turn, *turn]
    assert [e["transcript"] for e in events if "transcript" in e] == ["AB", "AB"]
