"""Commands of a copied checkout without the seconds that each takes to import torch.

`Preloaded.install` writes programs of the commands' names that ask a process to fork, which has imported
torch and whatever else the commands need of others. The forked process has the caller's streams,
folder and environment, and imports the package itself from where PYTHONPATH says.
"""

import array
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import forks
from checkouts import write_program

MODULES = (
    "torch", "torch.distributed", "torch.utils.tensorboard", "numpy", "pydantic", "safetensors.torch",
    "sentencepiece", "soundfile", "yaml", "matplotlib.backends.backend_agg",
)  # fmt: skip
CLIENT = """#!{python} -IS
import json, os, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect({path!r})
words = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
socket.send_fds(line, [b"\\n"], [0, 1, 2])
line.sendall(json.dumps([words, os.getcwd(), dict(os.environ)]).encode() + b"\\n")
status = int(line.makefile().readline())
if status < 0:
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


class Preloaded:
    """The process that forks; `folder` is a place for its socket."""

    def __init__(self, folder: Path):
        self.path = folder / "socket"
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(self.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._process.stdout.readline()  # it listens

    def install(self, folder: Path) -> None:
        """Write a program for each command of the package."""
        text = CLIENT.format(python=sys.executable, path=str(self.path))
        for command in entry_points(group="console_scripts"):
            if command.module.startswith("asr."):
                write_program(folder / command.name, text)

    def close(self) -> None:
        """End."""
        self._process.stdin.close()
        self._process.wait(60)


def serve(path: str) -> None:
    """Fork for each command, until standard input ends."""
    for name in MODULES:
        importlib.import_module(name)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    print(flush=True)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while listener in select.select([listener, sys.stdin], [], [])[0]:
        line, _ = listener.accept()
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            run(line)
            os._exit(0)
        line.close()


def run(line: socket.socket) -> None:
    """Fork for the command itself; answer its exit status."""
    _, streams, _, _ = socket.recv_fds(line, 1, 3)
    words, folder, environment = json.loads(line.makefile().readline())
    child = os.fork()
    if not child:
        line.close()
        become(words, folder, environment, streams)
        os._exit(forks.finished(importlib.import_module(forks.module(words[0])).main))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    line.sendall(f"{status}\n".encode())


def become(words: list, folder: str, environment: dict, streams: array.array) -> None:
    """Make this the process that an interpreter would be which begins with these words there."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    forks.streams()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.modules.pop("sitecustomize", None)
    importlib.import_module("sitecustomize")
    sys.argv = words


if __name__ == "__main__":
    serve(sys.argv[1])
