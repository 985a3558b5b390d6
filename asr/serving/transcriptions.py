"""OpenAI's API: POST /v1/audio/transcriptions, GET /v1/models."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException

from asr.errors import UserError, did_you_mean
from asr.serving import answers, uploads
from asr.serving.clients import CLOSED, Closed, Full
from asr.serving.engine import Engine
from asr.serving.errors import RequestError, without_paths
from asr.serving.guard import BUSY, UPLOAD, address
from asr.serving.service import Service
from asr.transcript import Segment, Transcript
from asr.transcription.options import SearchOptions
from asr.transcription.streamable import can_stream

router = APIRouter()
POLL = 0.25  # seconds between looks whether the client is still there
Result = TypeVar("Result")
Keyword = Annotated[str, Field(min_length=1, max_length=100)]
LISTS = ("keywords", "timestamp_granularities", "include", "languages")
CHARSETS = (b"utf-8", b"utf8", b"us-ascii")  # of a form
CHUNKING = "chunking_strategy["  # clients write an object's fields as chunking_strategy[type], ...


class VoiceActivity(BaseModel):
    """OpenAI's chunking strategy as an object: checked, and else without effect."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    type: Literal["server_vad"]
    prefix_padding_ms: int = Field(300, ge=0, le=60_000)
    silence_duration_ms: int = Field(200, ge=0, le=60_000)
    threshold: float = Field(0.5, ge=0, le=1)


class Form(BaseModel):
    """The fields of a transcription beside its file.

    prompt, temperature, language, chunking_strategy are accepted for the clients' sake; a model has
    one language, the search draws nothing, and long recordings are cut at pauses in any case. nbest
    is ours.
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    model: str = Field("", max_length=500)
    language: str | None = Field(None, max_length=35, pattern="^[A-Za-z-]*$")
    languages: list[Annotated[str, Field(max_length=35)]] = Field([], max_length=100)
    prompt: str | None = Field(None, max_length=20_000)
    keywords: list[Keyword] = Field([], max_length=200)
    response_format: Literal["json", "text", "srt", "vtt", "verbose_json"] = "json"
    temperature: float = Field(0.0, ge=0, le=2)
    timestamp_granularities: list[Literal["word", "segment"]] = Field([], max_length=2)
    stream: bool = False
    include: list[Literal["logprobs"]] = Field([], max_length=1)
    chunking_strategy: Literal["auto"] | VoiceActivity | None = None
    nbest: int = Field(1, ge=1, le=10)

    @model_validator(mode="after")
    def _fits(self) -> Form:
        verbose, kind = self.response_format == "verbose_json", self.response_format
        if self.timestamp_granularities and not verbose:
            raise ValueError("timestamp_granularities: needs response_format verbose_json")
        if self.include and kind != "json":
            raise ValueError("include: logprobs need response_format json")
        if self.stream and kind not in ("json", "text"):
            raise ValueError("stream: needs response_format json or text")
        if self.nbest > 1 and not verbose:
            raise ValueError("nbest: needs response_format verbose_json")
        return self


def schema() -> dict[str, Any]:
    """Describe the form for OpenAPI, with lists' names as clients send them."""
    found = Form.model_json_schema(ref_template="#/components/schemas/{model}")
    fields = {f"{n}[]" if n in LISTS else n: value for n, value in found["properties"].items()}
    fields["chunking_strategy"] = {"type": "string", "enum": ["auto"]}
    content = {
        "type": "object",
        "required": ["file"],
        "additionalProperties": False,
        "properties": {"file": {"type": "string", "format": "binary"}, **fields},
    }
    return {"required": True, "content": {"multipart/form-data": {"schema": content}}}


def read_form(given: FormData) -> Form:
    """Read the fields.

    raises   RequestError 400 that names the field
    """
    values: dict[str, Any] = {}
    for name, value in given.multi_items():
        key = name.removesuffix("[]")
        if name == "file":
            continue
        if not isinstance(value, str):
            raise RequestError(400, f"{_shown(key)}: got a file, expected text", _shown(key))
        if key in LISTS:
            values.setdefault(key, []).append(value)
        elif name.startswith(CHUNKING) and name.endswith("]"):
            strategy = values.setdefault("chunking_strategy", {})
            if isinstance(strategy, dict):
                strategy[name[len(CHUNKING) : -1]] = value
        elif name in values:
            raise RequestError(400, f"{_shown(name)}: given twice", _shown(name))
        else:
            values[name] = _strategy(value) if name == "chunking_strategy" else value
    try:
        return Form(**values)
    except ValidationError as error:
        raise _form_error(error) from None


def _strategy(value: str) -> Any:
    with contextlib.suppress(ValueError, RecursionError):
        if value.lstrip().startswith("{"):
            return json.loads(value)
    return value


