"""Measure asr-serve under load: throughput and latency by the number of clients, and beside a long upload.

    python -m scripts.bench.serve load recordings/ --clients 1 4 16 64
    python -m scripts.bench.serve load recordings/ --mode ctc-greedy --sherpa .bench/sherpa
    python -m scripts.bench.serve upload recordings/ --minutes 12

`load` has each number of clients send one recording after another, of 2 to 20 s, as fast as answers
come, and prints the seconds of audio that are transcribed in a second and the 50th, 95th and 99th
percentile of the seconds until an answer; the same follows for the same server with one recording at
a time in its batch, and with --sherpa for sherpa-onnx's server (serve_sherpa.py). `upload` sends
short recordings with a pause between, alone and beside one of many minutes, and prints the
percentiles of both, and the speed of the upload alone and beside them.

Without --model the server has random weights of the workload's sizes (30.9 M). They end no text by
themselves, so a search there takes as many steps as speech has labels: 3.5 a second. The clients are a
process of their own.
"""

import argparse
import http.client
import json
import logging
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import soundfile
import torch

from asr.audio import load as audio
from asr.cli.command import command
from asr.errors import UserError, shorten
from asr.logging import logger
from asr.transcription.recordings import sounds_of

PATH = "/v1/audio/transcriptions"


def serve(args: argparse.Namespace) -> None:
    """Be the server."""

    import asr
    from asr.serving import server
    from asr.serving.app import create_app
    from asr.serving.engine import Bounds, Engine
    from asr.serving.options import ServingOptions
    from asr.transcription.options import SearchOptions
    from scripts.bench.live import limit_labels, random_recognizer

    logger.setLevel(logging.WARNING)
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    if args.model:
        recognizer = asr.load(args.model, args.device)
    else:
        recognizer = random_recognizer(16, 4).to(args.device)
        recognizer.longest = 20.0
        limit_labels(recognizer)
    seconds = 1e-3 if args.one_at_a_time else None
    options = ServingOptions(max_requests=1000, requests_per_minute=10**6, max_connections=1000)
    bounds = Bounds(1000, 1e9, 16, seconds)
    engine = Engine(
        recognizer, SearchOptions(mode=args.mode), precision=args.precision, bounds=bounds
    )
    engine.warm_up()
    app = create_app({"model": engine}, options)
    server.serve(app, port=args.port)


@contextmanager
def served(args: argparse.Namespace, *more: str) -> Iterator[tuple[int, int]]:
    """Run the server in a process of its own; give its port and the process's number."""
    port = random.randrange(20_000, 60_000)
    words = ["server", "--port", f"{port}", "--threads", f"{args.threads}", "--device", args.device]
    words += ["--mode", args.mode, "--precision", args.precision]
    words += ["--model", args.model] if args.model else []
    run = [sys.executable, "-m", "scripts.bench.serve", *words, *more]
    with subprocess.Popen(run) as process:
        try:
            while not is_up(port):
                assert process.poll() is None, "the server has ended"
                time.sleep(0.2)
            yield port, process.pid
        finally:
            process.terminate()


def is_up(port: int) -> bool:
    """Whether the server answers."""
    try:
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        line.request("GET", "/health")
        return line.getresponse().status == 200
    except OSError:
        return False


