"""Live transcription by WebSocket: 16-bit samples in, texts out while they are spoken; the protocol is in
docs/serving.md.

A client's frames wait in a bounded backlog: when it is full, nothing more is read, and the client's own
socket fills. A client that doesn't read its events is disconnected. Whatever a client sends that isn't
the protocol is answered by one error event and a close code.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Annotated, Any, Literal

import anyio
import numpy as np
from fastapi import APIRouter, WebSocket, WebSocketDisconnect
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from asr.errors import UserError, shorten
from asr.logging import logger
from asr.serving.clients import Closed, Full, Live
from asr.serving.engine import Engine
from asr.serving.errors import RequestError
from asr.serving.service import Service
from asr.serving.transcriptions import search_options
from asr.transcript import Event, Final
from asr.transcription.endpoints import EndpointOptions
from asr.transcription.options import SearchOptions
from asr.transcription.streamable import can_stream

IDLE = 60.0  # seconds without a message, after which a client is taken for gone
FIRST = 10.0  # seconds until the first message
SLOW = 10.0  # seconds that a client may take to read an event
PARTING = 1.0  # the same for the last one, if it has read none
BACKLOG = 10.0  # seconds of audio that wait
WAITING = 1000  # events that wait for a client to read them
LARGEST = 2**20  # bytes of a message
KEY = "openai-insecure-api-key."  # how browsers bear a token: as a subprotocol, as OpenAI's clients do
CODES = {  # a close code is 4000 and the HTTP status that says the same; 1000 is the regular end
    "bad_message": 4400,
    "bad_audio": 4400,
    "unauthorized": 4401,
    "unknown_model": 4404,
    "timeout": 4408,
    "slow_reader": 4408,
    "too_large": 4413,
    "not_live": 4422,
    "too_many": 4429,
    "internal": 4500,
    "shutting_down": 4503,
}
router = APIRouter()


class Refusal(Exception):
    """Why a client is refused: a code of CODES, what is wrong, and the fix."""

    def __init__(self, code: str, message: str, fix: str):
        super().__init__(message)
        self.code, self.message, self.fix = code, message, fix


class Message(BaseModel):
    """What a client says; nothing else, and no number as a string."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Resume(Message):
    """Where a stream goes on: the number and the time of its next segment."""

    segment: int = Field(default=0, ge=0, le=10**9)
    time: float = Field(default=0.0, ge=0, le=1e8, allow_inf_nan=False)


class Config(Message):
    """The first message."""

    type: Literal["config"]
    rate: int = Field(default=16_000, ge=8_000, le=192_000)
    format: Literal["s16le"] = "s16le"
    channels: int = Field(default=1, ge=1, le=8)
    model: str | None = Field(default=None, max_length=200)
    hotwords: list[Annotated[str, Field(max_length=100)]] = Field(default=[], max_length=200)
    chunk: float | None = Field(default=None, gt=0, le=60)
    nbest: int = Field(default=1, ge=1, le=10)
    resume: Resume = Resume()
    token: str = Field(default="", max_length=1000)


@router.websocket("/v1/stream")
async def stream(socket: WebSocket) -> None:
    """Transcribe one client's samples while they come."""
    await converse(socket, _transcribe, _error)


async def _transcribe(client: Client) -> None:
    """Speak the protocol, until the client is gone or refused."""
    config = await _configuration(client)
    name, engine, options = chosen(client.service, config)
    segments = config.resume.segment

    def listen(event: Event) -> None:
        nonlocal segments
        more: dict[str, Any] = {}
        if isinstance(event, Final):
            segments, more["nbest"] = event.number + 1, alternatives(event, config.nbest)
        client.post(event.as_json() | more)

    def end() -> None:
        client.post({"type": "end", "segments": segments})
        client.finish()

    at = (config.resume.time, config.resume.segment)
    live = await client.open(name, engine, options, None, listen, end, *at)
    client.post({"type": "ready", "model": name, "resume": config.resume.model_dump()})
    ended = False
    while True:
        match await client.receive():
            case {"type": "ping"}:
                client.post({"type": "pong"})
            case _ if ended:
                raise Refusal("bad_message", "got more after the end", "open another connection")
            case bytes(data):
                await client.feed(live, samples(data, config.channels), config.rate)
            case {"type": "end"}:
                ended = True
                live.end()
            case {"type": kind}:
                raise Refusal(
                    "bad_message",
                    f"got a message of type {str(kind)[:40]!r} after the config",
                    "send binary frames of samples, ping, or end",
                )


async def _configuration(client: Client) -> Config:
    """Read the first message, and let its sender in."""
    first = await client.receive(FIRST)
    if isinstance(first, bytes):
        raise Refusal("bad_message", "got samples first", 'begin with {"type": "config"}')
    config = validated(Config, first)
    if not (client.admitted or client.service.admits(f"Bearer {config.token}")):
        raise unauthorized()
    return config


