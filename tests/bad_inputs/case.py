"""One bad input: what is given to a command, and what a user should get.

Of every case these hold, without being said: no traceback, no hang, every input and every file that was there is the
same to the byte afterwards, and no new file stays but those of `leaves`.
"""

import json
import os
import shutil
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SOME = 3  # finished, but some inputs failed
REFUSED = 2


@dataclass(frozen=True)
class Case:
    """A row of the tables.

    name     the cause, unique in its command
    line     the command line, split as a shell does; `$model` and other things of `READY` stand for their paths. The
             case's own folder is where it runs. A list: the arguments as they are
    says     each must stand in what the command says on stderr; of a tuple one of them
    given    makes the case's own files, in the process of the tests
    status   the exit status, or those that are right
    leaves   patterns of new files that may stay
    then     asserts more of the room and of what the command has left and said
    changes  patterns of files that may be changed
    how      of the process: see `PROCESS`
    """

    name: str
    line: str | list
    says: tuple = ()
    given: Callable | None = None
    status: int | tuple = REFUSED
    leaves: tuple = ()
    changes: tuple = ()
    then: Callable | None = None
    how: dict = field(default_factory=dict)


PROCESS = {
    "stdin": "text to read there, from a pipe; else /dev/null",
    "stdout": "a file to write to, as /dev/full; None: closed",
    "stderr": "likewise",
    "cwd": "folder of the room to run in; with a trailing !: removed before the command begins",
    "file_bytes": "no file may become larger, as on a full disk",
    "memory": "bytes that the command may take beyond what the imported libraries have",
    "user": "True: without root's right to read and write whatever the permissions say",
    "hasty": "True: waits for servers take no time, and their silence is noticed in a second",
    "env": "variables to set, or with None to unset; this and `real` take a process of its own",
    "real": "True: a process of its own, in which the libraries are imported anew",
}


def case(name: str, line: str | list, *says: str | tuple, **more) -> Case:
    """Make a row; what belongs to the process may be given among the rest."""
    how = {key: more.pop(key) for key in list(more) if key in PROCESS}
    return Case(name, line, says, how=how, **more)


@dataclass(frozen=True)
class Done:
    """What a command has said and returned."""

    status: int
    out: str
    err: str


class Room:
    """A case's own folder, and what may be made in it. What is ready is shared: copy what is to be broken.

    ready:  name → path of things made once: model, tokenizer, train, dev, wav, lm, arpa, config, lmconfig, text
    """

    def __init__(self, path: Path, ready: dict[str, Path]):
        self.path, self.ready, self._closing = path, dict(ready), []

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def write(self, name: str, content: str | bytes = "") -> Path:
        """Write a file."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def folder(self, name: str) -> Path:
        """Make an empty folder."""
        (self.path / name).mkdir(parents=True, exist_ok=True)
        return self.path / name

    def copy(self, what: str, name: str) -> Path:
        """Copy a ready thing."""
        source, path = self.ready[what], self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, path)
        return path

    def link(self, name: str, to: str) -> None:
        """Make a symbolic link."""
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        os.symlink(to, self.path / name)

    def pipe(self, name: str, content: bytes | None = None) -> None:
        """Make a named pipe; a writer gives its content to the first who reads it."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(path)
        if content is not None:
            threading.Thread(target=self._feed, args=(path, content), daemon=True).start()

    @staticmethod
    def _feed(path: Path, content: bytes) -> None:
        try:
            with open(path, "wb", buffering=0) as file:
                file.write(content)
        except OSError:  # nobody has read it to its end
            pass

    def lines(self, what: str = "train") -> list[dict]:
        """The lines of a ready manifest."""
        import gzip

        with gzip.open(self.ready[what], "rt", encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def manifest(self, name: str, change: Callable[[list], object], what: str = "train") -> Path:
        """Write a ready manifest's lines after a change, which may return other lines."""
        import gzip

        lines = self.lines(what)
        lines = change(lines) or lines
        text = "".join(
            (line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines
        )
        return self.write(name, gzip.compress(text.encode()) if name.endswith(".gz") else text)

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a piece of a file of the room; it must be there."""
        text = (self.path / name).read_text(encoding="utf-8")
        assert old in text, (name, old)
        (self.path / name).write_text(text.replace(old, new), encoding="utf-8")

    def mirror(self, answer: Callable[[socket.socket, bytes], None]) -> None:
        """Serve on this machine: `answer` gets the connection and the request of each; `$mirror` is its URL."""
        listening = socket.create_server(("127.0.0.1", 0))
        self.ready["mirror"] = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self._closing.append(listening)
        threading.Thread(target=_serve, args=(listening, answer), daemon=True).start()

    def close(self) -> None:
        """End what was begun."""
        for each in self._closing:
            each.close()


def _serve(listening: socket.socket, answer: Callable) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        threading.Thread(target=_answer, args=(connection, answer), daemon=True).start()


def _answer(connection: socket.socket, answer: Callable) -> None:
    with connection:
        try:
            request = b""
            while b"\r\n\r\n" not in request:
                if not (got := connection.recv(65536)):
                    return
                request += got
            answer(connection, request)
        except OSError:  # the command has gone
            pass


def named(pattern: str, *contents: str) -> Callable:
    """A check: a new file of this pattern holds each of these."""

    def check(room: Room, done: Done) -> None:
        texts = [path.read_text(encoding="utf-8") for path in room.path.rglob(pattern)]
        assert any(all(content in text for content in contents) for text in texts), (
            pattern,
            contents,
            texts,
        )

    return check


def both(*checks: Callable) -> Callable:
    """Several checks."""
    return lambda room, done: [check(room, done) for check in checks]


def any_of(names: Sequence[str]) -> tuple:
    """One of these is to be said."""
    return tuple(names)
