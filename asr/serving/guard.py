"""What stands before all routes: who may ask, how much and how fast; security headers; a line of the log.

A request has its line after its answer, a WebSocket at its end.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect

from asr.logging import logger
from asr.serving.errors import RequestError
from asr.serving.service import Service

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "media-src 'self' blob:; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
}
PRIVATE = ("/v1/", "/metrics", "/openapi.json")  # what needs the token
UPLOAD = "/v1/audio/transcriptions"
BUSY = {"Retry-After": "5"}
# bytes, and seconds, of a body that was refused: its sender reads the answer after it
DRAINED = 64 * 2**20
DRAIN_SECONDS = 3.0


class Guard:
    """Pass on what may pass."""

    def __init__(self, app: App, service: Service):
        self.app, self.service = app, service

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request, or a handshake of a WebSocket."""
        if scope["type"] in ("http", "websocket"):
            scope.setdefault("state", {})["log"] = {}  # what a route adds to the line
        if scope["type"] == "http":
            await _Exchange(self, scope, receive, send).run()
        elif scope["type"] == "websocket":
            await _Connection(self, scope, receive, send).run()
        else:
            await self.app(scope, receive, send)

    def refusal(self, scope: Message, headers: Headers) -> RequestError | None:
        """Say why a request can't pass by its headers alone."""
        service, options = self.service, self.service.options
        host, origin = headers.get("host", ""), headers.get("origin")
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if not options.answers_to(name.lower()):
            return RequestError(421, "is not asked by this name; see --hosts", None, "wrong_host")
        if origin and not (origin.partition("://")[2] == host or self._is_allowed(origin)):
            return RequestError(403, "pages of other origins may not ask; see --cors", None, "cors")
        path, is_socket = scope["path"], scope["type"] == "websocket"
        preflight = not is_socket and scope["method"] == "OPTIONS" and origin
        if path.startswith(PRIVATE) and not preflight:
            if wait := service.limiter.wait(address(scope)):  # wrong tokens count, too
                after = {"Retry-After": str(int(wait) + 1)}
                message = f"more than {options.requests_per_minute} requests in a minute"
                return RequestError(429, message, None, "rate_limit_exceeded", after)
            # the route of a WebSocket asks for the token itself: browsers can't put it into a header
            if not is_socket and not service.admits(headers.get("authorization")):
                challenge = {"WWW-Authenticate": "Bearer"}
                message = "the token is missing or wrong; expected Authorization: Bearer TOKEN"
                return RequestError(401, message, None, "invalid_api_key", challenge)
        if is_socket:
            return None
        if path == UPLOAD and scope["method"] == "POST":
            return self._no_room(headers, address(scope))
        return None

    def _no_room(self, headers: Headers, client: str) -> RequestError | None:
        options, arriving = self.service.options, self.service.arriving
        most, length = options.most_bytes, headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()) or int(length[:20]) > most:
            return too_large(most)
        of_one = arriving[client] >= options.requests_of_one
        if of_one or arriving.total() >= options.max_requests:
            message = (
                f"too many requests{' from this address' if of_one else ''} are running or waiting"
            )
            return RequestError(429, message, None, "queue_full", BUSY)
        return None

    def _is_allowed(self, origin: str) -> bool:
        return bool({"*", origin} & {*self.service.options.origins})


