"""Bytes to make bad files of."""

import gzip
import io
import json
import random
import socket
import struct
import tarfile
import threading
from contextlib import suppress
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer

import numpy as np
import soundfile

RATE = 8000


def tone(seconds: float) -> np.ndarray:
    """A faint tone, (samples,) float32."""
    t = np.arange(round(seconds * RATE)) / RATE
    return (0.3 * np.sin(2 * np.pi * 440 * t)).astype(np.float32)


def wav(samples: int = 4000, rate: int = RATE, channels: int = 1) -> bytes:
    """A 16-bit WAV of a tone in one channel, whose header may lie of the rate and the channels."""
    data = (tone(samples / RATE) * 32767).astype("<i2").tobytes()
    head = struct.pack("<4sI8sI", b"RIFF", 36 + len(data), b"WAVEfmt ", 16)
    form = struct.pack("<HHIIHH", 1, channels, rate, rate * 2, 2, 16)
    return head + form + struct.pack("<4sI", b"data", len(data)) + data


def damaged_flac() -> bytes:
    """A tone in noise, with 400 bytes overwritten in the middle."""
    file, noise = io.BytesIO(), np.random.default_rng(0).standard_normal(2 * RATE)
    soundfile.write(file, tone(2.0) + 0.05 * noise, RATE, format="FLAC")
    data = file.getvalue()
    middle = len(data) // 2
    return data[:middle] + b"\xa5" * 400 + data[middle + 400 :]


def tar(*members: tuple, kind: str = "w:gz") -> bytes:
    """An archive of (name, content, facts of the member)."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=kind) as archive:
        for name, content, *facts in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            for key, value in dict(*facts).items():
                setattr(member, key, value)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


SPHERE = b"""NIST_1A
   1024