def validated(kind: type[BaseModel], message: dict[str, Any]) -> Any:
    """Check a message against its model, and name its first mistakes."""
    try:
        return kind.model_validate(message)
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
        fix = f"fields of {kind.__name__.lower()} are {', '.join(kind.model_fields)}"
        raise Refusal("bad_message", shorten(faults, 3)[:500], fix) from None


def chosen(service: Service, config: Config) -> tuple[str, Engine, SearchOptions]:
    """Find the model, its name, and how it searches."""
    try:
        name, engine = service.engine(config.model)
    except RequestError as error:
        raise Refusal("unknown_model", str(error), "take one of /v1/models") from None
    try:
        how = search_options(engine, config.hotwords, config.nbest)
        chunk = float(f"{config.chunk:g}") if config.chunk else how.chunk  # as it is compared
        return name, engine, replace(how, chunk=chunk)
    except (RequestError, UserError) as error:
        raise Refusal("bad_message", str(error), "change it in the config") from None


def samples(data: bytes, channels: int) -> np.ndarray:
    """Read 16-bit little-endian samples, interleaved: (n,) int16, or the mean of several channels as float32."""
    if len(data) % (2 * channels):
        raise Refusal(
            "bad_audio",
            f"got {len(data)} bytes, which are no whole number of 16-bit samples of {channels} channels",
            f"send multiples of {2 * channels} bytes",
        )
    read = np.frombuffer(data, "<i2")
    return read if channels == 1 else read.reshape(-1, channels).mean(1, dtype=np.float32) / 32768


def alternatives(event: Final, most: int) -> list[dict[str, Any]]:
    """Give the n-best list of a final result, or nothing where it wasn't asked for."""
    known = event.segment.nbest[:most] if most > 1 else ()
    return [
        {k: v for k, v in one.as_json().items() if k in ("text", "confidence")} for one in known
    ]


def unauthorized() -> Refusal:
    return Refusal("unauthorized", "the token is missing or wrong", "give the server's token")


def _error(refusal: Refusal) -> dict[str, Any]:
    return {
        "type": "error",
        "code": refusal.code,
        "message": refusal.message,
        "fix": refusal.fix,
    }


