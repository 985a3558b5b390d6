"""Every command of the documentation is taken from its page and run, as it is written or as documented.py says.

The pages of PAGES are README.md and those of the recipes, docs and benchmarks. The commands of a page run in the order
of its text in a fresh copy of the checkout, so that later ones find what earlier ones have made; those of the package
are forked from a process that has imported torch (preloaded.py). Python is executed there, too, and YAML merged into
the settings that the page has made. A command that documented.py doesn't name fails the test, and so does a name of it
that stands in no page. What trains or decodes for minutes is run to its training by default, and whole with

    ASR_DOCUMENTATION=whole python -m pytest tests/test_documentation.py
"""

import os
import re
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import yaml
from checkouts import PATH, ROOT, bash, copy, needs_commands, write_program
from documented import PAGES, SETUPS, Way
from preloaded import Preloaded

from asr import yaml_tree
from asr.cli import download
from asr.config import load
from asr.download.sources import SOURCES
from asr.models.hybrid import Hybrid
from asr.tasks import Experiment

WHOLE = os.environ.get("ASR_DOCUMENTATION") == "whole"
PLACES = "asr", "conf", "docs", "recipes", "scripts", "tests"  # with the files at the top
TEXTS = "README.md", "CONTRIBUTING.md", "recipes/**/*.md", "docs/*.md", "scripts/**/*.md"
OURS = re.compile(
    r"(bash|python) (recipes/|scripts/|-m scripts\.)|asr-\w+ \S|(torchrun|pip|sbatch|tensorboard) "
)
PIECE = re.compile(r"^```(?P<kind>\w*)\n(?P<block>.*?)^```$|`(?P<inline>[^`\n]+)`", re.M | re.S)
KINDS = {"sh", "python", "yaml", ""}


class Piece(NamedTuple):
    """What a page says to do: a command (sh), Python, or settings (yaml); `line` of the page."""

    kind: str
    text: str
    line: int


def pieces(page):
    """Take all from a page, in the order of its text; a command is as the shell joins its lines, without comment."""
    text = page.read_text(encoding="utf-8")
    for found in PIECE.finditer(text):
        kind, block, inline = found.groups()
        line = text.count("\n", 0, found.start()) + 1
        if inline:
            commands = [inline] if OURS.match(inline) else []
        elif kind == "sh":
            commands = block.replace("\\\n", " ").splitlines()
        else:
            assert kind in KINDS, f"{page}:{line}: a block of {kind!r}, expected one of {KINDS}"
            yield Piece(kind, block, line)
            continue
        for command in commands:
            if command := " ".join(re.sub(r"(^|\s)#\s.*", "", command).split()):
                yield Piece("sh", command, line)


def test_every_page_is_known():
    paths = [path.relative_to(ROOT) for pattern in TEXTS for path in ROOT.glob(pattern)]
    there = {str(path) for path in paths if not {".bench", ".venv"} & set(path.parts)}
    assert there == {*PAGES, "docs/extend.md"}  # test_extend.py


@pytest.mark.parametrize("page", PAGES)
def test_every_command_stands_in_the_table_and_the_table_in_the_pages(page):
    """A command that is in one of them alone: say in documented.yaml how to try it, or take it out there."""
    assert {piece.text for piece in pieces(ROOT / page) if piece.kind == "sh"} == set(PAGES[page])


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


PAGE = """Run `bash recipes/a/run.sh x`, not `asr-train` or `exp/a`.
```sh
asr-train --config a \\
    b=c  # why

# alone
```
```yaml
a: 1
```
"""


