"""A translator's training on words of letters that are reversed, and so with known translations."""

import random

from asr.text import tokenizer
from scripts import letters

CONFIG = """
out: {root}/model
seed: 3
tokenizer: {root}/tokenizer
data:
  train: [{root}/train.src, {root}/train.tgt]
  dev: [{root}/dev.src, {root}/dev.tgt]
  batch_tokens: 300
model:
  kind: translator
  source: text
  encoder: {{kind: transformer, d_model: 32, layers: 1, heads: 2, ff: 64, dropout: 0.1, subsampling: 1}}
  decoder: {{kind: transformer, d_model: 32, layers: 1, heads: 2, ff: 64, dropout: 0.1, tied: true}}
  shared: true
optimizer: {{kind: adam, lr: 5e-3}}
schedule: {{kind: noam, warmup: 20}}
training: {{epochs: 3, average: 2, device: cpu, processes: 1}}
"""


def make_root(root):
    """Texts of 300 and 40 pairs, tokenizers, and a configuration: x.yaml."""
    for name, number, seed in (("train", 300, 1), ("dev", 40, 2)):
        letters.write(root, name, letters.words(random.Random(seed), number, range(1, 9)), -1)
    tokenizer.train("characters", [" ".join(letters.LETTERS)]).save(root / "tokenizer")
    tokenizer.train("characters", ["hgfedcba"]).save(root / "other")
    (root / "x.yaml").write_text(CONFIG.format(root=root))
    return root
