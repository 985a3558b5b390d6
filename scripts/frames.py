#!/usr/bin/env python
"""Count the functions of this package that a reader passes on two ways, in a real training of a tiny model.

  from asr-train's main to F.ctc_loss
  from Recognizer.encode to F.scaled_dot_product_attention

Both ends are the functions' own frames. The status is 1 if a way is longer than its limit.
"""

import argparse
import contextlib
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import soundfile
import torch
import torch.nn.functional as F

import asr
from asr.cli import train
from asr.data.prepare import prepare
from asr.models import recognizer
from asr.text import tokenizer

PACKAGE = Path(asr.__file__).parent
TRAINING, ENCODING = "from asr-train to F.ctc_loss", "from Recognizer.encode to attention"
LIMITS = {TRAINING: 9, ENCODING: 6}
ENCODERS = {
    "transformer": "kind: transformer",
    "conformer": "kind: conformer, kernel: 3",
    "e_branchformer": "kind: e_branchformer, kernel: 3, cgmlp: 8, merge_kernel: 3",
}
CONFIG = """
out: {root}/model
seed: 1
tokenizer: {root}/tokenizer
data: {{train: {root}/data/train.jsonl.gz, dev: {root}/data/train.jsonl.gz, batch_seconds: 8, workers: 0}}
features: {{fbank: {{sample_rate: 8000, mels: 20}}}}
model:
  kind: hybrid
  encoder: {{{encoder}, d_model: 8, layers: 1, heads: 2, ff: 8, dropout: 0.1, channels: 4}}
  decoder: {{kind: transformer, d_model: 8, layers: 1, heads: 2, ff: 8, dropout: 0.1}}
optimizer: {{kind: adamw, lr: 1e-3}}
schedule: {{kind: constant, warmup: 1}}
training: {{epochs: 1, average: 1, device: cpu, processes: 1}}
"""


@contextlib.contextmanager
def stack_at(function: str) -> Iterator[list[str]]:
    """Within it, note the functions of this package, outermost first, that the first call of one of PyTorch's is in."""
    frames: list[str] = []
    original = getattr(F, function)

    def noting(*arguments: object, **options: object) -> object:
        if not frames:
            own = [
                frame
                for frame in traceback.extract_stack()
                if PACKAGE in Path(frame.filename).parents
            ]
            frames.extend(
                f"{Path(frame.filename).relative_to(PACKAGE.parent)}:{frame.name}" for frame in own
            )
        return original(*arguments, **options)

    with mock.patch.object(F, function, noting):
        yield frames


def ways(root: Path, kind: str) -> dict[str, list[str]]:
    """Train a model with an encoder of a kind, and encode with it: name of the way → frames."""
    config, out = root / f"{kind}.yaml", root / kind
    config.write_text(CONFIG.format(root=root, encoder=ENCODERS[kind]), encoding="utf-8")
    with stack_at("ctc_loss") as training:
        train.main(["--config", str(config), f"out={out}", "-q"])
    model = recognizer.load(out)
    with stack_at("scaled_dot_product_attention") as encoding, torch.no_grad():
        model.encode(torch.randn(1, 8000), torch.tensor([8000]))
    return {TRAINING: training[training.index("asr/cli/train.py:main") :], ENCODING: encoding}


def make_corpus(root: Path) -> None:
    """Write four recordings of noise, their manifest, and a tokenizer."""
    rng, lines = np.random.default_rng(1), ["id\tpath\ttext"]
    for n in range(4):
        soundfile.write(root / f"{n}.wav", 0.1 * rng.standard_normal(8000), 8000)
        lines.append(f"u{n}\t{n}.wav\tAB")
    (root / "train.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    prepare("tsv", root, root / "data")
    tokenizer.train("characters", ["A B"]).save(root / "tokenizer")


def main(arguments: list[str] | None = None) -> int:
    """Print the longest of each way over the kinds of encoders."""
    args = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    args.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_corpus(root)
        found = [ways(root, kind) for kind in ENCODERS]
    longest = {name: max((way[name] for way in found), key=len) for name in LIMITS}
    for name, frames in longest.items():
        print(f"{name}: {len(frames)}, at most {LIMITS[name]}", *frames, sep="\n  ")
    return int(any(len(longest[name]) > LIMITS[name] for name in LIMITS))


if __name__ == "__main__":
    sys.exit(main())
