"""Decode a folder of many small files, and a manifest of the same: seconds, files per second, and memory.

    python -m scripts.bench.many_files [--files 20000] [--repeats 3]

The files are hard links of one of 0.3 s, the model is tiny, the search greedy: what is measured is
what each file costs beside its search. Folder and manifest take turns, each in a process of its own.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))  # the tiny model's corpus

SECONDS = 0.3


def prepare(root: Path, files: int) -> None:
    """Make a model of one epoch, many/*.wav, and a manifest of them: many.jsonl.gz."""
    import numpy as np
    import soundfile
    from runs import make_root, train
    from tones import RATE, waveform

    from asr.data import manifest
    from asr.data.manifest import Utterance

    make_root(root)
    train(root, root / "model", "training.epochs=1")
    wave = waveform(["LOW"], np.random.default_rng(1))[: round(SECONDS * RATE)]
    soundfile.write(root / "one.wav", wave, RATE)
    (root / "many").mkdir()
    names = [f"many/{n:06d}.wav" for n in range(files)]
    for name in names:
        os.link(root / "one.wav", root / name)
    lines = (Utterance(n, n, RATE, len(wave), 1, 0.0, len(wave) / RATE, "LOW") for n in names)
    manifest.write(root / "many.jsonl.gz", lines)


def measure(root: Path, *given: str) -> tuple[float, float, float]:
    """Decode once: seconds, those of the processor, and megabytes of the process at its largest."""
    command = [sys.executable, "-m", "asr.cli.decode", "-q", "--model", "model", "--device", "cpu"]
    begun = time.perf_counter()
    outputs = ["--mode", "ctc-greedy", "--out", f"{given[-1]}.txt"]
    process = subprocess.Popen([*command, *outputs, *given], cwd=root)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"many_files: asr-decode {' '.join(given)} failed")
    for path in (root / f"{given[-1]}.txt", root / f".{given[-1]}.txt.stamp.json"):
        path.unlink()
    seconds = time.perf_counter() - begun
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    """Measure both in turn, and print a table of medians."""
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--files", type=int, default=20_000, help="default: 20000")
    args.add_argument("--repeats", type=int, default=3, help="default: 3")
    args = args.parse_args()
    ways = {"folder": ["many"], "manifest": ["--manifest", "many.jsonl.gz"]}
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), args.files)
        found: dict[str, list] = {name: [] for name in ways}
        for _ in range(args.repeats):
            for name, given in ways.items():
                found[name].append(measure(Path(folder), *given))
    print(
        f"| {args.files:,} files | s | s of the processor | files/s | MB |\n|---|---|---|---|---|"
    )
    for name, samples in found.items():
        seconds, own, memory = (statistics.median(each) for each in zip(*samples, strict=True))
        print(f"| {name} | {seconds:.1f} | {own:.1f} | {args.files / own:.0f} | {memory:.0f} |")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
