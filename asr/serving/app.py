"""The server's application: its routes, and the page at /."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.staticfiles import StaticFiles
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from asr import __version__
from asr.serving import live, realtime, transcriptions
from asr.serving.engine import Engine
from asr.serving.errors import RequestError
from asr.serving.guard import Guard
from asr.serving.options import ServingOptions
from asr.serving.service import Service

STATIC = Path(__file__).parent / "static"


def create_app(
    engines: Mapping[str, Engine],
    options: ServingOptions = ServingOptions(),  # noqa: B008 - frozen
    token: str = "",
) -> FastAPI:
    """Make the application.

    engines   by the name of their model; they are closed when it ends
    token     that requests must bear; "" lets everyone in
    """
    service = Service(engines, options, token)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(service.close)

    app = FastAPI(
        title="asr-serve", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    app.state.service = service
    _add_errors(app, service)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(service.metrics.page(), media_type=CONTENT_TYPE_LATEST)

    app.include_router(transcriptions.router)
    app.include_router(live.router)
    app.include_router(realtime.router)
    app.mount("/", StaticFiles(directory=STATIC, html=True))
    app.add_middleware(Guard, service=service)
    if options.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=options.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    return app


def _add_errors(app: FastAPI, service: Service) -> None:
    """Answer every error in OpenAI's format."""

    def answer(error: RequestError) -> Response:
        service.metrics.errors.labels(error.code or str(error.status)).inc()
        return error.response()

    @app.exception_handler(RequestError)
    async def refused(_: Request, error: RequestError) -> Response:
        return answer(error)

    @app.exception_handler(HTTPException)
    async def missing(_: Request, error: HTTPException) -> Response:
        headers = error.headers or {}
        return answer(RequestError(error.status_code, str(error.detail), headers=headers))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return answer(RequestError(400, "the request is malformed"))
