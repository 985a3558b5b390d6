"""Prove that JoeyNMT gets what the translation benchmark says; it needs an environment of its own."""

import signal

from refusals import refused
from small import options

from asr import config
from asr.tasks import Experiment
from scripts.bench import translation


def test_joeynmt_gets_the_texts_and_the_sizes_of_the_recipe(tmp_path):
    ours = config.load(Experiment, "conf/multi30k.yaml")
    made = translation.settings(ours, tmp_path)
    names = options("layers: num_layers, heads: num_heads, d_model: hidden_size, ff: ff_size")
    for side in ("encoder", "decoder"):
        for name, theirs in names.items():
            assert made["model"][side][theirs] == getattr(getattr(ours.model, side), name)
    for split in ("train", "dev"):
        files = [f"{made['data'][split]}.{made['data'][side]['lang']}" for side in ("src", "trg")]
        assert files == getattr(ours.data, split)
    ours = config.load(Experiment, "conf/multi30k.yaml", ["data.dev=[a.en,b.de]"])
    refused("expected two files whose names differ in their suffix", translation.languages, ours)


def test_a_process_is_interrupted_after_its_seconds_also_by_a_job_that_ignores_it(tmp_path):
    """A shell can't trap a signal that it inherits as ignored."""
    log = tmp_path / "log"
    waits = 'trap "echo ends; exit" INT; for i in $(seq 600); do sleep 0.1; done'
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        seconds = translation.run(log, "sh", "-c", waits, seconds=1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert log.read_text() == "ends\n" and 1 <= seconds < 50