channel_count -i 1
sample_rate -i 8000
sample_n_bytes -i 2
sample_count -i 1000000000000
sample_coding -s3 pcm
end_head
"""
TABLE = "id\tpath\ttext\tspeaker\na\ta.wav\tLOW\ts\n{}b\tb.wav\tHIGH\ts\n"
SPARSE = {  # a file that says it is 2^62 bytes long
    "GNU.sparse.major": "1",
    "GNU.sparse.minor": "0",
    "GNU.sparse.realsize": str(1 << 62),
    "GNU.sparse.name": "an4/x",
}
NINES = b'{"a":{"dtype":"F32","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,4]}}'
ALIASES = "".join(
    f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
MADE = {  # what the tables name as `!made NAME`
    "sound": wav(),
    "sound without samples": wav(0),
    "sound of ten samples": wav(10),
    "start of a sound": wav()[:20],
    "table": TABLE.format(""),  # of two sounds
    "table with a bad sound": TABLE.format("x\tbad.wav\tMID\ts\n"),
    "table in UTF-16": TABLE.format("").encode("utf-16"),
    "sound of no channels": wav(channels=0),
    "sound of no rate": wav(rate=0),
    "sound of 1 Hz": wav(rate=1),
    "sound in gzip": gzip.compress(wav(), mtime=0),
    "sound cut short": wav()[:3000],
    "damaged FLAC": damaged_flac(),
    "M4A": b"\0\0\0\x18ftypM4A " + bytes(64),
    "SPHERE that promises too much": SPHERE.ljust(1024) + wav()[44:],
    "bytes of no meaning": b"\0\1\2\3" * 50,
    "text cut in gzip": gzip.compress(random.Random(0).randbytes(3000).hex().encode())[:-200],
    "deep nesting": "[" * 200_000,
    "bomb of aliases": f"a: &a [x,x,x,x,x,x,x,x,x]\n{ALIASES}",
    "header of deep nesting": struct.pack("<Q", 200_000) + b"[" * 200_000,
    "header with 5000 digits": struct.pack("<Q", len(NINES)) + NINES + bytes(4),
    "ARPA with a count of 5000 digits": f"\\data\\\nngram 1={'9' * 5000}\n\n\\1-grams:\n",
    "gigabyte": gzip.compress(b" " * (1 << 25), 1) * 32,  # in one line
    "4 MB that begin as gzip does": b"\x1f\x8b" * 2_000_000,
    "answer with a long header": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    "answer with many headers": b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 1000 + b"\r\n",
    "archive of a file that is a folder": tar(("an4/wav", b"x"), ("an4/wav/a.sph", b"x")),
    "archive of a name in Latin-1": tar(("an4/\udcff\udcfe.sph", b"x")),
    "archive of 2^62 bytes": tar(("an4/x", b"0\n".ljust(512, b"\0"), {"pax_headers": SPARSE})),
    "archive of a size of 40 digits": tar(("an4/x", b"", {"pax_headers": {"size": "9" * 40}})),
    "archive without gzip": tar(("an4/x", b"x"), kind="w"),
    "archive with garbage behind": tar(("an4/x", b"x")) + b"trailing garbage",
    "archive of nothing": gzip.compress(bytes(10240)),
    "archive of a closed folder": tar(
        ("an4", b"", {"type": tarfile.DIRTYPE, "mode": 0}), ("an4/etc/a", b"x")
    ),
}


def rewritten(change):
    """Change the header and the bytes of the weights of m."""

    def rewrite(folder: Path) -> None:
        path = folder / "m/model.safetensors"
        data = path.read_bytes()
        end = 8 + int.from_bytes(data[:8], "little")
        header, tensors = change(data[8:end].decode().strip(), data[end:])
        path.write_bytes(struct.pack("<Q", len(header)) + header.encode() + tensors)

    return rewrite


def strange(size: int):
    """Another tensor of a number of bytes."""

    def change(header: str, tensors: bytes) -> tuple[str, bytes]:
        more = {"dtype": "F32", "shape": [1], "data_offsets": [len(tensors), len(tensors) + size]}
        return f'{header[:-1]}, "stranger": {json.dumps(more)}}}', tensors + bytes(size)

    return change


def twice(header: str, tensors: bytes) -> tuple[str, bytes]:
    name, facts = list(json.loads(header).items())[-1]
    return f'{header[:-1]}, "{name}": {json.dumps(facts)}}}', tensors


def half_the_bits(header: str, tensors: bytes) -> tuple[str, bytes]:
    """A matrix of twice the columns, in the same bytes."""
    facts = json.loads(header)
    matrix = next(x for x in facts.values() if x.get("dtype") == "F32" and len(x["shape"]) == 2)
    matrix.update(dtype="BF16", shape=[matrix["shape"][0], 2 * matrix["shape"][1]])
    return json.dumps(facts), tensors


def socket_x(folder: Path) -> None:
    """A socket, x."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(folder / "x"))


GIVEN = {
    "weights_with_a_strange_tensor": rewritten(strange(4)),
    "weights_with_an_empty_tensor": rewritten(strange(0)),
    "weights_with_a_tensor_twice": rewritten(twice),
    "weights_of_integers": rewritten(lambda header, x: (header.replace("F32", "I32"), x)),
    "weights_of_half_the_bits": rewritten(half_the_bits),
    "socket_x": socket_x,
}


def answer(what) -> bytes:
    """What a mirror sends: these bytes, or {status, headers, length: Content-Length, body}, whatever they are."""
    if isinstance(what, bytes):
        return what
    body = what.get("body", b"")
    facts = {"Connection": "close", "Content-Length": what.get("length", len(body))}
    head = [f"{name}: {value}\r\n" for name, value in (facts | what.get("headers", {})).items()]
    return f"HTTP/1.1 {what.get('status', '200 OK')}\r\n{''.join(head)}\r\n".encode() + body


class Mirror(ThreadingTCPServer):
    """A server on this machine with one answer for all; or it is "silent", or "endless" without a length."""

    def __init__(self, what):
        super().__init__(("127.0.0.1", 0), Answering)
        self.what, self.daemon_threads = what, True
        self.url = "http://{}:{}".format(*self.server_address)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class Answering(StreamRequestHandler):
    def handle(self):
        while self.rfile.readline().strip():
            pass
        what = self.server.what
        with suppress(OSError):  # the command has gone
            if what == "silent":
                self.connection.recv(1)
                return
            self.connection.sendall(answer({"length": ""} if what == "endless" else what))
            while what == "endless":
                self.connection.sendall(b"\x1f\x8b\x08\0" * 65536)
