"""OpenAI's realtime transcription: the events that its clients speak, over the streams of live.py.

A stream is open from the first samples to their commit. With turn detection each of its segments is
an item; without it, an item lasts until it is committed. Both spellings of the configuration are
read: `session.update`, and `transcription_session.update` of the first version.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import secrets
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, WebSocket
from pydantic import BaseModel, ConfigDict, Field

from asr.serving.clients import Live
from asr.serving.live import (
    Client,
    Config,
    Refusal,
    chosen,
    converse,
    samples,
    unauthorized,
    validated,
)
from asr.transcript import Event, Final
from asr.transcription.endpoints import AHEAD, KEPT, EndpointOptions

NEVER = 600.0  # seconds of silence that a segment waits without turn detection
MOST = 512  # letters of an event's id: it is answered, and answers wait
RECOVERABLE = ("bad_message", "bad_audio", "unknown_model", "not_live")
ITEM = "conversation.item.input_audio_transcription"
router = APIRouter()


class ConfigPart(BaseModel):
    """A part of a configuration; what concerns other servers is ignored."""

    model_config = ConfigDict(strict=True, extra="ignore")


class Format(ConfigPart):
    type: Literal["audio/pcm"] = "audio/pcm"
    rate: int = Field(default=24_000, ge=8_000, le=192_000)


class Transcription(ConfigPart):
    model: str | None = Field(default=None, max_length=200)
    keywords: list[Annotated[str, Field(max_length=100)]] | None = Field(
        default=None, max_length=200
    )


class Turns(ConfigPart):
    type: Literal["server_vad", "semantic_vad"] = "server_vad"
    silence_duration_ms: int | None = Field(default=None, ge=0, le=60_000)


class Input(ConfigPart):
    format: Format = Format()
    transcription: Transcription | None = Transcription()
    turn_detection: Turns | None = Turns()


class Audio(ConfigPart):
    input: Input = Input()


class TranscriptionSession(ConfigPart):
    type: Literal["transcription"] = "transcription"
    audio: Audio = Audio()


class FirstSession(ConfigPart):
    """As the first version of the API has it."""

    input_audio_format: Literal["pcm16"] = "pcm16"
    input_audio_transcription: Transcription | None = Transcription()
    turn_detection: Turns | None = Turns()

    def input(self) -> Input:
        transcription, turns = self.input_audio_transcription, self.turn_detection
        return Input(transcription=transcription, turn_detection=turns)


@router.websocket("/v1/realtime")
async def realtime(socket: WebSocket) -> None:
    """Transcribe one client's samples, in OpenAI's events."""
    await converse(socket, _transcribe, lambda refusal: _error(refusal, None))


async def _transcribe(client: Client) -> None:
    """Handle events until the client is gone; a wrong one is answered, and the next one read."""
    if not client.admitted:
        raise unauthorized()
    talk = Conversation(client)
    talk.post(talk.session("created"))
    while True:
        message: Any = None
        try:
            message = await client.receive()
            await talk.handle(message)
        except Refusal as refusal:
            if refusal.code not in RECOVERABLE:
                raise
            event = message.get("event_id") if isinstance(message, dict) else None
            client.post(_error(refusal, event[:MOST] if isinstance(event, str) else None))


def _error(refusal: Refusal, event: str | None) -> dict[str, Any]:
    kind = "server_error" if refusal.code == "internal" else "invalid_request_error"
    message = f"{refusal.message}; {refusal.fix}"
    about = {"type": kind, "code": refusal.code, "message": message, "param": None}
    return _event({"type": "error", "error": about | {"event_id": event}})


def _event(values: dict[str, Any]) -> dict[str, Any]:
    return {"event_id": f"event_{secrets.token_hex(8)}"} | values


@dataclass
class Turn:
    """What is spoken in one turn.

    text   that is final
    sent   that has been sent as deltas: it can't be taken back
    """

    id: str = field(default_factory=lambda: f"item_{secrets.token_hex(8)}")
    text: str = ""
    sent: str = ""
    seconds: float = 0.0
    started: bool = False

    def grow(self, text: str) -> str:
        """Return what is new in a text that begins as what was sent."""
        if not text.startswith(self.sent):
            return ""
        new, self.sent = text[len(self.sent) :], text
        return new


class Conversation:
    """A session: its configuration, the stream, and the item that is being spoken."""

    def __init__(self, client: Client):
        self._client, self._input = client, Input()
        asked = client.socket.query_params.get("model", "")[:200]
        self._input.transcription = Transcription(model=asked or None)
        self._first = _speaks_first_version(client.socket)
        self._id = f"sess_{secrets.token_hex(8)}"
        self._live: Live | None = None
        self._ended = asyncio.Event()
        self._seconds, self._number = 0.0, 0  # that were read by the streams before
        self._fed = 0.0  # seconds of the stream
        self._item = Turn()
        self._before: str | None = None  # the id of the last item

    def post(self, event: dict[str, Any]) -> None:
        self._client.post(_event(event))

    def session(self, what: str) -> dict[str, Any]:
        """Describe the session in the version that the client speaks."""
        settings = self._input.model_dump()
        if self._first:
            kind, shown = (
                "transcription_session",
                {
                    "input_audio_format": "pcm16",
                    "input_audio_transcription": settings["transcription"],
                    "turn_detection": settings["turn_detection"],
                },
            )
        else:
            kind, shown = "session", {"type": "transcription", "audio": {"input": settings}}
        object = {"id": self._id, "object": "realtime.transcription_session"}
        return {"type": f"{kind}.{what}", "session": object | shown}

    async def handle(self, message: bytes | dict[str, Any]) -> None:
        """Do what one event asks for."""
        match message:
            case {"type": "session.update" | "transcription_session.update" as kind, **rest}:
                self._update(kind, rest.get("session"))
            case {"type": "input_audio_buffer.append", "audio": str(audio)}:
                await self._append(audio)
            case {"type": "input_audio_buffer.commit"}:
                await self._commit()
            case {"type": "input_audio_buffer.clear"}:
                self._client.leave()
                self._forget()
                self.post({"type": "input_audio_buffer.cleared"})
            case _:
                kind = message["type"] if isinstance(message, dict) else "binary frame"
                raise Refusal(
                    "bad_message",
                    f"got {kind[:60]!r}, which this server doesn't know, or which lacks a field",
                    "send session.update, input_audio_buffer.append with audio, .commit or .clear",
                )

    def _update(self, kind: str, settings: Any) -> None:
        if self._live:
            raise Refusal("bad_message", "got an update amid the audio", "commit or clear it first")
        self._first = kind.startswith("transcription")
        settings = settings if isinstance(settings, dict) else {}
        read = validated(FirstSession if self._first else TranscriptionSession, settings)
        self._input = read.input() if self._first else read.audio.input
        self.post(self.session("updated"))

    async def _append(self, audio: str) -> None:
        try:
            data = base64.b64decode(audio, validate=True)
        except (binascii.Error, ValueError):
            raise Refusal("bad_audio", "got audio that is no base64", "encode it") from None
        rate, waveform = self._input.format.rate, samples(data, 1)
        live = self._live = self._live or await self._open()
        self._fed += len(waveform) / rate
        await self._client.feed(live, waveform, rate)

    async def _open(self) -> Live:
        asked = self._input.transcription or Transcription()
        config = {"type": "config", "model": asked.model, "hotwords": asked.keywords or []}
        name, engine, options = chosen(self._client.service, validated(Config, config))
        self._ended.clear()
        ends = self._endpoints(engine.endpoints)
        at = (self._seconds, self._number)
        how = (name, engine, options, ends, self._listen, self._ended.set)
        return await self._client.open(*how, *at)

    def _endpoints(self, usual: EndpointOptions) -> EndpointOptions:
        """Say when segments end: in silence where turns are detected, else when they are too long."""
        turns = self._input.turn_detection
        if turns is None:
            return replace(usual, end_silence=NEVER)
        if turns.silence_duration_ms is None:
            return usual
        return replace(usual, end_silence=max(KEPT + AHEAD, turns.silence_duration_ms / 1000))

    async def _commit(self) -> None:
        """End the stream, and wait for its last words."""
        if not self._live:
            raise Refusal("bad_message", "got a commit without audio", "append some first")
        number = self._number
        self._live.end()
        await self._ended.wait()
        if self._number == number or not self._input.turn_detection:
            self._item.seconds = self._fed
            self._complete()
        self._forget()

    def _forget(self) -> None:
        """Let the next samples begin another stream."""
        self._seconds += self._fed
        self._live, self._fed, self._item = None, 0.0, Turn()

    def _listen(self, event: Event) -> None:
        """Translate an event of the stream."""
        item, turns = self._item, self._input.turn_detection
        if turns and not item.started:
            item.started = True
            self._speech("started", audio_start_ms=_ms(_start(event)))
        text = event.segment.text if isinstance(event, Final) else event.stable
        whole = f"{item.text} {text}" if item.text and text else item.text or text
        if new := item.grow(whole):
            self.post(
                {"type": f"{ITEM}.delta", "item_id": item.id, "content_index": 0, "delta": new}
            )
        if isinstance(event, Final):
            item.text, self._number = whole, event.number + 1
            if turns:
                item.seconds = event.segment.end - event.segment.start
                self._speech("stopped", audio_end_ms=_ms(event.segment.end))
                self._complete()

    def _speech(self, what: str, **at: int) -> None:
        self.post({"type": f"input_audio_buffer.speech_{what}", "item_id": self._item.id, **at})

    def _complete(self) -> None:
        """Tell an item's text, and begin the next."""
        item, self._item = self._item, Turn()
        self.post(
            {
                "type": "input_audio_buffer.committed",
                "item_id": item.id,
                "previous_item_id": self._before,
            }
        )
        content = [{"type": "input_audio", "transcript": None}]
        spoken = {"id": item.id, "object": "realtime.item", "type": "message", "role": "user"}
        kind = "created" if self._first else "added"
        self.post(
            {
                "type": f"conversation.item.{kind}",
                "previous_item_id": self._before,
                "item": spoken | {"status": "completed", "content": content},
            }
        )
        usage = {"type": "duration", "seconds": round(item.seconds, 3)}
        done = {"type": f"{ITEM}.completed", "item_id": item.id, "content_index": 0}
        self.post(done | {"transcript": item.text, "usage": usage})
        self._before = item.id


def _start(event: Event) -> float:
    return event.segment.start if isinstance(event, Final) else event.start


def _ms(seconds: float) -> int:
    return round(1000 * seconds)


def _speaks_first_version(socket: WebSocket) -> bool:
    protocols = socket.scope["subprotocols"]
    beta = socket.headers.get("openai-beta", "")
    return "realtime=v1" in beta or "openai-beta.realtime-v1" in protocols
