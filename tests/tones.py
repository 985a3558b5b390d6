"""A corpus that a tiny model learns in seconds: words are tones of their own pitch, separated by silence."""

from pathlib import Path

import numpy as np
import soundfile

RATE = 8000
PITCH = {"LOW": 400, "MID": 1000, "HIGH": 2200}  # Hz


def waveform(words: list[str], rng: np.random.Generator) -> np.ndarray:
    """Tones of 0.12 to 0.2 s with gaps of 0.08 s, in faint noise; (samples,) float32 at RATE."""
    gap = np.zeros(int(0.08 * RATE))
    parts = [gap]
    for word in words:
        t = np.arange(int(rng.uniform(0.12, 0.2) * RATE)) / RATE
        parts += [rng.uniform(0.2, 0.5) * np.sin(2 * np.pi * PITCH[word] * t), gap]
    signal = np.concatenate(parts)
    return (signal + 1e-3 * rng.standard_normal(len(signal))).astype(np.float32)


def write_corpus(folder: Path, sizes: dict[str, int], seed: int = 0, longest: int = 4) -> Path:
    """Write <split>.tsv and wav files; `sizes` utterances a split of 1 to `longest` words."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for split, size in sizes.items():
        lines = ["id\tpath\ttext\tspeaker"]
        for n in range(size):
            words = list(rng.choice(list(PITCH), size=rng.integers(1, longest + 1)))
            soundfile.write(folder / f"{split}{n:03d}.wav", waveform(words, rng), RATE)
            lines.append(f"{split}{n:03d}\t{split}{n:03d}.wav\t{' '.join(words)}\t{split}{n % 4}")
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder


CONFIG = """
out: {root}/model
seed: 3
tokenizer: {root}/tokenizer
data:
  train: {root}/data/train.jsonl.gz
  dev: {root}/data/dev.jsonl.gz
  batch_seconds: 8
  speeds: [0.9, 1.0, 1.1]
  workers: 0
features:
  fbank: {{sample_rate: 8000, mels: 24}}
  specaugment: {{freq_masks: 1, freq_width: 4, time_masks: 1, time_width: 5, time_ratio: 0.05}}
model:
  kind: hybrid
  encoder: {{kind: transformer, d_model: 32, layers: 2, heads: 2, ff: 64, dropout: 0.05, channels: 8}}
  decoder: {{kind: transformer, d_model: 32, layers: 1, heads: 2, ff: 64, dropout: 0.05}}
  ctc_weight: 0.5
optimizer: {{kind: adamw, lr: 4e-3}}
schedule: {{kind: cosine, warmup: 20}}
training: {{epochs: 2, average: 2, device: cpu}}
"""
