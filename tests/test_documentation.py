"""Every command of the documentation is taken from its page and run, as it is written or as documented.py says.

The pages of PAGES are README.md and those of the recipes, docs and benchmarks. The commands of a page run in the order
of its text in a fresh copy of the checkout, so that later ones find what earlier ones have made; Python is executed
there, too, and YAML merged into the settings that the page has made. A command that documented.py doesn't name fails
the test, and so does a name of it that stands in no page. What trains or decodes for minutes is run to its training by
default, and whole with

    ASR_DOCUMENTATION=whole python -m pytest tests/test_documentation.py
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import yaml
from documented import PAGES, SETUPS, Way

from asr import yaml_tree
from asr.cli import download
from asr.config import load
from asr.download.sources import SOURCES
from asr.models.hybrid import Hybrid
from asr.tasks import Experiment

ROOT = Path(__file__).parents[1]
WHOLE = os.environ.get("ASR_DOCUMENTATION") == "whole"
PLACES = (
    "asr",
    "conf",
    "docs",
    "recipes",
    "scripts",
    "tests",
)  # of the checkout, with the files at its top
TEXTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *ROOT.glob("recipes/**/*.md"),
    *ROOT.glob("docs/*.md"),
    *ROOT.glob("scripts/**/*.md"),
]
OURS = re.compile(
    r"(bash|python) (recipes/|scripts/|-m scripts\.)|asr-\w+ \S|(torchrun|pip|sbatch|tensorboard) "
)
PIECE = re.compile(r"^```(?P<kind>\w*)\n(?P<block>.*?)^```$|`(?P<inline>[^`\n]+)`", re.M | re.S)
KINDS = {"sh", "python", "yaml", ""}
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
needs_commands = pytest.mark.skipif(
    not shutil.which("asr-train", path=PATH), reason="the commands are not installed"
)


@dataclass(frozen=True)
class Piece:
    """What a page says to do: a command (sh), Python, or settings (yaml); `line` of the page."""

    kind: str
    text: str
    line: int


def pieces(page: Path) -> Iterator[Piece]:
    """Take all from a page, in the order of its text; a command is as the shell joins its lines, without comment."""
    text = page.read_text(encoding="utf-8")
    for found in PIECE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        if found["inline"]:
            if OURS.match(found["inline"]):
                yield Piece("sh", found["inline"], line)
            continue
        assert found["kind"] in KINDS, (
            f"{page}:{line}: a block of {found['kind']!r}, expected one of {KINDS}"
        )
        if found["kind"] != "sh":
            yield Piece(found["kind"], found["block"], line)
            continue
        for command in found["block"].replace("\\\n", " ").splitlines():
            if command := " ".join(re.sub(r"(^|\s)#\s.*", "", command).split()):
                yield Piece("sh", command, line)


def commands(page: str) -> list[str]:
    """List the commands of a page."""
    return [piece.text for piece in pieces(ROOT / page) if piece.kind == "sh"]


def test_every_page_is_known():
    there = {
        str(path.relative_to(ROOT)) for path in TEXTS if not {".bench", ".venv"} & set(path.parts)
    }
    assert there == {*PAGES, "docs/extend.md"}  # test_extend.py


@pytest.mark.parametrize("page", PAGES)
def test_every_command_stands_in_the_table_and_the_table_in_the_pages(page):
    said, known = set(commands(page)), set(PAGES[page])
    assert not said - known, (
        f"{page}: say in tests/documented.yaml how to try {sorted(said - known)}"
    )
    assert not known - said, (
        f"{page}: has no more {sorted(known - said)}; take them out of tests/documented.yaml"
    )


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_commands_are_found_in_blocks_and_in_lines(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "Run `bash recipes/a/run.sh x`, not `asr-train` or `exp/a`.\n```sh\nasr-train --config a \\\n    b=c  # why\n\n"
        "# alone\n```\n```yaml\na: 1\n```\n"
    )
    assert [(piece.kind, piece.text, piece.line) for piece in pieces(page)] == [
        ("sh", "bash recipes/a/run.sh x", 1),
        ("sh", "asr-train --config a b=c", 2),
        ("yaml", "a: 1\n", 8),
    ]
    page.write_text("```json\n{}\n```\n")
    with pytest.raises(AssertionError, match=":1: a block of 'json'"):
        list(pieces(page))


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_are_there(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    names = re.findall(r"(?<![\w./-])((?:asr|conf|docs|recipes|scripts|tests)/[\w./-]*\w)", text)
    links = [
        os.path.normpath(Path(page).parent / link)
        for link in re.findall(r"\]\(([^):#]+)[^)]*\)", text)
    ]
    assert not [name for name in (*names, *links) if not (ROOT / name).exists() and not _made(name)]


def _made(name: str) -> bool:
    """Whether a name is of what a recipe makes."""
    return re.search("/(data|exp)(/|$)", name) is not None


def test_every_corpus_that_the_guide_names_can_be_downloaded(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        "asr.download.disk.free", lambda folder: 1 << 50
    )  # however small this machine's disk is
    section = (
        (ROOT / "docs/guide.md")
        .read_text(encoding="utf-8")
        .partition("## Downloads")[2]
        .partition("## ")[0]
    )
    named = set(re.findall(r"asr-download ([\w-]+)", section)) | set(
        re.findall("`([a-z0-9-]+)`", section)
    )
    assert named == set(SOURCES)
    for name in sorted(named):
        download.main([name, str(tmp_path / "corpora"), "--dry-run"])
        assert "disk: about" in capsys.readouterr().err
    assert not (tmp_path / "corpora").exists()


def test_the_model_alone_is_as_the_guide_says():
    text = (ROOT / "docs/guide.md").read_text(encoding="utf-8")
    call, shape = re.search(r"`(Hybrid\(.*?\))` gives logits `\((.*?)\)`", text).groups()
    settings = load(Experiment, ROOT / "conf/mini.yaml").model
    X, Y, lens = torch.randn(2, 60, 80), torch.tensor([[3, 4, 5], [6, 7, -1]]), torch.tensor([3, 2])
    names = {
        "Hybrid": Hybrid,
        "settings": settings,
        "X": X,
        "X_lens": torch.tensor([60, 40]),
        "Y": Y,
        "Y_lens": lens,
    }
    logits, lengths = eval(call, names)  # our own page's
    assert (
        shape == "B, U + 1, V" and logits.shape == (2, 3 + 1, 5000) and lengths.tolist() == [4, 3]
    )


# running them

# the steps that take minutes, in a recipe that is tried up to them: ASR_TRIAL
TRIAL = {
    "scripts/evaluate.sh": """#!/usr/bin/env bash
