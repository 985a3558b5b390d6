"""Measure a GPU in one command: is it right, how fast are training and decoding, and where does the time go?

    python -m scripts.bench.gpu --out exp/gpu            # again, until nothing is left
    python -m scripts.bench.gpu --out exp/gpu --toy      # tiny models on the CPU: does the benchmark work?

The work is a list of pieces. Each is a process of its own, whose result is a file in --out; a piece
that has one is passed over. No new piece begins after --minutes. OUT/table.md shows all results.
Nothing but this package is needed: models have random weights, recordings are noise, and no corpus
or peer is read. Shares of the peak count 3 times the forward pass's operations, and take dense bf16
(989 TFLOP/s, H100 and H200) unless --peak says otherwise.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from asr.cli.command import command
from asr.config import load
from asr.data.batches import collate
from asr.device import autocast, compute_exactly, tuned
from asr.errors import UserError
from asr.files import make_folder, write_text
from asr.models.recognizer import Recognizer
from asr.tasks.recognizer import RecognizerExperiment, RecognizerTask
from asr.training.distributed.group import Group
from asr.training.distributed.replicas import WholeModel
from asr.training.layers import compile_layers
from asr.training.trainer import MicroBatch, Trainer
from asr.transcription.options import SearchOptions
from asr.transcription.searcher import Searcher
from scripts.bench.report import ROOT, circumstances

PEAK = 989.0  # TFLOP/s
SECONDS, LABELS = 15.0, 50  # of an utterance; 3.3 labels a second are those of LibriSpeech
VOCABULARY = 5000
WARM, STEPS = 3, 10  # steps before those that are measured
SIZES = "d_model: 64, layers: 2, heads: 4, ff: 128, dropout: 0.0"
KINDS = {
    "transformer": "kind: transformer",
    "conformer": "kind: conformer, kernel: 7",
    "rotary": "kind: conformer, kernel: 7, positions: rotary",
    "e_branchformer": "kind: e_branchformer, kernel: 7, merge_kernel: 7, cgmlp: 128",
}
TRAININGS = {  # configuration → batch seconds
    "librispeech100-conformer": (210, 840, 1680),
    "librispeech960-conformer": (450, 900),
    "librispeech960-e_branchformer": (450,),
}
DECODINGS = {"librispeech960-conformer": (120, 2000)}
MODES = ("joint", "attention", "ctc", "rescoring", "attention-greedy", "ctc-greedy")


def pieces(toy: bool) -> dict[str, Callable[[argparse.Namespace], list[dict]]]:
    """All pieces by name, in order: what matters most comes first."""
    made: dict[str, Callable] = {f"check-{kind}": partial(check, kind) for kind in KINDS}
    trainings = {"librispeech100-conformer": (30,)} if toy else TRAININGS
    decodings = {"librispeech960-conformer": (30,)} if toy else DECODINGS
    for compiled in (False,) if toy else (False, True):
        for name, sizes in trainings.items():
            for seconds in sizes:
                what = f"train-{name}-{seconds}" + "-compiled" * compiled
                made[what] = partial(train, name, seconds, compiled)
    for name, sizes in decodings.items():
        for seconds in sizes:
            for precision in ("fp32", "bf16"):
                made[f"decode-{name}-{seconds}-{precision}"] = partial(
                    decode, name, seconds, precision
                )
        made[f"profile-{name}"] = partial(profile, name, sizes[0])
    return made


def experiment(name: str, toy: bool, *more: str) -> RecognizerExperiment:
    """Read a published configuration; toy: with small sizes, for a CPU."""
    small = [
        f"model.{side}.{key}={value}"
        for side, sizes in {
            "encoder": {"d_model": 16, "layers": 1, "heads": 2, "ff": 32, "channels": 4},
            "decoder": {"d_model": 16, "layers": 1, "heads": 2, "ff": 32},
        }.items()
        for key, value in sizes.items()
    ]
    return load(
        RecognizerExperiment, ROOT / "conf" / f"{name}.yaml", [*(small if toy else ()), *more]
    )


def recognizer(settings: RecognizerExperiment, device: str, vocabulary: int) -> Recognizer:
    """Make a model with random weights that never ends a hypothesis by itself."""
    torch.manual_seed(0)
    model = Recognizer(settings.features, settings.model, SimpleNamespace(vocabulary=vocabulary))
    return model.to(device)


def batch(seconds: float, vocabulary: int, like: float = SECONDS):
    """Noise of `seconds` in utterances of like length, with random labels."""
    rng, count = np.random.default_rng(0), max(1, round(seconds / like))
    lens = [round(16000 * like * (1 - 0.1 * n / count)) for n in range(count)]
    waveforms = [0.1 * rng.standard_normal(n).astype(np.float32) for n in lens]
    labels = [
        rng.integers(1, vocabulary - 1, round(LABELS * like / SECONDS)).tolist() for _ in lens
    ]
    ids, seeds = [f"u{n}" for n in range(count)], torch.arange(count)
    return collate(ids, waveforms, labels, seeds, (5120, 4)), sum(lens) / 16000


def check(kind: str, args: argparse.Namespace) -> list[dict]:
    """Compare losses, gradients and texts with the CPU's, in fp32."""
    compute_exactly()
    settings = experiment(
        "librispeech100-conformer",
        False,
        f"model.encoder={{{KINDS[kind]}, {SIZES}}}",
        f"model.decoder={{kind: transformer, {SIZES}}}",
        "features.specaugment=null",
    )
    made, texts = {}, {}
    data, _ = batch(1.0, 60, 0.5) if args.toy else batch(12.0, 60, 3.0)
    for device in ("cpu", args.device):
        model = recognizer(settings, device, 60).train()
        part = data.to(torch.device(device))
        loss = model.loss(part.waveforms, part.wave_lens, part.Y, part.Y_lens)
        loss.total.backward()
        made[device] = [
            loss.total.detach().cpu(),
            *(p.grad.cpu() for p in model.parameters() if p.grad is not None),
        ]
        model.eval()
        with torch.no_grad():
            H, H_lens = model.encode(part.waveforms, part.wave_lens)
        texts[device] = {
            mode: [
                nbest[0].tokens
                for nbest in Searcher(model, SearchOptions(mode=mode)).search(H, H_lens)
            ]
            for mode in MODES
        }
    (loss, *gradients), (other, *others) = made["cpu"], made[args.device]
    worst = max(
        float((a - b).norm() / a.norm().clamp(min=1e-12))
        for a, b in zip(gradients, others, strict=True)
    )
    same = [mode for mode in MODES if texts["cpu"][mode] == texts[args.device][mode]]
    return [{
        "encoder": kind, "loss off by": float(abs(loss - other) / loss), "gradients off by": worst,
        "same texts": f"{len(same)} of {len(MODES)} searches", "right": worst < 1e-3 and len(same) == len(MODES),
    }]  # fmt: skip


