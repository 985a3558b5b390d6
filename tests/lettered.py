"""A translator's training on words of letters that are reversed, and so with known translations."""

import random

import yaml
from miniatures import write

from asr.text import tokenizer
from asr.yaml_tree import read_tree
from scripts import letters

SMALLER = [
    "data.batch_tokens=300",
    *(
        f"model.{part}.{size}"
        for part in ("encoder", "decoder")
        for size in ("d_model=32", "layers=1")
    ),
    "model.encoder.dropout=0.1",
    "model.decoder.dropout=0.1",
    "optimizer.lr=5e-3",
    "schedule={kind: noam, warmup: 20}",
    "training.epochs=3",
]


def make_root(root):
    """Texts of 300 and 40 pairs, tokenizers, and a configuration: x.yaml."""
    for name, number, seed in (("train", 300, 1), ("dev", 40, 2)):
        letters.write(root, name, letters.words(random.Random(seed), number, range(1, 9)), -1)
    tokenizer.train("characters", [" ".join(letters.LETTERS)]).save(root / "tokenizer")
    tokenizer.train("characters", ["hgfedcba"]).save(root / "other")
    config = write(root / "x.yaml", [letters.CONFIG.format(folder=root)])
    write(config, [yaml.safe_dump(read_tree(config, SMALLER)[0])])
    return root