class Client:
    """One WebSocket: its messages within limits, and the events that wait for it.

    admitted   whether its headers bear the token
    """

    def __init__(self, socket: WebSocket):
        self.service: Service = socket.app.state.service
        self.socket, self._loop = socket, asyncio.get_running_loop()
        self._events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._log: dict[str, Any] = socket.scope["state"]["log"]
        self._seconds = 0.0  # of audio
        self._live: Live | None = None
        self._current: Callable[..., None] | None = None  # takes the events of the stream
        self._failed: asyncio.Future[None] = self._loop.create_future()
        keys = [one[len(KEY) :] for one in socket.scope["subprotocols"] if one.startswith(KEY)]
        bearers = [socket.headers.get("authorization"), *(f"Bearer {key}" for key in keys)]
        self.admitted = any(map(self.service.admits, bearers))

    async def receive(self, seconds: float | None = None) -> bytes | dict[str, Any]:
        """Wait for the next message: samples, or an object with a type."""
        seconds = seconds or IDLE
        try:
            with anyio.fail_after(seconds):
                got = await self.socket.receive()
        except TimeoutError:
            raise Refusal(
                "timeout", f"got nothing for {seconds:g} s", "send samples, or pings"
            ) from None
        if got["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(got.get("code", 1006))
        text, data = got.get("text"), got.get("bytes")
        if (size := len(data or text or b"")) > LARGEST:
            raise Refusal("too_large", f"got {size} bytes", f"send at most {LARGEST} at once")
        return data or b"" if text is None else parsed(text)

    async def open(
        self,
        model: str,
        engine: Engine,
        options: SearchOptions,
        endpoints: EndpointOptions | None,
        listen: Callable[[Event], None],
        end: Callable[[], None],
        position: float = 0.0,
        number: int = 0,
    ) -> Live:
        """Begin a stream, in place of the one before.

        listen   gets its events, in the thread of the connection
        end      is called after the last one
        """

        def arrived(event: Event | Exception | None) -> None:
            if self._current is not arrived:
                return  # of a stream that was left, while the engine was at it
            if isinstance(event, Exception):
                self._fail(event)
            elif event is None:
                end()
            else:
                self._note(event)
                listen(event)

        def hand_over(event: Event | Exception | None) -> None:  # in the engine's thread
            with contextlib.suppress(RuntimeError):  # the loop is closed: the server has ended
                self._loop.call_soon_threadsafe(arrived, event)

        self.leave()
        self._current = arrived
        self._log["model"] = model
        try:
            opened = engine.open(hand_over, options, endpoints, position, number)
            try:
                self._live = await asyncio.wrap_future(opened)
            except asyncio.CancelledError:  # nobody would close it
                opened.add_done_callback(_close)
                raise
        except UserError as error:
            if can_stream(engine.recognizer):
                raise Refusal("bad_message", str(error), "change the config") from None
            fix = "send whole files to /v1/audio/transcriptions"
            raise Refusal("not_live", str(error), fix) from None
        return self._live

    async def feed(self, live: Live, waveform: np.ndarray, rate: int) -> None:
        """Give a stream samples, once less than BACKLOG wait: until then nothing more is read."""
        while live.backlog > BACKLOG:
            await asyncio.sleep(0.02)
        live.feed(waveform, rate)
        self._seconds += len(waveform) / rate
        self._log["audio"] = round(self._seconds, 2)

    def _note(self, event: Event) -> None:
        """Add a final text to the line of the log, if texts are logged."""
        if self.service.options.log_text and isinstance(event, Final):
            self._log.setdefault("text", []).append(event.segment.text)

    def post(self, event: dict[str, Any]) -> None:
        """Let an event wait until the client reads it."""
        if self._events.qsize() >= WAITING:
            self._fail(slow_reader())
        else:
            self._events.put_nowait(event)

    def finish(self) -> None:
        """Close the connection after the events that wait."""
        self._events.put_nowait(None)

    def leave(self) -> None:
        """Forget the stream."""
        if self._live:
            self._live.close()
        self._live = self._current = None

    async def write(self) -> None:
        """Send the events as they come, until the last."""
        while event := await self._events.get():
            await self._send(event)

    async def run(self, speak: Callable[[Client], Awaitable[None]]) -> None:
        """Read and write side by side until one of both ends, or the stream fails."""
        both = [asyncio.ensure_future(speak(self)), asyncio.ensure_future(self.write())]
        try:
            await asyncio.wait([*both, self._failed], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            ended = await asyncio.gather(*both, return_exceptions=True)
            self.leave()
        for error in (self._failed.exception() if self._failed.done() else None, *ended):
            if isinstance(error, Exception):
                raise error

    async def refuse(self, event: dict[str, Any], code: int) -> None:
        """Send a last event, and close; whoever doesn't read it is closed all the same."""
        self._log["status"] = code
        seconds = PARTING if code == CODES["slow_reader"] else SLOW
        with contextlib.suppress(Refusal, WebSocketDisconnect, RuntimeError, TimeoutError):
            with anyio.fail_after(seconds):
                await self._part(event, code)

    async def _part(self, event: dict[str, Any], code: int) -> None:
        for waiting in [self._events.get_nowait() for _ in range(self._events.qsize())]:
            if waiting and code != CODES["slow_reader"]:
                await self._send(waiting)
        await self._send(event)
        await self.socket.close(code, event["type"])

    async def _send(self, event: dict[str, Any]) -> None:
        text = json.dumps(event, allow_nan=False)  # ASCII: half a surrogate pair has no UTF-8
        try:
            with anyio.fail_after(SLOW):
                await self.socket.send_text(text)
        except TimeoutError:
            raise slow_reader() from None

    def _fail(self, error: Exception) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)


def slow_reader() -> Refusal:
    return Refusal("slow_reader", "events weren't read", "read them as they come")


def parsed(text: str) -> dict[str, Any]:
    """Read a JSON object that has a type."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        raise Refusal("bad_message", "got text that is no JSON", "send JSON objects") from None
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise Refusal("bad_message", "got JSON without a type", 'send objects with a "type"')
    return message


async def converse(
    socket: WebSocket,
    speak: Callable[[Client], Awaitable[None]],
    error: Callable[[Refusal], dict[str, Any]],
) -> None:
    """Let a client in, speak with it, and close with the code of what ended it."""
    spoken = [one for one in socket.scope["subprotocols"] if not one.startswith(KEY)]
    await socket.accept(spoken[0] if spoken else None)
    client = Client(socket)
    try:
        await client.run(speak)
        await socket.close(1000)
    except WebSocketDisconnect:
        pass
    except Exception as reason:
        refusal = _refusal(reason)
        await client.refuse(error(refusal), CODES[refusal.code])


def _refusal(reason: Exception) -> Refusal:
    """Say what ended a connection, without the inside of the server."""
    if isinstance(reason, Refusal):
        return reason
    if isinstance(reason, UserError):
        return Refusal("bad_message", str(reason), "change it")
    if isinstance(reason, Full):
        return Refusal("too_many", str(reason), "try again later")
    if isinstance(reason, Closed):
        return Refusal("shutting_down", "the server is shutting down", "resume elsewhere")
    logger.error("a live stream failed", exc_info=reason)
    return Refusal("internal", "the server failed", "try again; its log says more")


def _close(opened: Future[Live]) -> None:
    """Close a stream that nobody waits for."""
    if not opened.cancelled() and not opened.exception():
        opened.result().close()
