"""scripts/ray_decode.py on a Ray cluster of this machine writes what asr-decode does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from runs import make_root, train
from tones import write_corpus

pytest.importorskip("ray", reason="ray isn't installed; the extra cluster has it")


ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}  # finds scripts/


@pytest.mark.slow
def test_a_ray_cluster_writes_the_lines_of_asr_decode(tmp_path):
    root = make_root(tmp_path)
    train(root, root / "model", "training.epochs=1")
    write_corpus(root / "wavs", {"file": 12}, seed=5)
    (root / "wavs/bad.wav").touch()
    model, mode = str(root / "model"), ["--mode", "ctc-greedy"]
    ours = ["asr.cli.decode", "--model", model, str(root / "wavs"), "--out", "t", "--json", "ours"]
    theirs = ["scripts.ray_decode", model, "wavs", "theirs", "--actors", "2", "--batch", "5"]
    for words, status in ((ours, 3), (theirs, 0)):
        command = [sys.executable, "-m", *words, *mode]
        done = subprocess.run(command, cwd=root, env=ENVIRONMENT, capture_output=True)
        assert done.returncode == status, done.stderr.decode()
    lines = [(root / name).read_text().splitlines() for name in ("ours", "theirs")]
    texts = [
        [(one["id"], one["text"], one["segments"]) for one in map(json.loads, x)] for x in lines
    ]
    assert texts[0] == texts[1] and len(texts[0]) == 12
    assert (root / "t.failed.tsv").read_text() == (root / "theirs.failed.tsv").read_text()