set -euo pipefail
if [ -n "${ASR_TRIAL:-}" ] && [ -z "${ASR_PLAN:-}" ]; then echo "evaluated $1 $2"; exit; fi
""",
    "bin/asr-train": """#!/bin/sh
[ -z "$ASR_TRIAL" ] || set -- "$@" --print-config
exec python -m asr.cli.train "$@"
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


HELP: dict[
    tuple[str, ...], tuple[int, str]
] = {}  # program → status and text of its --help, the same in all copies


class Checkout:
    """A fresh copy of the checkout in a folder whose name has a space, with what a page's commands need."""

    def __init__(self, folder: Path, page: str):
        self.root = folder / "a checkout"
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        for name in PLACES:
            shutil.copytree(ROOT / name, self.root / name, ignore=ignored)
        for path in ROOT.iterdir():
            if path.is_file():
                shutil.copy(path, self.root)
        for name, text in TRIAL.items():
            path = self.root / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(
                text
                + (path.read_text().partition("set -euo pipefail\n")[2] if path.exists() else "")
            )
            path.chmod(0o755)
        for setup in SETUPS.get(page, ()):
            setup(self.root)
        self.environment = os.environ | {
            "PATH": f"{self.root / 'bin'}{os.pathsep}{PATH}",
            "VIRTUAL_ENV": sys.prefix,
            "PYTHONPATH": str(self.root),
            "CUDA_VISIBLE_DEVICES": "",
            "CDPATH": "/usr:/tmp",
        }

    def run(self, *words: str) -> tuple[int, str]:
        """Run a program; its status, and all that it says."""
        joined = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
            "stdin": subprocess.DEVNULL,
        }
        done = subprocess.run(
            words, cwd=self.root, env=self.environment, text=True, errors="replace", **joined
        )
        return done.returncode, done.stdout

    def do(self, piece: Piece, way: Way | None) -> str:
        """Do what a piece says; empty, or what is wrong with it."""
        if piece.kind == "python":
            status, said = self.run(sys.executable, "-c", piece.text)
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
        status, said = self.run("bash", "-c", f"{text} {way.more}")
        if status != way.status:
            return f"status {status}, expected {way.status}\n{said}"
        return "" if re.search(way.says, said) else f"doesn't say {way.says!r}\n{said}"

    def look(self, command: str) -> str:
        """Compare the options of a command with those that its --help tells."""
        words = shlex.split(command)
        name = tuple(words[: 1 if words[0].startswith("asr-") else 2 + (words[1] == "-m")])
        if name not in HELP:
            HELP[name] = self.run(*name, "--help")
        status, said = HELP[name]
        unknown = [
            word
            for word in words
            if re.fullmatch("--[a-z-]+", word) and not re.search(rf"(?m)(\s|\[){word}\b", said)
        ]
        return (
            f"status {status}; --help doesn't tell {unknown}\n{said}" if status or unknown else ""
        )

    def load(self, block: str) -> str:
        """Merge settings into those that the page has made."""
        made, _ = yaml_tree.read_tree(self.root / "exp/mine/config.yaml")
        (self.root / "merged.yaml").write_text(
            yaml_tree.write(made | {"data": made["data"] | yaml.safe_load(block)})
        )
        load(Experiment, self.root / "merged.yaml")
        named = re.findall(r"manifest: ([^\s,}]+)", block)
        return "".join(f"{name}: isn't there" for name in named if not (self.root / name).exists())


@needs_commands
@pytest.mark.parametrize("page", [page for page in PAGES if PAGES[page]])
def test_the_commands_of_a_page_work_as_they_are_written(page, tmp_path):
    checkout, done, failed = Checkout(tmp_path, page), set(), []
    for piece in pieces(ROOT / page):
        if not piece.kind or piece in done or piece.text in done:
            continue
        done.add(piece.text)
        way = PAGES[page].get(piece.text)
        began = time.monotonic()
        wrong = checkout.do(piece, way.whole if WHOLE and way and way.whole else way)
        print(
            f"{time.monotonic() - began:6.1f} s  {page}:{piece.line}: {piece.text.splitlines()[0][:100]}"
        )
        if wrong:
            failed.append(f"{page}:{piece.line}: {piece.text}\n{wrong}")
    assert not failed, "\n\n".join(failed)
