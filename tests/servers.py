"""An HTTP server on this machine that misbehaves as told, and remembers what it was asked for and what it sent."""

import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Reply:
    """How one request is answered.

    cut:     end the connection after that number of bytes of the body
    ranges:  honor Range and If-Range, as RFC 9110 has it
    deaf:    honor Range, but not If-Range
    leads:   redirect there instead
    claims:  the Content-Length header; "" for none, and the body ends with the connection
    span:    the Content-Range header
    phrase:  the words after the status
    headers: more of them
    """

    data: bytes = b""
    status: int = 200
    cut: int | None = None
    ranges: bool = True
    deaf: bool = False
    etag: str = '"1"'
    modified: str = ""
    leads: str = ""
    claims: str | None = None
    span: str = ""
    phrase: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass
class Request:
    """What was asked for, and how many bytes of body the reply has."""

    path: str
    range: str | None
    if_range: str | None
    sent: int = 0


class Local(ThreadingHTTPServer):
    """A server on a free port of this machine, which serves within `with`."""

    daemon_threads = True

    def __init__(self, handler):
        super().__init__(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server_port}"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()

    def handle_error(self, *_):
        """Say nothing where the other side has had enough."""


class Server(Local):
    """Answers each path by its list of replies, one after another; the last one stays."""

    def __init__(self):
        super().__init__(Handler)
        self.replies, self.requests = {}, []

    def serve(self, path, *replies):
        """Set the replies for a path; forget the requests so far."""
        self.replies[f"/{path}"] = list(replies)
        self.requests.clear()


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    def do_GET(self):
        replies = self.server.replies.get(self.path, [Reply(status=404)])
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        request = Request(self.path, self.headers["Range"], self.headers["If-Range"])
        self.server.requests.append(request)
        if reply.leads:
            self.send_response(302)
            self.send_header("Location", reply.leads)
            self.end_headers()
        elif reply.status in (200, 206):
            self.answer(reply, request)
        else:
            self.send_error(reply.status, reply.phrase)

    def answer(self, reply, request):
        """Send the headers, and the body from where it is asked for."""
        same = reply.deaf or request.if_range in (None, reply.etag, reply.modified)
        start = int(request.range[6:-1]) if request.range and reply.ranges and same else 0
        size = len(reply.data)
        if start and start >= size:
            self.send_error(416)
            return
        status = 206 if start else reply.status
        headers = {
            "Content-Length": str(size - start) if reply.claims is None else reply.claims,
            "Content-Range": reply.span or f"bytes {start}-{size - 1}/{size}",
            "ETag": reply.etag,
            "Last-Modified": reply.modified,
        }
        self.send_response(status)
        for name, value in [*headers.items(), *reply.headers]:
            if value and (name != "Content-Range" or status == 206):
                self.send_header(name, value)
        self.end_headers()
        body = reply.data[start:][: reply.cut]
        request.sent = len(body)  # before the client, which may look at once, has it
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing."""