class _Exchange:
    """A request and its answer."""

    def __init__(self, guard: Guard, scope: Message, receive: Receive, send: Send):
        self.guard, self.scope, self._receive, self._send = guard, scope, receive, send
        self.options = guard.service.options
        self.began, self.deadline = time.monotonic(), time.monotonic() + self.options.upload_seconds
        self.bytes, self.status, self.complete = 0, 0, False
        self.refused: RequestError | None = None
        self.id = uuid.uuid4().hex

    async def run(self) -> None:
        """Answer."""
        self.refused = self.guard.refusal(self.scope, Headers(scope=self.scope))
        service = self.guard.service
        counted = not self.refused and self.scope["path"] == UPLOAD
        if counted:
            self._count(1)
        try:
            if self.refused:
                await self.refused.response()(self.scope, self.receive, self.send)
            else:
                await self.guard.app(self.scope, self.receive, self.send)
        except ClientDisconnect:
            pass  # the client has left: 499
        except Exception as error:
            logger.error("a request failed", exc_info=error)
            service.metrics.errors.labels("500").inc()
            if not self.status:  # the answer hasn't begun
                failed = RequestError(500, "the server failed; its log has more")
                await failed.response()(self.scope, self.receive, self.send)
        finally:
            if counted:
                self._count(-1)
            self._note()

    def _count(self, change: int) -> None:
        """Count a transcription in, 1, or out, -1."""
        service, client = self.guard.service, address(self.scope)
        service.arriving[client] += change
        if not service.arriving[client]:
            del service.arriving[client]
        service.metrics.arriving.set(service.arriving.total())

    async def receive(self) -> Message:
        """Receive a part of the body, within the limits.

        raises   RequestError 413 or 408
        """
        if self.complete:  # the application waits for the client to leave
            return await self._receive()
        left = min(self.options.receive_seconds, self.deadline - time.monotonic())
        try:
            with anyio.fail_after(max(0.0, left)):
                message = await self._receive()
        except TimeoutError:
            why = f"nothing came for {max(0.0, left):.3g} s, or too slowly"
            raise self._refuse(RequestError(408, why, None, "too_slow")) from None
        self.bytes += len(message.get("body", b""))
        self.complete = not message.get("more_body", False)
        if self.bytes > self.options.most_bytes:
            raise self._refuse(too_large(self.options.most_bytes))
        return message

    def _refuse(self, error: RequestError) -> RequestError:
        self.refused = error
        return error

    async def send(self, message: Message) -> None:
        """Send a part of the answer, with the headers that all have."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers["X-Request-Id"] = self.id
            if self.scope["path"].startswith(PRIVATE):
                headers.setdefault("Cache-Control", "no-store")
            if self._is_unread():
                headers["Connection"] = "close"
        elif self._is_unread() and not message.get("more_body"):
            await self._send({**message, "more_body": True})
            await self._drain()
            message = {"type": "http.response.body", "body": b""}
        await self._send(message)

    def _is_unread(self) -> bool:
        """Whether there is a body of which more may come."""
        headers = Headers(scope=self.scope)
        has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        return has_body and not self.complete

    async def _drain(self) -> None:
        """Read on for a moment: closing a connection with unread data would lose the answer."""
        left, end = DRAINED, time.monotonic() + DRAIN_SECONDS
        while left > 0 and (seconds := end - time.monotonic()) > 0:
            try:
                with anyio.fail_after(seconds):
                    message = await self._receive()
            except TimeoutError:
                return
            left -= len(message.get("body", b""))
            if not message.get("more_body"):
                return

    def _note(self) -> None:
        """Count it, and log it."""
        status = self.status or 499  # the client has left
        facts = _noted(self.scope, self.id, status, self.began, self.bytes)
        metrics, route = self.guard.service.metrics, facts["route"]
        metrics.requests.labels(route, str(status)).inc()
        metrics.latency.labels(route).observe(facts["seconds"])


class _Connection:
    """A WebSocket, from its handshake to its end."""

    def __init__(self, guard: Guard, scope: Message, receive: Receive, send: Send):
        self.guard, self.scope, self._receive, self._send = guard, scope, receive, send
        self.began, self.bytes, self.accepted, self.status = time.monotonic(), 0, False, 0
        self.theirs = 0  # the code with which the client closed it

    async def run(self) -> None:
        """Let the application speak with the client, if it may."""
        try:
            if self.guard.refusal(self.scope, Headers(scope=self.scope)):
                await self.send({"type": "websocket.close", "code": 1008})
            else:
                await self.guard.app(self.scope, self.receive, self.send)
        finally:
            # one that ends without a close code is cut off, as by the end of the server
            status = self.status or 1006
            facts = _noted(self.scope, uuid.uuid4().hex, status, self.began, self.bytes)
            requests = self.guard.service.metrics.requests
            requests.labels(facts["route"], self._counted(facts["status"])).inc()

    def _counted(self, status: int) -> str:
        """Name a status in the metrics; a client may close with any of 2,000 codes."""
        return "other" if status >= 3000 and status == self.theirs else str(status)

    async def receive(self) -> Message:
        """Receive a message, and count its bytes."""
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            self.theirs = 0 if self.status else message.get("code", 1006)
            self.status = self.status or self.theirs
        self.bytes += len(message.get("bytes") or (message.get("text") or "").encode())
        return message

    async def send(self, message: Message) -> None:
        """Send a message, and note the code of one that closes; before the handshake that is a 403."""
        self.accepted |= message["type"] == "websocket.accept"
        if message["type"] == "websocket.close" and not self.status:
            self.status = message.get("code", 1000) if self.accepted else 403
        await self._send(message)


def _noted(scope: Message, id: str, status: int, began: float, size: int) -> dict[str, Any]:
    """Log a line of facts: nothing in it is of the client's choice."""
    route = getattr(scope.get("route"), "path", None) or "other"
    facts = {"id": id, "client": address(scope), "route": route, "status": status}
    facts |= {"seconds": round(time.monotonic() - began, 3), "bytes": size}
    facts |= scope["state"]["log"]
    logger.info(json.dumps(facts))
    return facts


def too_large(most: int) -> RequestError:
    """Make the error of a body beyond the limit."""
    return RequestError(413, f"an upload has at most {most / 1e6:g} MB", "file", "too_large")


def address(scope: Message) -> str:
    """Where a request comes from."""
    client = scope.get("client")
    return client[0] if client else "unknown"