def _form_error(error: ValidationError) -> RequestError:
    fault = error.errors(include_url=False, include_input=False)[0]
    place = [str(part) for part in fault["loc"]]
    if not place:  # of several fields
        message = fault["msg"].removeprefix("Value error, ")
        return RequestError(400, message, message.split(":")[0], "invalid_value")
    name = _shown(place[0])
    if fault["type"] == "extra_forbidden" and len(place) == 1:
        message = f"{name}: no such field{did_you_mean(name, Form.model_fields)}"
        return RequestError(400, message, name, "unknown_parameter")
    return RequestError(400, f"{name}: {fault['msg']}", name, "invalid_value")


def _shown(name: str) -> str:
    """A name of the client's, short and printable."""
    return "".join(c if c.isprintable() else "?" for c in name[:60])


@router.post(UPLOAD, openapi_extra={"requestBody": schema()})
async def transcribe(request: Request) -> Response:
    """Transcribe a file."""
    service: Service = request.app.state.service
    async with contextlib.AsyncExitStack() as stack:
        given = await _form(request)
        stack.push_async_callback(given.close)
        form, file = read_form(given), _file(given)
        name, engine = service.engine(form.model)
        if form.response_format in ("srt", "vtt") and not engine.recognizer.has_times:
            raise RequestError(400, "the model gives no times", "response_format")
        how = search_options(engine, form.keywords, form.nbest)
        folder = stack.enter_context(uploads.kept(service.folder))
        path = await asyncio.to_thread(uploads.write, file.file, file.filename or "", folder)
        await given.close()  # of two copies one is enough
        work = _Work(request, service, form, name, engine, str(folder))
        recording = await asyncio.to_thread(
            uploads.recording, await work.readable(path), service.options
        )
        work.begin(recording, how)
        stack.callback(work.cancel)
        if form.stream:
            return _Events(work, stack.pop_all())
        return work.answer(await work.result())


async def _form(request: Request) -> FormData:
    kind = request.headers.get("content-type", "")
    if not kind.lower().startswith("multipart/form-data"):
        raise RequestError(415, "expected multipart/form-data", None, "unsupported_media_type")
    _, more = parse_options_header(kind)
    if more.get(b"charset", b"utf-8").lower() not in CHARSETS:  # punycode takes quadratic time
        raise RequestError(415, "expected a form in UTF-8", None, "unsupported_media_type")
    try:
        return await request.form(max_files=1, max_fields=300, max_part_size=1 << 16)
    except (HTTPException, KeyError, ValueError, UnicodeError) as error:
        message = error.detail if isinstance(error, HTTPException) else "the form is malformed"
        raise RequestError(400, str(message), None, "malformed_form") from None


def _file(given: FormData) -> UploadFile:
    files = given.getlist("file")
    if len(files) != 1 or not isinstance(files[0], UploadFile):
        raise RequestError(400, "file: expected one uploaded file", "file", "missing_file")
    return files[0]


def search_options(engine: Engine, keywords: Sequence[str], nbest: int = 1) -> SearchOptions:
    """How to search, by the server's options and a request's.

    raises   RequestError if a keyword can't be spelled, or isn't used
    """
    how, given = engine.options, dict[str, Any]()
    if nbest > 1:
        given = {"nbest": nbest, "beam": max(how.beam, nbest)}
    if keywords:
        if how.mode.endswith("greedy"):
            raise RequestError(400, "keywords: the server's search doesn't use them", "keywords")
        given["hotwords"] = tuple(dict.fromkeys(_spelled(word, engine) for word in keywords))
    return replace(how, **given) if given else how


def _spelled(word: str, engine: Engine) -> str:
    """A keyword in the case that the model can spell."""
    word = " ".join(word.split())
    for spelling in (word, word.upper(), word.lower()):
        with contextlib.suppress(UserError):
            if spelling.isprintable() and engine.recognizer.tokenizer.encode(spelling, ""):
                return spelling
    raise RequestError(400, "keywords: one can't be spelled by the model", "keywords")


