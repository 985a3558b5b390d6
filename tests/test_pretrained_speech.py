"""Fine-tune a small random WavLM on real speech: AN4's, where it stands.

It learns, goes on to the bit after a stop, is the same for any number of processes, and decodes the same in any batch.
"""

import pytest
import sources
from runs import (
    assert_processes_change_nothing,
    assert_same,
    dev_losses,
    status_of,
    stop,
    train,
    weights,
)
from small import slow

import asr
from asr.cli import prepare, tokenizer
from asr.data import manifest

TRAIN, DEV = 72, 16  # utterances
MORE = "training.epochs=6", "training.accumulate=4", "training.processes=1"
FAMILY = "model_type: wavlm, feat_extract_norm: layer, do_stable_layer_norm: true"
CONFIG = """
out: {root}/model
seed: 1
tokenizer: {root}/tokenizer
data: {{train: {root}/train.jsonl.gz, dev: {root}/dev.jsonl.gz, batch_seconds: 20, workers: 0}}
features: {{waveform: {{sample_rate: 16000}}}}
model:
  kind: hybrid
  encoder: {{kind: pretrained, source: {root}/source, mask: {{time_ratio: 0.1, time_width: 4}}, stride: 2}}
  fine_tuning: {{freeze_steps: 8, rate: 0.5, layer_decay: 0.9}}
  decoder: {{kind: transformer, d_model: 32, layers: 1, heads: 2, ff: 64, dropout: 0.1}}
  ctc_weight: 0.5
optimizer: {{kind: adamw, lr: 2e-3}}
schedule: {{kind: wsd, warmup: 10}}
training: {{epochs: 6, average: 1, best_by: loss, device: cpu}}
"""


@pytest.fixture(scope="module")
def root(shared_data, tmp_path_factory):
    """A corpus of a few minutes, its letters, the source, and the settings."""
    pytest.importorskip("transformers")
    root = tmp_path_factory.mktemp("an4")
    assert not status_of(prepare.main, "an4", shared_data / "an4", root / "whole")
    for name, count in (("train", TRAIN), ("dev", DEV)):
        utterances = list(manifest.read(root / f"whole/{name}.jsonl.gz"))
        step = len(utterances) // count
        manifest.write(root / f"{name}.jsonl.gz", utterances[: step * count : step])
    words = root / "train.jsonl.gz", root / "tokenizer", "--kind", "characters"
    assert not status_of(tokenizer.main, *words)
    sources.write_source(root / "source", FAMILY, 16000)
    (root / "x.yaml").write_text(CONFIG.format(root=root))
    return root


@slow
def test_an_encoder_is_fine_tuned_on_an4(root, tmp_path):
    out = assert_processes_change_nothing(root, tmp_path, counts=(1, 2, 4))
    losses = dev_losses(out)
    assert losses[-1] < losses[0] - 0.2

    stop(root, tmp_path / "again", 7, *MORE)
    resumed = train(root, tmp_path / "again", *MORE)
    recognizer = asr.load(out)
    assert_same(weights(resumed.model), weights(recognizer.model))

    paths = [u.path for u in manifest.read(root / "dev.jsonl.gz")]
    together = list(asr.transcribe_all(recognizer, paths))
    for path, found in zip(paths, together, strict=True):
        alone = asr.transcribe(recognizer, path)
        assert alone.text == found.text
        assert alone.nbest[0].score == pytest.approx(found.nbest[0].score, abs=1e-4)