def post(port: int, content: bytes, **fields: str) -> dict:
    """Send a recording; return the answer."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=3600)
    head = 'Content-Disposition: form-data; name="{}"'
    parts = "".join(f"--X\r\n{head.format(k)}\r\n\r\n{v}\r\n" for k, v in fields.items())
    body = f'{parts}--X\r\n{head.format("file")}; filename="a.wav"\r\n\r\n'.encode() + content
    kind = {"Content-Type": "multipart/form-data; boundary=X"}
    line.request("POST", PATH, body + b"\r\n--X--\r\n", kind)
    answer = line.getresponse()
    found = answer.read()
    assert answer.status == 200, found[:300]
    return json.loads(found)


def recordings(sources: Sequence[str], least: float, most: float, count: int) -> list[bytes]:
    """Read sound files of some seconds, as wav at 16 kHz, in random order.

    raises   UserError if there are none
    """
    files = [path for source in sources for path in sounds_of(source)]
    random.Random(0).shuffle(files)
    found = []
    for path in files:
        if least <= audio.info(path).duration <= most and len(found) < count:
            found.append(as_wav(audio.load(path, 16_000)))
    if not found:
        raise UserError(f"{shorten(sources)}: no recording of {least:g} to {most:g} s")
    return found


def as_wav(waveform: np.ndarray) -> bytes:
    """Write a wav file."""
    with tempfile.SpooledTemporaryFile() as file:
        soundfile.write(file, waveform, 16_000, "PCM_16", format="WAV")
        file.seek(0)
        return file.read()


def seconds_of(content: bytes) -> float:
    """The duration of one of these wav files."""
    return (len(content) - 44) / 32_000


def drive(
    send: Callable[[bytes], dict], contents: Sequence[bytes], clients: int, seconds: float
) -> dict:
    """Have clients send recordings for some seconds; what has begun by then is awaited, and not counted."""
    latencies, done, end = list[float](), list[float](), time.monotonic() + seconds

    def client(number: int) -> None:
        draw = random.Random(number)
        while (began := time.monotonic()) < end:
            content = draw.choice(contents)
            send(content)
            if (now := time.monotonic()) < end:
                latencies.append(now - began)
                done.append(seconds_of(content))

    threads = [threading.Thread(target=client, args=(n,)) for n in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"speed": round(sum(done) / seconds, 2), **percentiles(latencies), "count": len(done)}


def percentiles(latencies: Sequence[float]) -> dict[str, float]:
    """The 50th, 95th and 99th."""
    if not latencies:
        return {}
    found = np.quantile(latencies, (0.5, 0.95, 0.99))
    return {name: round(float(x), 3) for name, x in zip(("p50", "p95", "p99"), found, strict=True)}


def load(args: argparse.Namespace) -> Iterator[tuple[str, dict]]:
    """Measure throughput and latency by the number of clients."""
    contents = recordings(args.sources, 2, 20, 64)
    for name, more in (("batched", ()), ("one at a time", ("--one-at-a-time",))):
        with served(args, *more) as (port, _):
            drive(partial(post, port), contents, 2, 3)  # warm
            for clients in args.clients:
                figures = drive(partial(post, port), contents, clients, args.seconds)
                yield f"{name}, {clients} clients", figures
    if args.sherpa:
        yield from load_sherpa(args, contents)


def load_sherpa(args: argparse.Namespace, contents: Sequence[bytes]) -> Iterator[tuple[str, dict]]:
    """The same of sherpa-onnx's server, with all threads in one worker and with a worker for each."""
    from scripts.bench import serve_sherpa as sherpa

    environment = Path(args.sherpa)
    with tempfile.TemporaryDirectory() as folder:
        sherpa.export(environment, Path(folder))
        for workers, threads in ((1, args.threads), (args.threads, 1)):
            with sherpa.served(environment, Path(folder), workers, threads) as port:
                send = partial(sherpa.post, port)
                drive(send, contents, 2, 3)
                for clients in args.clients:
                    name = f"sherpa-onnx, {workers} workers of {threads} threads, {clients} clients"
                    yield name, drive(send, contents, clients, args.seconds)


def upload(args: argparse.Namespace) -> Iterator[tuple[str, dict]]:
    """Measure short recordings beside a long one, and the reverse."""
    short = recordings(args.sources, 1.5, 3.5, 20)
    rest, waves = 60 * args.minutes, list[np.ndarray]()
    pool = [audio.load(p, 16_000) for s in args.sources for p in audio.find(s)[:200]]
    while rest > 0:
        waves += [pool[len(waves) // 2 % len(pool)], np.zeros(8_000, np.float32)]
        rest -= (len(waves[-2]) + 8_000) / 16_000
    long = as_wav(np.concatenate(waves))
    with served(args) as (port, _):
        yield "short alone", paced(port, short, lambda: False, 30)
        began = time.monotonic()
        post(port, long)
        alone = time.monotonic() - began
        thread = threading.Thread(target=post, args=(port, long))
        began = time.monotonic()
        thread.start()
        beside = paced(port, short, lambda: not thread.is_alive(), 10_000)
        thread.join()
        together, size = time.monotonic() - began, seconds_of(long)
        yield "short beside the upload", beside
        speeds = {"alone": round(size / alone, 2), "beside": round(size / together, 2)}
        yield "upload, seconds of audio in a second", speeds


def paced(port: int, contents: Sequence[bytes], stopped, most: int) -> dict:
    """Send short recordings one after another, half a second apart."""
    latencies = list[float]()
    while len(latencies) < most and not stopped():
        began = time.monotonic()
        post(port, contents[len(latencies) % len(contents)])
        latencies.append(time.monotonic() - began)
        time.sleep(0.5)
    return percentiles(latencies) | {"count": len(latencies)}


@command
def main(argv):
    """Measure, and print."""
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("what", choices=("load", "upload", "server"))
    args.add_argument("sources", nargs="*", help="folders of recordings")
    args.add_argument("--model", help="its folder (default: random weights of 30.9 M)")
    args.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16, 64])
    args.add_argument("--seconds", type=float, default=20.0, help="of each number (default 20)")
    args.add_argument("--minutes", type=float, default=60.0, help="of the upload (default 60)")
    args.add_argument("--threads", type=int, default=os.cpu_count())
    args.add_argument("--device", default="cpu")
    args.add_argument("--mode", default="joint", help="of the search (default joint)")
    args.add_argument("--precision", default="fp32", choices=("fp32", "bf16"))
    args.add_argument("--sherpa", metavar="FOLDER", help="environment of sherpa-onnx, for load")
    args.add_argument("--port", type=int, help=argparse.SUPPRESS)
    args.add_argument("--one-at-a-time", action="store_true", help=argparse.SUPPRESS)
    args.add_argument("--json", metavar="FILE", help="write the figures there")
    args = args.parse_args(argv)
    if args.what == "server":
        return serve(args)
    figures = {}
    for name, row in (load if args.what == "load" else upload)(args):
        figures[name] = row
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return None


if __name__ == "__main__":
    main()
