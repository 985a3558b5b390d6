"""asr-serve on this machine, and waiting for what it does."""

import socket
import threading
import time
from contextlib import contextmanager

from fastapi import FastAPI

from asr.serving import server
from asr.serving.app import create_app
from asr.serving.options import ServingOptions


def connected(address):
    """A socket that holds little of what comes."""
    host, _, port = address.partition(":")
    line = socket.socket()
    line.settimeout(30)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.connect((host, int(port)))
    return line


@contextmanager
def serving(engines, options=ServingOptions(), token=""):  # noqa: B008
    """Serve engines, or an app, on a free port, with sockets that hold little; give the address."""
    app = engines if isinstance(engines, FastAPI) else create_app(engines, options, token)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    running = server.Server(server.settings(app))
    thread = threading.Thread(target=running.run, args=[[listener]])
    thread.start()
    wait_until(lambda: running.started)
    try:
        yield "{}:{}".format(*listener.getsockname())
    finally:
        running.should_exit = True
        thread.join()


def wait_until(is_so, seconds=20.0):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)