def trainer(name: str, seconds: float, compiled: bool, args: argparse.Namespace):
    """A trainer of a published configuration, its micro-batch, the seconds in it and the forward pass's operations."""
    vocabulary = 100 if args.toy else VOCABULARY
    settings = experiment(name, args.toy, f"data.batch_seconds={seconds}")
    model, (data, audio) = (
        recognizer(settings, args.device, vocabulary).train(),
        batch(seconds, vocabulary),
    )
    part = data.to(torch.device(args.device))
    with (
        FlopCounterMode(display=False) as counter,
        torch.no_grad(),
        autocast(torch.device(args.device), "bf16"),
    ):
        model.loss(part.waveforms, part.wave_lens, part.Y, part.Y_lens)
    if compiled:
        compile_layers(model)
    replicas = WholeModel(model, settings.optimizer.build, Group(), True, compiled)
    task = RecognizerTask(model, settings.data, None, None, 1)
    made = Trainer(task, replicas, settings.schedule, settings.training, 1)
    return made, MicroBatch((0,), data), audio, counter.get_total_flops()


def train(name: str, seconds: float, compiled: bool, args: argparse.Namespace) -> list[dict]:
    """Time training steps of one micro-batch in bf16."""
    made, data, audio, flops = trainer(name, seconds, compiled, args)
    with tuned(torch.device(args.device)):
        for n in range(1 if args.toy else WARM):
            made.train_step([data], n + 1)
        forget_peak(args)
        times = [
            timed(args, lambda n=n: made.train_step([data], n + WARM + 1))
            for n in range(2 if args.toy else STEPS)
        ]
    step = statistics.median(times)
    return [{
        "configuration": name, "batch s": seconds, "compiled": compiled, "step ms": 1000 * step,
        "audio s per s": audio / step, "TFLOP/s": 3 * flops / step / 1e12,
        "share of peak": 3 * flops / step / 1e12 / args.peak, "peak GB": peak(args),
    }]  # fmt: skip


