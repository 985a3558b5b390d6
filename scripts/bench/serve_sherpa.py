"""sherpa-onnx's WebSocket server beside asr-serve (serve.py): the same sizes, random weights, greedy CTC search.

Our encoder and CTC are exported to ONNX as a model of WeNet's kind, the plainest that the server
reads: features in, log posteriors out. The server, a program in C++, computes features, runs onnxruntime
and searches. `environments.sh sherpa` makes its environment.
"""

import json
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from websockets.sync.client import connect

from asr.errors import UserError
from scripts.bench import ours, workload

SERVER = "sherpa-onnx-offline-websocket-server"
MODEL, TOKENS = "model.onnx", "tokens.txt"
PORTION = 1 << 16  # bytes of a message


class CTC(nn.Module):
    """The workload's encoder and CTC, which mostly hears nothing."""

    def __init__(self):
        super().__init__()
        self.model = ours.build()
        with torch.no_grad():
            self.model.ctc_out.bias[0] += 6

    def forward(self, X: Tensor, X_lens: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T, F), (B,) → log posteriors (B, T', V), and lengths (B,)"""
        encoded = self.model.encoder(X, X_lens)
        return self.model.ctc_log_probs(encoded.H), encoded.H_lens


def export(environment: Path, folder: Path) -> None:
    """Write the model and its tokens.

    raises   UserError if the environment has no onnx
    """
    sys.path += [str(path) for path in environment.glob("lib/python3*/site-packages")]
    try:
        import onnx
    except ImportError:
        raise UserError(f"{environment}: no onnx there; run environments.sh sherpa") from None
    torch.manual_seed(0)
    model = folder / MODEL
    example = torch.zeros(2, 400, workload.MELS), torch.tensor([400, 300])
    axes = {
        "x": {0: "B", 1: "T"},
        "x_lens": {0: "B"},
        "log_probs": {0: "B", 1: "T"},
        "lens": {0: "B"},
    }
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tracing
        torch.onnx.export(
            CTC().eval(), example, str(model), dynamo=False, opset_version=17, dynamic_axes=axes,
            input_names=["x", "x_lens"], output_names=["log_probs", "lens"],
        )  # fmt: skip
    made = onnx.load(str(model))
    for key, value in {"vocab_size": workload.VOCABULARY, "subsampling_factor": 4}.items():
        made.metadata_props.add(key=key, value=f"{value}")
    onnx.save(made, str(model))
    lines = [f"{'<blk>' if n == 0 else f't{n}'} {n}\n" for n in range(workload.VOCABULARY)]
    (folder / TOKENS).write_text("".join(lines), encoding="utf-8")


@contextmanager
def served(environment: Path, folder: Path, workers: int, threads: int) -> Iterator[int]:
    """Run the server of what `export` has written, with a number of workers, and of threads of each; give its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {
        "port": port, "tokens": folder / TOKENS, "wenet-ctc-model": folder / MODEL, "max-batch-size": 16,
        "num-work-threads": workers, "num-threads": threads, "log-file": folder / "log.txt",
    }  # fmt: skip
    command = [
        environment / "bin" / SERVER,
        *(f"--{name}={value}" for name, value in options.items()),
    ]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as process:
        try:
            while not is_up(port):
                assert process.poll() is None, f"{SERVER} has ended: {folder}/log.txt"
                time.sleep(0.2)
            yield port
        finally:
            process.terminate()


def is_up(port: int) -> bool:
    """Whether the server accepts connections."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def post(port: int, content: bytes) -> dict:
    """Send a wav file of 16-bit samples at 16 kHz; return the answer."""
    samples = np.frombuffer(content[44:], "<i2").astype("<f4") / 32768
    head = np.array([workload.SAMPLE_RATE, samples.nbytes], "<i4")
    message = head.tobytes() + samples.tobytes()
    with connect(f"ws://127.0.0.1:{port}", max_size=None, compression=None) as line:
        for start in range(0, len(message), PORTION):
            line.send(message[start : start + PORTION])
        answer = json.loads(line.recv())
        line.send("Done")
    return answer