class _Events(StreamingResponse):
    """An answer of server-sent events; what it needs is closed at its end, also if nobody reads it."""

    def __init__(self, work: _Work, closing: contextlib.AsyncExitStack):
        headers = {"X-Asr-Model": work.name}
        super().__init__(work.events(), media_type="text/event-stream", headers=headers)
        self._closing = closing

    async def __call__(self, *asgi: Any) -> None:
        """Answer."""
        async with self._closing:
            await super().__call__(*asgi)


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Answer what an engine refuses."""
    try:
        yield
    except Full as error:
        raise RequestError(429, str(error), None, "queue_full", BUSY) from None
    except Closed as error:
        raise RequestError(503, str(error), None, "shutting_down", BUSY) from None


class _Work:
    """A transcription that runs, and its answer."""

    def __init__(
        self, request: Request, service: Service, form: Form, name: str, engine: Engine, folder: str
    ):
        self.request, self.service, self.form = request, service, form
        self.name, self.engine, self.folder = name, engine, folder
        self._began = time.monotonic()
        self._segments = list[Segment]()  # that are settled and not sent yet

    async def readable(self, path: Path) -> Path:
        """Have ffmpeg decode an upload, if it is a container; return the file to transcribe.

        raises   RequestError
        """
        if not await asyncio.to_thread(uploads.is_container, path):
            return path
        client = address(self.request.scope)
        with _refusals(), self.service.decoders.decoding(path, client) as future:
            return await self._awaited(future)

    def begin(self, recording: Any, how: SearchOptions) -> None:
        """Hand the recording to the engine.

        raises   RequestError 429 or 503
        """
        loop = asyncio.get_running_loop()

        def progress(segments: list[Segment]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._add, segments)

        client, more = address(self.request.scope), progress if self.form.stream else None
        with _refusals():
            self._future = self.engine.submit(recording, how, client=client, progress=more)

    def _add(self, segments: list[Segment]) -> None:
        self._segments += segments

    async def result(self) -> Transcript:
        """Wait for the result while the client does.

        raises   RequestError
        """
        try:
            with _refusals():
                found = await self._awaited(self._future)
        except UserError as error:
            message = without_paths(str(error), self.folder)
            raise RequestError(400, message, "file", "invalid_audio") from None
        self._note(found)
        return found

    async def _awaited(self, future: Future[Result]) -> Result:
        """Wait for a result while the client does.

        raises   RequestError 504, 499; Closed if it was canceled
        """
        waiting = asyncio.wrap_future(future)
        try:
            while not (await asyncio.wait([waiting], timeout=POLL))[0]:
                self._check_time()
                if await self.request.is_disconnected():
                    raise RequestError(499, "the client has left")
            if waiting.cancelled():
                raise Closed(CLOSED)
            return waiting.result()
        finally:
            waiting.cancel()

    def _check_time(self) -> None:
        most = self.service.options.transcribe_seconds
        if time.monotonic() - self._began > most:
            raise RequestError(504, f"took more than {most:g} s", None, "timeout")

    def _note(self, found: Transcript) -> None:
        """Count it, and add it to the line of the log."""
        metrics, wall = self.service.metrics, time.monotonic() - self._began
        metrics.audio.labels(self.name).inc(found.duration)
        metrics.rtf.labels(self.name).observe(wall / max(found.duration, 1e-3))
        facts = {"model": self.name, "audio": round(found.duration, 2)}
        if self.service.options.log_text:
            facts["text"] = found.text
        self.request.scope["state"]["log"] |= facts

    def answer(self, found: Transcript) -> Response:
        """Write the answer in the format that the client wants."""
        form, headers = self.form, {"X-Asr-Model": self.name}
        kind = form.response_format
        if kind in answers.TYPES:
            text, media = answers.plain(found, kind), answers.TYPES[kind]
            return PlainTextResponse(text, media_type=media, headers=headers)
        if kind == "json":
            return JSONResponse(answers.brief(found, self.name, self._symbols()), headers=headers)
        wanted = form.timestamp_granularities or ["segment"]
        parts = "word" in wanted, "segment" in wanted
        content = answers.verbose(found, self.name, form.language, *parts, form.nbest)
        return JSONResponse(content, headers=headers)

    def _symbols(self) -> list[str] | None:
        return self.engine.recognizer.tokenizer.symbols() if self.form.include else None

    async def events(self) -> AsyncIterator[bytes]:
        """Yield server-sent events: what is settled of the text, and at last all of it."""
        deltas = answers.Deltas()
        waiting = asyncio.ensure_future(self.result())
        try:
            while not waiting.done() or self._segments:
                await asyncio.wait([waiting], timeout=POLL / 5)
                segments, self._segments = self._segments, []
                if delta := deltas.add(segments):
                    yield answers.event("transcript.text.delta", delta=delta)
            found = waiting.result()
            if delta := deltas.rest(found.text):
                yield answers.event("transcript.text.delta", delta=delta)
            facts = answers.brief(found, self.name, self._symbols())
            yield answers.event("transcript.text.done", **facts)
        except RequestError as error:
            self.service.metrics.errors.labels(error.code or str(error.status)).inc()
            yield answers.event("error", **error.as_json())
        finally:
            waiting.cancel()

    def cancel(self) -> None:
        """Leave what isn't done."""
        self._future.cancel()


@router.get("/v1/models")
async def models(request: Request) -> dict[str, Any]:
    """List the models."""
    engines = request.app.state.service.engines
    return {"object": "list", "data": [_model(*pair) for pair in engines.items()]}


@router.get("/v1/models/{name}")
async def model(name: str, request: Request) -> dict[str, Any]:
    """Describe a model; with one model, any name is its name."""
    return _model(*request.app.state.service.engine(name))


def _model(name: str, engine: Engine) -> dict[str, Any]:
    facts = {"id": name, "object": "model", "created": 0, "owned_by": "asr-serve"}
    return facts | {"live": can_stream(engine.recognizer)}
