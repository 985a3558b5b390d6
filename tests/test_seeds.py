"""Prove that scripts/seeds.py trains and decodes each seed in a folder of its own, and counts right.

The commands are stood in for: what they are called with is held to the README's words, what they would write is made.
"""

import importlib
import shlex
from pathlib import Path

import pytest

from asr.data import manifest
from asr.data.manifest import Utterance

SCRIPTS = Path(__file__).parents[1] / "scripts"
GIVEN = {  # what the script's head leaves open; what it says may be left out, is
    "NAME SET": "yesno test",
    "1 2 3": "1 7",
    ' [--decode "--ctc-weight 0.7 ..."]': "",
    "[key.path=value ...]": "training.epochs=11",
}
YAML = (SCRIPTS.parent / "conf/yesno.yaml").read_text()


@pytest.fixture
def seeds(monkeypatch, tmp_path):
    """The script, in a folder with a recipe's configuration and references of ten words."""
    monkeypatch.chdir(tmp_path)
    for folder in ("conf", "data/yesno", "exp/yesno"):
        Path(folder).mkdir(parents=True)
    Path("conf/yesno.yaml").write_text(YAML)
    size = {"rate": 8000, "samples": 80_000, "channels": 1, "start": 0.0, "duration": 10.0}
    spoken = Utterance(id="a", path="a.wav", text="YES " * 9 + "YES", speaker="he", **size)
    manifest.write(Path("data/yesno/test.jsonl.gz"), [spoken])
    return importlib.import_module("scripts.seeds")


def test_each_seed_has_its_folder_and_the_yamls_is_the_recipes(seeds, monkeypatch, capsys):
    calls = []

    def run(name, *arguments):
        calls.append((name, *map(str, arguments)))
        if name == "decode":
            wrong = {"exp/yesno/model": 0, "exp/yesno/seed-7/model": 2}[str(arguments[1])]
            arguments[-1].parent.mkdir(exist_ok=True)
            arguments[-1].write_text(
                "a\t" + " ".join(["NO"] * wrong + ["YES"] * (10 - wrong)) + "\n"
            )

    monkeypatch.setattr(seeds, "run", run)
    usage = next(line for line in seeds.__doc__.splitlines() if "python -m scripts.seeds" in line)
    for name, value in GIVEN.items():
        usage = usage.replace(name, value)
    seeds.main(shlex.split(usage)[3:])
    train, decode = (
        ("train", "--config", "conf/yesno.yaml"),
        ("--manifest", "data/yesno/test.jsonl.gz"),
    )
    mode = ("--mode", "joint", "--out")
    assert calls == [
        (*train, "training.epochs=11", "seed=1", "out=exp/yesno/model"),
        ("decode", "--model", "exp/yesno/model", *decode, *mode, "exp/yesno/test.joint.txt"),
        (*train, "training.epochs=11", "seed=7", "out=exp/yesno/seed-7/model"),
        (
            "decode",
            "--model",
            "exp/yesno/seed-7/model",
            *decode,
            *mode,
            "exp/yesno/seed-7/test.joint.txt",
        ),
    ]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("seed 1: WER 0.00 %") and lines[1].startswith("seed 7: WER 20.00 %")
    assert lines[2] == "WER % of 2 seeds: mean 10.00, standard deviation 14.14, 0.00 to 20.00"