def decode(name: str, seconds: float, precision: str, args: argparse.Namespace) -> list[dict]:
    """Time the encoder and the joint beam search of a batch, as many labels as speech has."""
    vocabulary = 100 if args.toy else VOCABULARY
    model = recognizer(experiment(name, args.toy), args.device, vocabulary).eval()
    data, audio = batch(seconds, vocabulary)
    part = data.to(torch.device(args.device))
    searcher, labels = Searcher(model, SearchOptions(), precision), part.Y_lens

    @torch.no_grad()
    def encode() -> tuple[Tensor, Tensor]:
        with autocast(torch.device(args.device), precision):
            return model.encode(part.waveforms, part.wave_lens)

    @torch.no_grad()
    def search(H: Tensor, H_lens: Tensor) -> None:
        beam = searcher.beam(1)
        beam.add(H.to(searcher.dtype), H_lens, labels)
        while len(beam):
            beam.step()
        beam.take()

    for _ in range(1 if args.toy else 2):
        search(*encode())
    forget_peak(args)
    H, H_lens = encode()
    repeats = range(1 if args.toy else 3)
    encoding = statistics.median(timed(args, encode) for _ in repeats)
    searching = statistics.median(timed(args, lambda: search(H, H_lens)) for _ in repeats)
    return [{
        "configuration": name, "batch s": seconds, "precision": precision, "encoder ms": 1000 * encoding,
        "search ms": 1000 * searching, "RTF": (encoding + searching) / audio, "peak GB": peak(args),
    }]  # fmt: skip


def profile(name: str, seconds: float, args: argparse.Namespace) -> list[dict]:
    """Find the kernels that take most of a training step."""
    made, data, _, _ = trainer(name, seconds, False, args)
    made.train_step([data], 1)
    on_gpu = args.device != "cpu"
    kinds = [
        torch.profiler.ProfilerActivity.CUDA if on_gpu else torch.profiler.ProfilerActivity.CPU
    ]
    with torch.profiler.profile(activities=kinds) as found:
        made.train_step([data], 2)
    spent = [
        (e.key, e.self_device_time_total if on_gpu else e.self_cpu_time_total, e.count)
        for e in found.key_averages()
    ]
    total = max(1e-9, sum(time for _, time, _ in spent))
    return [
        {"kernel": key[:90], "ms": time / 1000, "share": time / total, "calls": count}
        for key, time, count in sorted(spent, key=lambda one: -one[1])[:15]
    ]


def timed(args: argparse.Namespace, work: Callable[[], object]) -> float:
    """Seconds until the device has done it."""
    wait(args)
    before = time.perf_counter()
    work()
    wait(args)
    return time.perf_counter() - before


