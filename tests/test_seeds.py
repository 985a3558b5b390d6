"""Prove that scripts/seeds.py trains and decodes each seed in a folder of its own, and counts right.

The commands are stood in for: what they would write is made. The page of recipes/yesno is tried with the real ones.
"""

import shutil

import pytest
from checkouts import ROOT

from asr.data import manifest
from asr.data.manifest import Utterance
from scripts import seeds

CALLS = """train --config conf/yesno.yaml training.epochs=11 seed=1 out=exp/yesno/model
decode --model exp/yesno/model --manifest data/yesno/test.jsonl.gz --mode joint --ctc-weight 0.7 \
--out exp/yesno/test.joint.txt
train --config conf/yesno.yaml training.epochs=11 seed=7 out=exp/yesno/seed-7/model
decode --model exp/yesno/seed-7/model --manifest data/yesno/test.jsonl.gz --mode joint --ctc-weight 0.7 \
--out exp/yesno/seed-7/test.joint.txt"""


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """A recipe's configuration and references of ten words."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data/yesno").mkdir(parents=True)
    (tmp_path / "conf").mkdir()
    shutil.copy(ROOT / "conf/yesno.yaml", tmp_path / "conf")
    spoken = Utterance("a", "a.wav", 8000, 80_000, 1, 0.0, 10.0, " ".join(["YES"] * 10))
    manifest.write(tmp_path / "data/yesno/test.jsonl.gz", [spoken])


def test_each_seed_has_its_folder_and_the_yamls_is_the_recipes(folder, monkeypatch, capsys):
    calls = []

    def run(name, *arguments):
        calls.append(" ".join(map(str, (name, *arguments))))
        if name == "decode":
            wrong = 2 if "seed-7" in calls[-1] else 0
            arguments[-1].parent.mkdir(parents=True, exist_ok=True)
            arguments[-1].write_text("a\t" + "NO " * wrong + "YES " * (10 - wrong) + "\n")

    monkeypatch.setattr(seeds, "run", run)
    words = "yesno test training.epochs=11 --seeds 1 7 --decode"
    seeds.main([*words.split(), "--ctc-weight 0.7"])
    assert calls == CALLS.splitlines()
    first, second, summary = capsys.readouterr().out.splitlines()
    assert first.startswith("seed 1: WER 0.00 %") and second.startswith("seed 7: WER 20.00 %")
    assert summary == "WER % of 2 seeds: mean 10.00, standard deviation 14.14, 0.00 to 20.00"
