#!/usr/bin/env python
"""Prove that a refactor changed nothing: run a dozen small trainings and searches in two checkouts, and compare.

Losses, weights, texts and scores must be the same to the bit. Run both checkouts on one machine:

  git worktree add ../before COMMIT
  python -m scripts.compare_checkouts ../before --rename 'old(.*)=new\\1' --setting
  model.new=training.old

Of the weights' names in 0.1, scripts/rename_weights.py has the map.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import soundfile
from safetensors.numpy import load_file

RATE = 8000
PITCH = {"LOW": 400, "MID": 1000, "HIGH": 2200}  # Hz
TIMES = {"date", "wait", "s_per_second", "tokens_per_second"}
CONFIG = """
out: model
seed: 3
tokenizer: tokenizer
data:
  train: data/train.jsonl.gz
  dev: data/dev.jsonl.gz
  batch_seconds: 8
  speeds: [0.9, 1.0, 1.1]
  workers: 0
features:
  fbank: {sample_rate: 8000, mels: 24}
  specaugment: {freq_masks: 1, freq_width: 4, time_masks: 1, time_width: 5, time_ratio: 0.05}
model:
  kind: hybrid
  encoder: ENCODER
  decoder: {kind: transformer, d_model: 32, layers: 1, heads: 2, ff: 64, dropout: 0.05}
  ctc_weight: 0.5
optimizer: {kind: adamw, lr: 4e-3}
schedule: {kind: cosine, warmup: 20}
training: {epochs: 2, average: 2, device: cpu, processes: 1}
"""
LM_CONFIG = """
out: lm
seed: 1
tokenizer: tokenizer
data: {train: lm.txt, dev: lm.txt, batch_tokens: 200}
model: {kind: lm, d_model: 32, layers: 2, heads: 2, ff: 64, dropout: 0.1}
optimizer: {kind: adamw, lr: 4e-3}
schedule: {kind: cosine, warmup: 5}
training: {epochs: 2, average: 1, device: cpu, processes: 1}
"""
COMMON = "d_model: 32, layers: 2, heads: 2, ff: 64, dropout: 0.05, channels: 8"
ENCODERS = {
    "transformer": f"{{kind: transformer, {COMMON}}}",
    "conformer": f"{{kind: conformer, {COMMON}, kernel: 5}}",
    "e_branchformer": f"{{kind: e_branchformer, {COMMON}, kernel: 5, cgmlp: 64, merge_kernel: 3}}",
}
TRAININGS = {  # name: encoder, overrides
    "transformer": ("transformer", []),
    "post_norm": ("transformer", ["model.encoder.norm=post", "model.decoder.tied=true"]),
    "rotary": (
        "transformer",
        ["model.encoder.positions=rotary", "optimizer={kind: muon, lr: 2e-3}"],
    ),
    "layerdrop": (
        "transformer",
        ["model.encoder.layer_dropout=0.3", "model.decoder.layer_dropout=0.3"],
    ),
    "conformer": ("conformer", ["training.processes=2"]),
    "conformer_bf16": ("conformer", ["model.encoder.positions=rotary", "training.precision=bf16"]),
    "e_branchformer": ("e_branchformer", ["training.accumulate=2", "training.ema=0.9"]),
    "chunks": (
        "conformer",
        ["model.encoder.chunk={frames: 4, left: 2}", "schedule={kind: wsd, warmup: 4}"],
    ),
    "shards": ("conformer", ["training.processes=2", "training.shard=true"]),
    "terms": (
        "transformer",
        [
            "model.intermediate_ctc={layers: [1]}",
            "model.consistency={weight: 0.2}",
            "model.flat_start_epochs=1",
        ],
    ),
    "masks_later": (
        "transformer",
        ["features.specaugment.from_epoch=1", "schedule={kind: noam, warmup: 10}"],
    ),
    "muon_two": ("e_branchformer", ["training.processes=2", "optimizer={kind: muon, lr: 2e-3}"]),
    "adam": (
        "transformer",
        ["model.label_smoothing=0", "optimizer={kind: adam, lr: 3e-3}", "data.workers=2"],
    ),
}
SEARCHES = {
    "joint": ["--nbest", "3"],
    "attention": ["--mode", "attention"],
    "ctc": ["--mode", "ctc"],
    "rescoring": ["--mode", "rescoring", "--ctc-weight", "0.5"],
    "attention_greedy": ["--mode", "attention-greedy"],
    "ctc_greedy": ["--mode", "ctc-greedy"],
    "lm": ["--lm", "lm", "--lm-weight", "0.4"],
    "ngram": ["--lm", "lm.arpa", "--length-bonus", "0.5"],
    "hotwords": ["--hotwords", "hotwords.txt"],
    "bf16": ["--precision", "bf16"],
}


def write_corpus(folder: Path) -> None:
    """Write tables and recordings of tones, one pitch per word."""
    rng = np.random.default_rng(0)
    for split, size in (("train", 24), ("dev", 6)):
        lines = ["id\tpath\ttext\tspeaker"]
        for n in range(size):
            words = list(rng.choice(list(PITCH), size=rng.integers(1, 5)))
            parts = [np.zeros(640)]
            for word in words:
                seconds = np.arange(int(rng.uniform(0.12, 0.2) * RATE)) / RATE
                parts += [0.3 * np.sin(2 * np.pi * PITCH[word] * seconds), np.zeros(640)]
            sound = np.concatenate(parts)
            soundfile.write(
                folder / f"{split}{n}.wav", sound + 1e-3 * rng.standard_normal(len(sound)), RATE
            )
            lines.append(f"{split}{n}\t{split}{n}.wav\t{' '.join(words)}\t{split}{n % 4}")
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    sentences = [" ".join(rng.choice(list(PITCH), size=rng.integers(1, 6))) for _ in range(60)]
    (folder / "lm.txt").write_text("\n".join(sentences) + "\n")
    (folder / "hotwords.txt").write_text("HIGH\t2\nLOW MID\n")


def run(checkout: Path, folder: Path, command: str, *arguments: str) -> None:
    """Run a command of a checkout in a folder; what it says goes to the folder's log."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-m", f"asr.cli.{command}", *arguments]
    with open(folder / "log.txt", "a", encoding="utf-8") as log:
        status = subprocess.run(
            line, cwd=folder, env=environment, stdout=log, stderr=log
        ).returncode
    if status:
        sys.exit(f"{checkout}: status {status} of {' '.join(line)}; see {folder / 'log.txt'}")


