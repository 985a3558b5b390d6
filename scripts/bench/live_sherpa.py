"""sherpa-onnx's streams beside ours (live.py capacity): WeNet's U2++ encoder of these sizes, greedy CTC.

WeNet's own encoder, with random weights, is exported to ONNX with what sherpa-onnx reads of it, chunks
and caches. Streams are divided among processes of one thread each, because sherpa-onnx computes them
one after another. `environments.sh sherpa` makes the environment; WeNet's code is a checkout of
github.com/wenet-e2e/wenet.

    python scripts/bench/live_sherpa.py FOLDER STREAMS ROUNDS FRAMES      a worker, in that environment
"""

import json
import subprocess
import sys
import time
import types
import typing
import warnings
from pathlib import Path

MODEL, TOKENS = "model.onnx", "tokens.txt"
FRAME = 640  # samples of a frame of the encoder, 40 ms
RATE = 16000
KERNEL = 15  # of a Conformer's convolution


def chunks(encoder, width: int, vocabulary: int):
    """A module of WeNet's encoder and a CTC layer, which mostly hears nothing, that computes one chunk."""
    import torch
    from torch import nn

    class Chunks(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.ctc = encoder, nn.Linear(width, vocabulary)
            with torch.no_grad():
                self.ctc.bias[0] += 6

        def forward(self, x, offset, required_cache_size, attn_cache, conv_cache, attn_mask):
            H, attention, convolution = self.encoder.forward_chunk(
                x, offset, required_cache_size, attn_cache, conv_cache, attn_mask
            )
            return self.ctc(H).log_softmax(2), attention, convolution

    return Chunks()


def export(environment: Path, wenet: Path, folder: Path, frames: int, left: int, kind: str) -> None:
    """Write the model and its tokens.

    frames   of the encoder, in a chunk
    left     chunks before it that are seen
    kind     of the encoder, conformer or transformer
    raises   UserError if the environment has no onnx, or the checkout no WeNet
    """
    import torch

    from asr.errors import UserError
    from scripts.bench import workload

    sys.path += [str(path) for path in environment.glob("lib/python3*/site-packages")]
    stand_in(wenet)
    try:
        import onnx
        from wenet.models.transformer import encoder
    except ImportError as error:
        raise UserError(
            f"{wenet}, {environment}: no WeNet or no onnx there ({error}); check out WeNet, and run environments.sh "
            "sherpa"
        ) from None
    sizes = {
        "output_size": workload.D_MODEL, "attention_heads": workload.HEADS, "linear_units": workload.FF,
        "num_blocks": workload.ENCODER_LAYERS, "use_dynamic_chunk": True,
    }  # fmt: skip
    if kind == "conformer":
        sizes |= {"cnn_module_kernel": KERNEL, "causal": True, "cnn_module_norm": "layer_norm"}
    torch.manual_seed(0)
    made = {"conformer": encoder.ConformerEncoder, "transformer": encoder.TransformerEncoder}
    made_encoder = made[kind](workload.MELS, **sizes)
    model = chunks(made_encoder, workload.D_MODEL, workload.VOCABULARY)
    write(model.eval(), folder / MODEL, frames, left, kind)
    facts = {
        "model_type": "wenet_ctc", "chunk_size": frames, "left_chunks": left, "head": workload.HEADS,
        "num_blocks": workload.ENCODER_LAYERS, "output_size": workload.D_MODEL,
        "cnn_module_kernel": KERNEL if kind == "conformer" else 1, "right_context": model.encoder.embed.right_context,
        "subsampling_factor": model.encoder.embed.subsampling_rate, "vocab_size": workload.VOCABULARY,
    }  # fmt: skip
    graph = onnx.load(str(folder / MODEL))
    for key, value in facts.items():
        graph.metadata_props.add(key=key, value=f"{value}")
    onnx.save(graph, str(folder / MODEL))
    lines = [f"{'<blk>' if n == 0 else f't{n}'} {n}\n" for n in range(workload.VOCABULARY)]
    (folder / TOKENS).write_text("".join(lines), encoding="utf-8")


def stand_in(wenet: Path) -> None:
    """Make WeNet's encoder importable without what the rest of its package needs."""
    import torch

    sys.modules["wenet"] = package = types.ModuleType("wenet")
    package.__path__ = [str(wenet / "wenet")]
    sys.modules["whisper"] = types.ModuleType("whisper")
    sys.modules["whisper.tokenizer"] = tokenizer = types.ModuleType("whisper.tokenizer")
    tokenizer.LANGUAGES = {}  # type: ignore[attr-defined]
    for name in ("Union", "Optional"):  # which it imports from there
        setattr(torch.nn.modules.conv, name, getattr(typing, name))


def write(model, path: Path, frames: int, left: int, kind: str) -> None:
    """Trace a chunk of 1 stream, and write the graph."""
    import torch

    from scripts.bench import workload

    encoder, kernel = model.encoder, KERNEL if kind == "conformer" else 1
    window = (frames - 1) * encoder.embed.subsampling_rate + encoder.embed.right_context + 1
    seen, layers = frames * left, workload.ENCODER_LAYERS
    example = (
        torch.rand(1, window, workload.MELS),
        torch.tensor([seen]),
        torch.tensor([seen]),
        torch.zeros(layers, workload.HEADS, seen, 2 * workload.D_MODEL // workload.HEADS),
        torch.zeros(layers, 1, workload.D_MODEL, kernel - 1),
        torch.ones(1, 1, seen + frames, dtype=torch.bool),
    )
    inputs = ["x", "offset", "required_cache_size", "attn_cache", "conv_cache", "attn_mask"]
    axes = {
        "x": {0: "N", 1: "T"},
        "attn_cache": {2: "T"},
        "attn_mask": {2: "T"},
        "log_probs": {0: "N"},
    }
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tracing
        torch.onnx.export(
            model, example, str(path), dynamo=False, opset_version=17, dynamic_axes=axes, input_names=inputs,
            output_names=["log_probs", "next_att_cache", "next_conv_cache"],
        )  # fmt: skip


def measure(
    environment: Path, folder: Path, streams: int, rounds: int, frames: int, threads: int
) -> list[float]:
    """Seconds of each round, in which all streams take in a chunk; of the slowest process."""
    from asr.errors import UserError

    shares = [streams // threads + (n < streams % threads) for n in range(threads)]
    workers = [
        subprocess.Popen(
            [environment / "bin/python", __file__, folder, *map(str, (share, rounds, frames))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for share in filter(None, shares)
    ]
    ready = [worker.stdout.readline() for worker in workers]  # type: ignore[union-attr]
    for worker in workers:  # all begin together
        worker.stdin.write("go\n" if all(ready) else "")  # type: ignore[union-attr]
        worker.stdin.close()  # type: ignore[union-attr]
    told = [worker.stdout.read() for worker in workers]  # type: ignore[union-attr]
    if any(worker.wait() for worker in workers):
        raise UserError(f"{environment}: sherpa-onnx has failed; see above")
    return [max(row) for row in zip(*map(json.loads, told), strict=True)]


def work(folder: str, streams: int, rounds: int, frames: int) -> list[float]:
    """Read chunks of noise in all streams; return the seconds of each round."""
    import numpy as np
    import sherpa_onnx

    recognizer = sherpa_onnx.OnlineRecognizer.from_wenet_ctc(
        tokens=f"{folder}/{TOKENS}", model=f"{folder}/{MODEL}", chunk_size=frames, num_threads=1
    )
    rng, times = np.random.default_rng(0), []
    running = [recognizer.create_stream() for _ in range(streams)]
    print("ready", flush=True)
    if not sys.stdin.readline():
        sys.exit(1)
    for _ in range(rounds + 1):  # the first is not counted: it has context to wait for
        level = 10 ** rng.uniform(-4, -1)
        noise = (level * rng.standard_normal(frames * FRAME)).astype(np.float32)
        began = time.perf_counter()
        for stream in running:
            stream.accept_waveform(RATE, noise)  # computes features
        while ready := [stream for stream in running if recognizer.is_ready(stream)]:
            recognizer.decode_streams(ready)
        for stream in running:
            recognizer.get_result(stream)
        times.append(time.perf_counter() - began)
    return times[1:]


if __name__ == "__main__":
    print(json.dumps(work(sys.argv[1], *map(int, sys.argv[2:]))))