def wait(args: argparse.Namespace) -> None:
    """Wait for a GPU."""
    if args.device != "cpu":
        torch.cuda.synchronize()


def forget_peak(args: argparse.Namespace) -> None:
    """Count the peak of memory from here."""
    if args.device != "cpu":
        torch.cuda.reset_peak_memory_stats()


def peak(args: argparse.Namespace) -> float | None:
    """Peak of a GPU's memory, in GB."""
    return torch.cuda.max_memory_allocated() / 1e9 if args.device != "cpu" else None


def table(rows: Sequence[dict]) -> str:
    """Lay out rows of like keys in Markdown."""

    def cell(value: object) -> str:
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    lines = [
        list(rows[0]),
        ["---"] * len(rows[0]),
        *([cell(v) for v in row.values()] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def summary(out: Path, names: Sequence[str], device: str) -> str:
    """Lay out all results, and name what isn't measured yet."""
    results = {
        name: json.loads((out / f"{name}.json").read_text())
        for name in names
        if (out / f"{name}.json").exists()
    }
    where = circumstances(device)
    text = f"{where['gpu'] or where['cpu']}, torch {where['torch']}, commit {where['commit']}, {where['date']}\n"
    for kind in ("check", "train", "decode", "profile"):
        rows = [
            row
            for name, result in results.items()
            if name.startswith(kind)
            for row in result.get("rows", ())
        ]
        text += f"\n## {kind}\n\n{table(rows)}" if rows else ""
    failed = [
        f"- {name}: {result['error']}" for name, result in results.items() if "error" in result
    ]
    left = [name for name in names if name not in results]
    text += "\n## failed\n\n" + "\n".join(failed) + "\n" if failed else ""
    return text + (f"\nNot measured yet: {', '.join(left)}\n" if left else "")


def run(args: argparse.Namespace, out: Path) -> int:
    """Run the pieces that are left, each in a process of its own; return how many have failed."""
    names, started, failed, done = list(pieces(args.toy)), time.monotonic(), 0, None
    for name in names:
        path = out / f"{name}.json"
        if path.exists():
            continue
        if done and time.monotonic() - started > 60 * args.minutes:
            break
        own = [
            sys.executable,
            "-m",
            "scripts.bench.gpu",
            "--out",
            str(out),
            "--device",
            args.device,
        ]
        own += ["--peak", str(args.peak), "--piece", name, *["--toy"] * args.toy]
        done = subprocess.run(own, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
        if done.returncode:
            failed += 1
            reason = done.stderr.strip().splitlines()[-1:] or ["no message"]
            write_text(path, json.dumps({"error": reason[0]}))
        print(f"{name}: {'failed' if done.returncode else 'done'}", file=sys.stderr, flush=True)
        write_text(out / "table.md", summary(out, names, args.device))
    print((out / "table.md").read_text())
    return failed


@command
def main(argv):
    """Measure what is left, and print the table."""
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--out", required=True, metavar="DIR")
    args.add_argument("--minutes", type=float, default=8.0, help="begin no piece later (default 8)")
    args.add_argument("--device", choices=["cpu", "cuda"], help="default: cuda, with --toy cpu")
    args.add_argument("--peak", type=float, default=PEAK, help=f"TFLOP/s (default {PEAK:g})")
    args.add_argument("--toy", action="store_true", help="tiny sizes")
    args.add_argument("--piece", help=argparse.SUPPRESS)
    args = args.parse_args(argv)
    args.device = args.device or ("cpu" if args.toy else "cuda")
    if args.device == "cuda" and not torch.cuda.is_available():
        raise UserError("no GPU works here; --toy tries the benchmark on the CPU")
    out = make_folder(args.out).resolve()
    if args.piece:
        rows = pieces(args.toy)[args.piece](args)
        write_text(out / f"{args.piece}.json", json.dumps({"rows": rows}))
        return 0
    return 1 if run(args, out) else 0


if __name__ == "__main__":
    main()
