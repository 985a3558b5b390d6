"""Prove docs/extend.md: what it adds is added to a copy of the package, from the page's own text, and works.

A section's files are written, its changes applied (each line that goes must stand there once), its commands and its
Python run. The answers are constructed: tones that a recognizer learns, layouts of a few files.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import soundfile
from runs import make_root, train
from tones import CONFIG, RATE

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/extend.md"
BLOCK = re.compile(
    r"(?:^(?:In )?`(?P<file>[^`\n]+)`:\n\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    """A block of code of the page; the file that it is of, if the line above names one."""

    kind: str
    text: str
    file: str | None


def sections() -> dict[str, list[Block]]:
    """Heading → its blocks."""
    parts = re.split(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.M)
    found = {
        heading: list(BLOCK.finditer(text))
        for heading, text in zip(parts[1::2], parts[2::2], strict=True)
    }
    return {
        heading: [Block(b["kind"], b["text"], b["file"]) for b in blocks]
        for heading, blocks in found.items()
    }


def change(text: str, difference: str) -> str:
    """Apply the lines of a block: `-` lines give way to the `+` lines below them; an import goes to the others.

    A line that goes may be the beginning of one, as the one that takes its place then is.
    """
    for old, new in re.findall(r"((?:^-.*\n)*)((?:^\+.*\n)+)", difference, flags=re.M):
        old, new = (
            "".join(line[1:] + "\n" for line in lines.splitlines())[:-1] for lines in (old, new)
        )
        if not old:
            assert new.startswith(("from ", "import ")), (
                f"{new}: expected an import, or lines that it takes the place of"
            )
            old = next(line for line in text.splitlines() if line.startswith("from asr."))
            new = f"{new}\n{old}"
        assert text.count(f"\n{old}") == 1, (
            f"{old!r} stands there {text.count(old)} times, expected once"
        )
        text = text.replace(f"\n{old}", f"\n{new}")
    return text


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """What the page's commands find: small.yaml, data/, tokenizer/, exp/model, a.wav, corpora/."""
    root = make_root(tmp_path_factory.mktemp("extend"))
    train(root, root / "exp/model", "training.epochs=1")
    (root / "small.yaml").write_text(CONFIG.format(root=".").replace("epochs: 2", "epochs: 1"))
    shutil.copy(root / "corpus/dev000.wav", root / "a.wav")
    folder = root / "corpora/speech_commands"
    for n, word in enumerate(("yes", "no", "up")):
        (folder / word).mkdir(parents=True)
        for m in range(3):
            soundfile.write(folder / word / f"{n}a7c_nohash_{m}.wav", [0.1, -0.1] * 4000, RATE)
    (folder / "testing_list.txt").write_text("yes/0a7c_nohash_0.wav\n")
    (folder / "validation_list.txt").write_text("no/1a7c_nohash_1.wav\nup/2a7c_nohash_2.wav\n")
    return root


@pytest.mark.parametrize("heading", sections())
def test_what_a_section_adds_works(prepared, tmp_path, heading):
    blocks = sections()[heading]
    shutil.copytree(ROOT / "asr", tmp_path / "asr", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    files = [block for block in blocks if block.file]
    assert {block.kind for block in files} == {"python", "diff"}
    added = [block.file for block in files if block.kind == "python"]
    assert len(added) == 1 and not (ROOT / added[0]).exists(), "one new file"
    for block in files:
        path = tmp_path / block.file
        path.write_text(
            change(path.read_text(), block.text) if block.kind == "diff" else block.text
        )
    for block in (block for block in blocks if not block.file):
        run(tmp_path, block)
    check = CHECKS.get(heading)
    assert check is None or run(tmp_path, Block("python", check, None))


def run(folder: Path, block: Block) -> bool:
    """Run a block's commands, or its Python, with the copy of the package."""
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT / 'tests'}"}
    commands = block.text.splitlines() if block.kind == "sh" else [block.text]
    for command in commands:
        name = command.split()[0].removeprefix("asr-")
        python = (
            [sys.executable, "-m", f"asr.cli.{name}"]
            if block.kind == "sh"
            else [sys.executable, "-c", command]
        )
        words = (
            subprocess.list2cmdline(python) + command.removeprefix(f"asr-{name}")
            if block.kind == "sh"
            else python
        )
        done = subprocess.run(
            words,
            shell=block.kind == "sh",
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return True


CHECKS = {  # what else must be so, beside the commands' success
    "An encoder": """
import asr
model = asr.load("exp/convolutional", "cpu")
assert type(model.model.encoder.layers[0]).__name__ == "ConvolutionalLayer"
""",
    "A term of the loss": """
import json
lines = [json.loads(line) for line in open("exp/entropy/metrics.jsonl")]
shown = [line["entropy"] for line in lines if line["kind"] == "train"]
assert shown and all(value > 0 for value in shown)
""",
    "An optimizer": """
import glob, torch
(state,) = (torch.load(path, weights_only=True) for path in sorted(glob.glob("exp/nadam/checkpoints/state-*"))[-1:])
assert "mu_product" in str(state)  # which NAdam alone keeps
""",
    "A scorer of the beam search": """
import asr
model = asr.load("exp/model", "cpu")
found = model.transcribe("a.wav", word_bonus=0.5)
assert "words" in found.nbest[0].scores
""",
    "A tokenizer": """
import asr
model = asr.load("exp/octets-model", "cpu")
assert model.tokenizer.decode(model.tokenizer.encode("Ä 漢")) == "Ä 漢"
assert model.tokenizer.vocabulary == 258
""",
    "A corpus": """
from asr.data.manifest import read
sets = {
    name: [(u.id, u.text, u.speaker) for u in read(f"data/commands/{name}.jsonl.gz")]
    for name in ("train", "dev", "test")
}
assert sets["test"] == [("yes-0a7c_nohash_0", "YES", "0a7c")]
assert sorted(text for _, text, _ in sets["dev"]) == ["NO", "UP"] and len(sets["train"]) == 6
""",
    "An effect of augmentation": """
import numpy as np
from asr.data.augmentation import Augment, AugmentSettings
wave = np.sin(np.arange(800) / 5).astype(np.float32)
clipped = Augment(AugmentSettings.model_validate({"clipping": {"probability": 1, "least": 0.5}}))(wave, 8000, 3)
assert 0.5 <= np.abs(clipped).max() < 1 and (clipped == clipped.max()).sum() > 10
""",
}


def test_every_section_has_a_check():
    assert set(CHECKS) == set(sections())


def test_a_change_that_does_not_fit_is_refused():
    with pytest.raises(AssertionError, match="stands there 0 times"):
        change("a = 1\nb = 2\n", "-c = 3\n+c = 4\n")
    with pytest.raises(AssertionError, match="stands there 2 times"):
        change("x\na = 1\na = 1\n", "-a = 1\n+c = 4\n")
    assert change("x\na = 1\nb = 2\n", "-a = 1\n+a = 3\n+c = 4\n") == "x\na = 3\nc = 4\nb = 2\n"
    assert (
        change("\nfrom asr.b import c\n", "+from asr.a import b\n")
        == "\nfrom asr.a import b\nfrom asr.b import c\n"
    )
