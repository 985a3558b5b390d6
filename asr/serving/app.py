"""The server's application: its routes, and the page at /."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles

from asr.serving import live
from asr.serving.engine import Engine
from asr.serving.options import ServingOptions
from asr.serving.service import Service

STATIC = Path(__file__).parent / "static"


def create_app(
    engines: Mapping[str, Engine],
    options: ServingOptions = ServingOptions(),  # noqa: B008 - frozen
) -> FastAPI:
    """Make the application; engines: by the name of their model. They are closed when it ends."""
    service = Service(engines, options)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        for engine in service.engines.values():
            engine.close(options.shutdown_seconds)

    app = FastAPI(title="asr-serve", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.service = service

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    app.include_router(live.router)
    app.mount("/", StaticFiles(directory=STATIC, html=True))
    return app