def record(checkout: Path, folder: Path, settings: dict[str, str]) -> None:
    """Train and decode everything with one checkout; settings: those that it knows by another name."""
    folder.mkdir(parents=True)
    write_corpus(folder)
    run(checkout, folder, "prepare", "tsv", ".", "data")
    run(checkout, folder, "tokenizer", "data/train.jsonl.gz", "tokenizer", "--kind", "characters")
    run(checkout, folder, "ngram", "lm.txt", "tokenizer", "lm.arpa", "--order", "2")
    (folder / "lm.yaml").write_text(LM_CONFIG)
    run(checkout, folder, "train", "--config", "lm.yaml")
    for name, (encoder, overrides) in TRAININGS.items():
        (folder / f"{name}.yaml").write_text(CONFIG.replace("ENCODER", ENCODERS[encoder]))
        overrides = [
            f"{settings.get(key, key)}={value}"
            for key, value in (one.split("=", 1) for one in overrides)
        ]
        run(checkout, folder, "train", "--config", f"{name}.yaml", f"out={name}", *overrides)
        print(f"{checkout}: trained {name}", flush=True)
    for model in ("transformer", "conformer"):
        for name, options in SEARCHES.items():
            given = ["--model", model, "--manifest", "data/dev.jsonl.gz", *options]
            run(checkout, folder, "decode", *given, "--json", f"{model}-{name}.json")
        print(f"{checkout}: searched with {model}", flush=True)


def differences(before: Path, after: Path, renames: list[tuple[str, str]]) -> list[str]:
    """List what differs between two records."""
    found = []
    for name in ("lm", *TRAININGS):
        old, new = (metrics(folder / name / "metrics.jsonl") for folder in (before, after))
        found += [
            f"{name}: metrics.jsonl, line {n + 1}: {a} / {b}"
            for n, (a, b) in enumerate(zip(old, new, strict=False))
            if a != b
        ]
        found += [f"{name}: {len(old)} and {len(new)} lines of metrics"] * (len(old) != len(new))
        found += [
            f"{name}: weights: {text}"
            for text in weights_that_differ(before / name, after / name, renames)
        ]
    for path in sorted(before.glob("[a-z]*-*.json")):
        old, new = (results(folder / path.name) for folder in (before, after))
        known = [{key: line.get(key) for key in one} for one, line in zip(old, new, strict=False)]
        found += [f"{path.name}: other results"] * (old != known or len(old) != len(new))
    return found


def results(path: Path) -> list[dict]:
    """Read the lines of a decoding; what only the later checkout writes isn't compared."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def metrics(path: Path) -> list[dict]:
    """Read the lines of metrics.jsonl without times."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in TIMES} for line in lines]


def weights_that_differ(before: Path, after: Path, renames: list[tuple[str, str]]) -> list[str]:
    """Compare two models' weights by name, after the old names are renamed."""
    old, new = (load_file(folder / "model.safetensors") for folder in (before, after))
    for pattern, replacement in renames:
        old = {re.sub(pattern, replacement, name): value for name, value in old.items()}
    names = [f"{name} is in one of them alone" for name in sorted(old.keys() ^ new.keys())]
    return names + [
        name
        for name in sorted(old.keys() & new.keys())
        if old[name].tobytes() != new[name].tobytes()
    ]


def main() -> None:
    """Record both checkouts, or take a record that is there, and print what differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument(
        "--work", type=Path, default=Path("exp/compare"), help="folder of both records"
    )
    parser.add_argument(
        "--rename",
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="names of weights, as re.sub",
    )
    parser.add_argument(
        "--setting", action="append", default=[], metavar="NEW=OLD", help="names of settings"
    )
    args = parser.parse_args()
    settings = dict(text.split("=", 1) for text in args.setting)
    for name, checkout, known in (
        ("before", args.before, settings),
        ("after", Path(__file__).parents[1], {}),
    ):
        if not (args.work / name).exists():
            record(checkout.resolve(), args.work / name, known)
    renames = [tuple(text.split("=", 1)) for text in args.rename]
    found = differences(args.work / "before", args.work / "after", renames)
    print(
        "\n".join(found)
        or f"the same to the bit: {len(TRAININGS) + 1} trainings, {2 * len(SEARCHES)} searches"
    )
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
