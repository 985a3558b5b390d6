"""scripts/ray_decode.py on a Ray cluster of this machine writes what asr-decode does, whoever is killed."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runs import make_root, train
from tones import write_corpus

pytest.importorskip("ray", reason="ray isn't installed; the extra cluster has it")


ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}  # finds scripts/
FILES = 60


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A model, recordings, and among them one that can't be read."""
    root = make_root(tmp_path_factory.mktemp("ray"))
    train(root, root / "model", "training.epochs=1")
    write_corpus(root / "wavs", {"file": FILES}, seed=5)
    (root / "wavs/bad.wav").touch()
    return root


def start(root, *words):
    command = [sys.executable, "-m", *words, "--mode", "ctc-greedy"]
    return subprocess.Popen(command, cwd=root, env=ENVIRONMENT, stderr=subprocess.PIPE)


def start_on_ray(root, out):
    more = ["--actors", "2", "--batch", "5"]
    return start(root, "scripts.ray_decode", "model", "wavs", out, *more)


def end(process, status):
    said = process.communicate()[1]
    assert process.returncode == status, said.decode()


@pytest.fixture(scope="module")
def undisturbed(corpus):
    end(start_on_ray(corpus, "undisturbed"), 0)
    return corpus / "undisturbed"


@pytest.mark.slow
def test_a_ray_cluster_writes_the_lines_of_asr_decode(corpus, undisturbed):
    outputs = ["--out", "t", "--json", "ours"]
    wavs = str(corpus / "wavs")  # Ray's have absolute paths, too
    end(start(corpus, "asr.cli.decode", "--model", "model", wavs, *outputs), 3)
    lines = [path.read_text().splitlines() for path in (corpus / "ours", undisturbed)]
    texts = [
        [(one["id"], one["text"], one["segments"]) for one in map(json.loads, x)] for x in lines
    ]
    assert texts[0] == texts[1] and len(texts[0]) == FILES
    failed = [(corpus / f"{name}.failed.tsv").read_text() for name in ("t", "undisturbed")]
    assert failed[0] == failed[1]


def transcribing(driver):
    """The actors among the descendants of a process that are at work; Ray tells it in their titles."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            parents[int(path.parent.name)] = int(path.read_text().rsplit(")")[-1].split()[1])
    found, ours = [], {driver}
    for pid in sorted(parents):  # children are younger
        if parents[pid] in ours:
            ours.add(pid)
            with contextlib.suppress(OSError):
                title = Path(f"/proc/{pid}/cmdline").read_bytes()
                found += [pid] * (b"Transcriber" in title and b".submit" in title)
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc")
def test_a_killed_worker_changes_no_byte(corpus, undisturbed):
    process, killed = start_on_ray(corpus, "killed"), 0
    while process.poll() is None and not killed:
        for pid in transcribing(process.pid)[:1]:
            os.kill(pid, signal.SIGKILL)
            killed += 1
        time.sleep(0.005)
    end(process, 0)
    assert killed and (corpus / "killed").read_bytes() == undisturbed.read_bytes()
