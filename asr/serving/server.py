"""The server below the application: uvicorn, with limits of connections, of time, and of what waits for a reader."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Sequence
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from asr.serving.options import ServingOptions
from asr.serving.service import Service

MOST_HEADERS = 16 * 1024  # bytes
STUCK = 3.0  # seconds in which a client must read something of what is left when its WebSocket ends
PARTING = 2.0  # seconds in which what was given up is answered, when the server ends
ANSWER = "HTTP/1.1 {}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


def serve(app: FastAPI, behind_proxy: bool = False, **more: Any) -> None:
    """Serve until a signal comes; then let what runs end; see `settings`."""
    with contextlib.suppress(KeyboardInterrupt):
        Server(settings(app, behind_proxy, **more)).run()


def settings(app: FastAPI, behind_proxy: bool = False, **more: Any) -> uvicorn.Config:
    """Settle how uvicorn serves, within the limits of the application's service.

    behind_proxy  believe X-Forwarded-For of a proxy on this machine
    more          host, port, ssl_certfile and others of uvicorn's
    """
    options = service_of(app).options
    return uvicorn.Config(
        app,
        http=LimitedHTTP,
        ws=LimitedWebSocket,
        ws_max_size=2 << 20,  # the application refuses half of it, and says why
        ws_ping_timeout=60.0,  # a client whose audio waits sees pings late
        h11_max_incomplete_event_size=MOST_HEADERS,
        timeout_keep_alive=int(max(1, options.receive_seconds)),
        timeout_graceful_shutdown=options.shutdown_seconds + PARTING,  # type: ignore[arg-type]
        proxy_headers=behind_proxy,
        server_header=False,
        access_log=False,
        log_level="error",
        **more,
    )


def service_of(app: Any) -> Service:
    """Return what an application of `create_app` serves with."""
    return app.state.service


class Server(uvicorn.Server):
    """uvicorn, which gives up and answers what isn't done in time before it breaks it off."""

    async def shutdown(self, sockets: Sequence[socket.socket] | None = None) -> None:
        """Let what runs end."""
        service = service_of(self.config.app)
        giving_up = threading.Thread(target=service.give_up, daemon=True)
        end = asyncio.get_running_loop().call_later(
            service.options.shutdown_seconds, giving_up.start
        )
        await super().shutdown(sockets)  # type: ignore[arg-type]
        end.cancel()


class LimitedWebSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket, which a client that reads nothing, or begins wrongly, neither keeps open nor fills."""

    async def run_asgi(self) -> None:
        """Run the application; then drop what is left if nobody reads it, for it would never be closed."""
        await super().run_asgi()
        left = self.transport.get_write_buffer_size()
        while left:
            await asyncio.sleep(STUCK)
            before, left = left, self.transport.get_write_buffer_size()
            if left >= before:
                return self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take what comes; the first of it is a whole request, which uvicorn may leave without an answer."""
        super().data_received(data)
        if not (self.handshake_initiated or self.transport.is_closing()):
            self.transport.write(ANSWER.format("400 Bad Request").encode())
            self.transport.close()

    def handle_ping(self) -> None:
        """Answer a ping, unless answers wait already: uvicorn would write them without a limit."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()


class LimitedHTTP(H11Protocol):
    """uvicorn's HTTP, which limits connections, and ends those that send no request or read no answer."""

    _timer: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None

    @property
    def _options(self) -> ServingOptions:
        return service_of(self.config.app).options

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(1)  # whatever isn't read pauses it
        if len(self.connections) > self._options.max_connections:
            self._end("503 Service Unavailable")
        else:
            self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.transport.is_closing():
            self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._unwatch()  # uvicorn's own timer runs until the next request begins

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._unwatch()
        self._read()
        self.transport.set_write_buffer_limits()
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        self._read()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reader(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._read()
        super().resume_writing()

    def _await_reader(self, left: int) -> None:
        seconds = self._options.receive_seconds
        self._reading = self.loop.call_later(seconds, self._look, left)

    def _look(self, left: int) -> None:
        """Cut the connection off if nothing has been read since then."""
        if (now := self.transport.get_write_buffer_size()) < left:
            self._await_reader(now)
        else:
            self.transport.abort()

    def _read(self) -> None:
        if self._reading:
            self._reading.cancel()
        self._reading = None

    def _watch(self) -> None:
        """Run a timer from the first byte of a request, or the connection, to the end of its headers."""
        if self.cycle and not self.cycle.response_complete:
            self._unwatch()
        elif self._timer is None and self.transport.get_protocol() is self:
            seconds = self._options.receive_seconds
            self._timer = self.loop.call_later(seconds, self._end, "408 Request Timeout")

    def _unwatch(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = None

    def _end(self, status: str) -> None:
        if not self.transport.is_closing():
            self.transport.write(ANSWER.format(status).encode())
            self.transport.close()