def test_commands_are_found_in_blocks_and_in_lines(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert list(pieces(page)) == [
        ("sh", "bash recipes/a/run.sh x", 1),
        ("sh", "asr-train --config a b=c", 2),
        ("yaml", "a: 1\n", 8),
    ]
    page.write_text("```json\n{}\n```\n")
    with pytest.raises(AssertionError, match=":1: a block of 'json'"):
        list(pieces(page))


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_are_there(page):
    """Or are of what a recipe makes."""
    text = (ROOT / page).read_text(encoding="utf-8")
    names = re.findall(r"(?<![\w./-])((?:asr|conf|docs|recipes|scripts|tests)/[\w./-]*\w)", text)
    links = re.findall(r"\]\(([^):#]+)[^)]*\)", text)
    paths = [Path(name) for name in names] + [Path(page).parent / link for link in links]
    gone = [path for path in paths if not Path(os.path.normpath(ROOT / path)).exists()]
    assert not [path for path in gone if not re.search("/(data|exp)(/|$)", str(path))]


def test_every_corpus_that_the_guide_names_can_be_downloaded(tmp_path, capsys, monkeypatch):
    """However small this machine's disk is."""
    monkeypatch.setattr("asr.download.disk.free", lambda folder: 1 << 50)
    text = (ROOT / "docs/guide.md").read_text(encoding="utf-8")
    section = text.partition("## Downloads")[2].partition("## ")[0]
    names = re.findall(r"(?:asr-download |`(?=[a-z0-9-]+`))([\w-]+)", section)
    assert set(names) == set(SOURCES)
    for name in SOURCES:
        download.main([name, str(tmp_path / "corpora"), "--dry-run"])
        assert "disk: about" in capsys.readouterr().err
    assert not (tmp_path / "corpora").exists()


def test_the_model_alone_is_as_the_guide_says():
    text = (ROOT / "docs/guide.md").read_text(encoding="utf-8")
    call, shape = re.search(r"`(Hybrid\(.*?\))` gives logits `\((.*?)\)`", text).groups()
    names = {"Hybrid": Hybrid, "settings": load(Experiment, ROOT / "conf/mini.yaml").model}
    names |= {"X": torch.randn(2, 60, 80), "X_lens": torch.tensor([60, 40])}
    names |= {"Y": torch.tensor([[3, 4, 5], [6, 7, -1]]), "Y_lens": torch.tensor([3, 2])}
    logits, lengths = eval(call, names)  # our own page's
    assert shape == "B, U + 1, V" and logits.shape == (2, 3 + 1, 5000)
    assert lengths.tolist() == [4, 3]


# running them

# the steps that take minutes, in a recipe that is tried up to them: ASR_TRIAL
TRIAL = {
    "scripts/evaluate.sh": """#!/usr/bin/env bash
set -euo pipefail
if [ -n "${ASR_TRIAL:-}" ] && [ -z "${ASR_PLAN:-}" ]; then echo "evaluated $1 $2"; exit; fi
""",
    "bin/asr-train": """#!/bin/sh
[ -z "$ASR_TRIAL" ] || set -- "$@" --print-config
exec "$COMMANDS/asr-train" "$@"
""",
    "bin/sbatch": """#!/usr/bin/env bash
nodes=1
while [[ "$1" == --* ]]; do
    [ "$1" != --nodes ] || nodes=$2
    [ "$1" != --export ] || export "${2#ALL,}"
    shift 2
done
export SLURM_SUBMIT_DIR=$PWD SLURM_JOB_NODELIST=node1 SLURM_JOB_ID=1 SLURM_JOB_NUM_NODES=$nodes SLURM_GPUS_ON_NODE=4
exec bash "$@" --dry-run
""",
    "bin/scontrol": "#!/bin/sh\necho node1\n",
}
# imported as any Python starts: what a page tells works however small this machine's disk is
ROOMY = """import collections, shutil
shutil.disk_usage = lambda folder: collections.namedtuple("Usage", "total used free")(1 << 50, 0, 1 << 50)
"""
HELP = {}  # program → status and text of its --help, the same in all copies


class Checkout:
    """A fresh copy of the checkout in a folder whose name has a space, with what a page's commands need."""

    def __init__(self, folder, page, preloaded):
        self.root = copy(folder / "a checkout", *PLACES)
        for path in ROOT.iterdir():
            if path.is_file():
                shutil.copy(path, self.root)
        for name, text in TRIAL.items():
            path = self.root / name
            old = path.read_text() if path.exists() else ""
            write_program(path, text + old.partition("set -euo pipefail\n")[2])
        self.modules = folder / "modules"
        self.modules.mkdir()
        (self.modules / "sitecustomize.py").write_text(ROOMY)
        self.commands = folder / "commands"
        preloaded.install(self.commands)
        for setup in SETUPS.get(page, ()):
            setup(self.root)

    def run(self, command):
        """Run a command line; its status, and all that it says."""
        path = os.pathsep.join([f"{self.root}/bin", f"{self.commands}", PATH])
        environment = {"PATH": path, "COMMANDS": f"{self.commands}", "CDPATH": "/usr:/tmp"}
        environment["PYTHONPATH"] = f"{self.root}{os.pathsep}{self.modules}"
        environment["CUDA_VISIBLE_DEVICES"] = ""
        return bash(self.root, "-c", f"exec 2>&1\n{command}", **environment)[:2]

    def do(self, piece, way):
        """Do what a piece says; empty, or what is wrong with it."""
        if piece.kind == "python":
            status, said = self.run(f"{shlex.quote(sys.executable)} -c {shlex.quote(piece.text)}")
            return said if status else ""
        if piece.kind == "yaml":
            return self.load(piece.text)
        if way.how == "options":
            return self.look(piece.text)
        if way.how == "not":
            return ""
        text = piece.text
        for old, new in way.replace.items():
            assert old in text, f"{text}: has no {old}"
            text = text.replace(old, new)
        status, said = self.run(f"{text} {way.more}")
        if status != way.status:
            return f"status {status}, expected {way.status}\n{said}"
        return "" if re.search(way.says, said) else f"doesn't say {way.says!r}\n{said}"

    def look(self, command):
        """Compare the options of a command with those that its --help tells."""
        words = shlex.split(command)
        name = " ".join(words[: 1 if words[0].startswith("asr-") else 2 + (words[1] == "-m")])
        if name not in HELP:
            HELP[name] = self.run(f"{name} --help")
        status, said = HELP[name]
        options = [word for word in words if re.fullmatch("--[a-z-]+", word)]
        unknown = [word for word in options if not re.search(rf"(?m)(\s|\[){word}\b", said)]
        if status or unknown:
            return f"status {status}; --help doesn't tell {unknown}\n{said}"
        return ""

    def load(self, block):
        """Merge settings into those that the page has made."""
        made, _ = yaml_tree.read_tree(self.root / "exp/mine/config.yaml")
        made["data"] |= yaml.safe_load(block)
        (self.root / "merged.yaml").write_text(yaml_tree.write(made))
        load(Experiment, self.root / "merged.yaml")
        named = re.findall(r"manifest: ([^\s,}]+)", block)
        return "".join(f"{name}: isn't there" for name in named if not (self.root / name).exists())


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory):
    made = Preloaded(tmp_path_factory.mktemp("preloaded"))
    yield made
    made.close()


@pytest.mark.slow
@needs_commands
@pytest.mark.parametrize("page", [page for page in PAGES if PAGES[page]])
def test_the_commands_of_a_page_work_as_they_are_written(page, preloaded, tmp_path):
    checkout, done, failed = Checkout(tmp_path, page, preloaded), set(), []
    for piece in pieces(ROOT / page):
        if not piece.kind or piece.text in done:
            continue
        done.add(piece.text)
        way = PAGES[page].get(piece.text)
        if WHOLE and way and way.whole:
            way = Way(**way.whole)
        began, where = time.monotonic(), f"{page}:{piece.line}: {piece.text}"
        wrong = checkout.do(piece, way)
        print(f"{time.monotonic() - began:6.1f} s  {where[:130]}")
        if wrong:
            failed.append(f"{where}\n{wrong}")
    assert not failed, "\n\n".join(failed)
