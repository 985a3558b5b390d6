"""Bytes to make bad files of."""

import gzip
import io
import struct
import tarfile

import numpy as np
import soundfile

RATE = 8000


def tone(seconds: float = 0.5, rate: int = RATE) -> np.ndarray:
    """A faint tone, (samples,) float32."""
    return (0.3 * np.sin(2 * np.pi * 440 * np.arange(round(seconds * rate)) / rate)).astype(
        np.float32
    )


def wav(
    samples: int = 4000, rate: int = RATE, channels: int = 1, claimed: int | None = None
) -> bytes:
    """A 16-bit WAV of a tone, whose header may lie.

    claimed   bytes that the data chunk says it has
    """
    data = (tone(samples / RATE) * 32767).astype("<i2")[:samples].repeat(max(1, channels)).tobytes()
    size = len(data) if claimed is None else claimed
    form = struct.pack("<HHIIHH", 1, channels, rate, rate * 2 * channels, 2 * channels, 16)
    head = (
        b"RIFF"
        + struct.pack("<I", (36 + len(data)) & 0xFFFFFFFF)
        + b"WAVEfmt "
        + struct.pack("<I", 16)
        + form
    )
    return head + b"data" + struct.pack("<I", size & 0xFFFFFFFF) + data


def encoded(
    format: str, subtype: str | None = None, seconds: float = 2.0, rate: int = RATE
) -> bytes:
    """A tone in noise in another format."""
    file, rng = io.BytesIO(), np.random.default_rng(0)
    signal = tone(seconds, rate) + 0.05 * rng.standard_normal(round(seconds * rate)).astype(
        np.float32
    )
    soundfile.write(file, signal, rate, format=format, subtype=subtype)
    return file.getvalue()


def damaged(data: bytes, at: float = 0.5, length: int = 400) -> bytes:
    """Overwrite some bytes, from a share of the file on."""
    start = int(at * len(data))
    return data[:start] + b"\xa5" * length + data[start + length :]


def tar_gz(*members: tuple, kind: str = "w:gz") -> bytes:
    """An archive of (name, content) or (TarInfo, content) pairs."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=kind) as tar:
        for name, content in members:
            member = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            if member is not name:
                member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


def http(body: bytes = b"", status: str = "200 OK", length: str | None = "true", **headers: str):
    """An answer: status, headers and body, whatever they are; `length`: Content-Length, "true" for the body's."""
    head = [f"HTTP/1.1 {status}", "Connection: close"]
    head += [f"Content-Length: {len(body) if length == 'true' else length}"] * (length is not None)
    head += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]

    def answer(connection, request):
        connection.sendall("\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body)

    return answer


def table(*rows: str, head: str = "id\tpath\ttext\tspeaker") -> str:
    """A table of recordings."""
    return "".join(f"{row}\n" for row in (head, *rows))


def format_chunk(channels: int, rate: int) -> bytes:
    """Make a WAV whose format says so of a tone in one channel at 8000 Hz."""
    new = struct.pack("<HHI", 1, channels, rate)
    return wav().replace(struct.pack("<HHI", 1, 1, 8000), new)


SPHERE = b"""NIST_1A
   1024
channel_count -i 1
sample_rate -i 8000
sample_n_bytes -i 2
sample_count -i 1000000000000
sample_coding -s3 pcm
end_head
"""
MADE = {  # what the tables name as `!made NAME`
    "sound": wav(),
    "sound without samples": wav(0),
    "sound of ten samples": wav(10),
    "start of a sound": wav()[:20],
    "table": table("a\ta.wav\tLOW\ts", "b\tb.wav\tHIGH\ts"),  # of two sounds
    "table with a bad sound": table("a\ta.wav\tLOW\ts", "x\tbad.wav\tMID\ts", "b\tb.wav\tHIGH\ts"),
    "sound of no channels": format_chunk(0, 8000),
    "sound of no rate": format_chunk(1, 0),
    "sound of 1 Hz": wav(rate=1),
    "sound in gzip": gzip.compress(wav(), mtime=0),
    "sound cut short": wav()[:3000],
    "damaged FLAC": damaged(encoded("FLAC")),
    "SPHERE that promises too much": SPHERE.ljust(1024) + wav()[44:],
    "deep nesting": "[" * 200_000,
    "bomb of aliases": "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(
        f"{c}: &{c} [{','.join([f'*{b}'] * 9)}]\n"
        for b, c in zip("abcdefgh", "bcdefghi", strict=True)
    ),
}
