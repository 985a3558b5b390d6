"""Let clients come, go, break off and misbehave for as long as one likes; the server must not notice.

    python -m scripts.soak_serve MODEL recordings/ --minutes 60

Each of some clients does one thing after another, drawn at random: it sends a recording and reads the
text, with an n-best list or without; streams one, if the model can read streams; leaves in the middle of
its upload, of its wait or of its stream; sends something that is no sound, or nothing for a while; reads
no answer. First every recording is sent alone: its text must be the same in the crowd. Printed for each
minute: answers by status, texts that differ, answers that were lost, and the server's memory. The exit
status is 3 if a text differed, an answer was lost or was a 500.
"""

import argparse
import collections
import http.client
import json
import random
import socket
import threading
import time

from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from asr.cli.command import SOME_FAILED, command
from scripts.bench.serve import PATH, post, recordings, served

HEAD = (
    f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=X\r\n"
)
FRAME = 6400  # bytes of a stream: 0.2 s
START = b'--X\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'


class Soak:
    """What has happened so far.

    texts    of the recordings, by number, as they were alone
    spoken   the same of streams; None if the model can't read them
    counts   of what happened
    """

    def __init__(self, port: int, contents: list[bytes]):
        self.port, self.contents = port, contents
        self.texts = [post(port, content)["text"] for content in contents]
        self.spoken = [self.stream(content) for content in contents] if is_live(port) else None
        self.counts = collections.Counter[str]()
        self.stopped = False

    def client(self, seed: int) -> None:
        """Do one thing after another."""
        draw = random.Random(seed)
        doings = [self.ask] * 5 + [
            self.ask_more,
            self.leave,
            self.leave,
            self.send_noise,
            self.idle,
            self.read_nothing,
        ]
        doings += [self.speak] * 3 if self.spoken else []
        while not self.stopped:
            try:
                draw.choice(doings)(draw)
            except (OSError, WebSocketException) as error:
                self.counts[f"lost: {type(error).__name__}"] += 1

    def ask(self, draw: random.Random, **fields: str) -> None:
        """Send a recording, and compare the text."""
        number = draw.randrange(len(self.contents))
        try:
            found = post(self.port, self.contents[number], **fields)
        except AssertionError as error:
            self.counts["500" if '"server_error"' in str(error) else "refused"] += 1
            return
        self.counts["200"] += 1
        self.counts["differs"] += found["text"] != self.texts[number]

    def ask_more(self, draw: random.Random) -> None:
        """Ask for an n-best list, which another search makes."""
        self.ask(draw, response_format="verbose_json", nbest=str(draw.randint(1, 3)))

    def leave(self, draw: random.Random) -> None:
        """Break off in the middle of the upload or of the wait."""
        content = START + draw.choice(self.contents) + b"\r\n--X--\r\n"
        head = f"{HEAD}Content-Length: {len(content)}\r\n\r\n".encode()
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as line:
            line.sendall(head + content[: draw.randrange(2 * len(content))])
            time.sleep(draw.random())
        self.counts["left"] += 1

    def speak(self, draw: random.Random) -> None:
        """Stream a recording and compare the text, or leave in the middle of it."""
        assert self.spoken
        number = draw.randrange(len(self.contents))
        if draw.random() < 0.3:
            self.stream(self.contents[number], draw.random())
            self.counts["left a stream"] += 1
        else:
            self.counts["differs"] += self.stream(self.contents[number]) != self.spoken[number]
            self.counts["streamed"] += 1

    def stream(self, content: bytes, share: float = 1.0) -> list[str]:
        """Stream a share of a recording; return the final texts if it is all of it."""
        samples = content[44:]
        with connect(f"ws://127.0.0.1:{self.port}/v1/stream") as line:
            line.send(json.dumps({"type": "config", "rate": 16_000}))
            for begin in range(0, int(share * len(samples)), FRAME):
                line.send(samples[begin : begin + FRAME])
            if share < 1:
                return []
            line.send('{"type": "end"}')
            events = [json.loads(text) for text in line]
        return [event["text"] for event in events if event["type"] == "final"]

    def read_nothing(self, draw: random.Random) -> None:
        """Ask for the page again and again, and read nothing of it."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as line:
            line.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000)
            time.sleep(draw.random())
        self.counts["read nothing"] += 1

    def send_noise(self, draw: random.Random) -> None:
        """Send what is no sound; the answer is a refusal."""
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        body = START + draw.randbytes(draw.randrange(5000)) + b"\r\n--X--\r\n"
        line.request("POST", PATH, body, {"Content-Type": "multipart/form-data; boundary=X"})
        self.counts[f"noise: {line.getresponse().status}"] += 1

    def idle(self, draw: random.Random) -> None:
        """Connect, and say little."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as line:
            line.sendall(HEAD.encode()[: draw.randrange(50)])
            time.sleep(2 * draw.random())
        self.counts["idle"] += 1

    def is_well(self) -> bool:
        """Whether nothing was lost, mixed up or a 500."""
        bad = [name for name in self.counts if name.startswith(("lost", "noise: 5"))]
        return not (bad or self.counts["differs"] or self.counts["500"] or self.counts["refused"])


def is_live(port: int) -> bool:
    """Whether the model reads streams."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    line.request("GET", "/v1/models")
    return json.load(line.getresponse())["data"][0]["live"]


def memory(process: int) -> float:
    """Resident megabytes of a process, on Linux."""
    with open(f"/proc/{process}/status", encoding="utf-8") as lines:
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


@command
def main(argv):
    """Soak, and print."""
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("model", help="its folder")
    args.add_argument("sources", nargs="+", help="sound files, or folders of them")
    args.add_argument("--minutes", type=float, default=60.0, help="default 60")
    args.add_argument("--clients", type=int, default=12, help="default 12")
    args.add_argument("--threads", type=int, default=1, help="of the server (default 1)")
    args.set_defaults(device="cpu", mode="joint", precision="fp32")
    args = args.parse_args(argv)
    with served(args) as (port, process):
        soak = Soak(port, recordings(args.sources, 1, 20, 12))
        threads = [threading.Thread(target=soak.client, args=(n,)) for n in range(args.clients)]
        for thread in threads:
            thread.start()
        began = time.monotonic()
        while (left := began + 60 * args.minutes - time.monotonic()) > 0:
            time.sleep(min(60, left))
            minute = (time.monotonic() - began) / 60
            print(f"{minute:.1f} min: {memory(process):.0f} MB, {dict(soak.counts)}", flush=True)
        soak.stopped = True
        for thread in threads:
            thread.join()
        print(f"end: {memory(process):.0f} MB, {dict(soak.counts)}")
    return 0 if soak.is_well() else SOME_FAILED


if __name__ == "__main__":
    main()
