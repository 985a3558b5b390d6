"""Prove docs/extend.md: what it adds is added to a copy of the package, from the page's own text, and works.

A section's files are written, its changes applied (each line that goes must stand there once), its commands and its
Python run. The answers are constructed: tones that a recognizer learns, layouts of a few files.
"""

import os
import re
import shutil

import pytest
import soundfile
from checkouts import ROOT, bash, copy
from runs import make_root, train
from tones import CONFIG, RATE

PAGE = (ROOT / "docs/extend.md").read_text("utf-8")
BLOCK = re.compile(r"(?:^(?:In )?`([^`\n]+)`:\n\n)?^```(\w+)\n(.*?)^```$", re.M | re.S)
PARTS = re.split(r"^## (.+)$", PAGE, flags=re.M)
# heading → its blocks of code: the file that a block is of, if the line above names one; kind; text
SECTIONS = dict(zip(PARTS[1::2], map(BLOCK.findall, PARTS[2::2]), strict=True))


def change(text, difference):
    """Apply the lines of a block: `-` lines give way to the `+` lines below them; an import goes to the others.

    A line that goes may be the beginning of one, as the one that takes its place then is.
    """
    for block in re.findall(r"(?:^-.*\n)*(?:^\+.*\n)+", difference, flags=re.M):
        old, new = ("\n".join(re.findall(rf"(?m)^\{sign}(.*)", block)) for sign in "-+")
        if not old:
            assert new.startswith(("from ", "import ")), f"{new}: takes the place of nothing"
            old = next(line for line in text.splitlines() if line.startswith("from asr."))
            new = f"{new}\n{old}"
        times = text.count(f"\n{old}")
        assert times == 1, f"{old!r} stands there {times} times, expected once"
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


@pytest.mark.slow
@pytest.mark.parametrize("heading", SECTIONS)
def test_what_a_section_adds_works(prepared, tmp_path, heading):
    """One new file, changes of others, then what the page runs and the check, all with the copy of the package."""
    copy(tmp_path, "asr")
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    blocks = SECTIONS[heading]
    commands = [(kind, text) for file, kind, text in blocks if not file]
    files = [(tmp_path / file, kind, text) for file, kind, text in blocks if file]
    assert [file.exists() for file, kind, _ in files if kind == "python"] == [False] and files[1:]
    for file, kind, text in files:
        file.write_text(text if kind == "python" else change(file.read_text(), text))
    path = f"{tmp_path}{os.pathsep}{ROOT / 'tests'}"
    for kind, text in [*commands, ("python", CHECKS[heading])]:
        if kind == "sh":
            text = re.sub(r"(?m)^asr-(\w+)", r"python -m asr.cli.\1", text)
        else:
            text = f"python - <<'END'\n{text}\nEND"
        status, out, err = bash(tmp_path, "-ec", text, PYTHONPATH=path)
        assert status == 0, f"{text}\n{out}\n{err}"


def test_every_section_has_a_check():
    assert set(CHECKS) == set(SECTIONS)


def test_a_change_that_does_not_fit_is_refused():
    for times, text in (0, "x\na = 1\n"), (2, "x\nc = 3\nc = 3\n"):
        with pytest.raises(AssertionError, match=f"stands there {times} times"):
            change(text, "-c = 3\n+c = 4\n")
    assert change("x\na = 1\nb = 2\n", "-a = 1\n+a = 3\n+c = 4\n") == "x\na = 3\nc = 4\nb = 2\n"
    assert change("\nfrom asr.b import c\n", "+import a\n") == "\nimport a\nfrom asr.b import c\n"
