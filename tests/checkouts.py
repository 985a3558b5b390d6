"""Copies of the checkout for tests that run its scripts, and stand-ins for the commands that these run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
needs_commands = pytest.mark.skipif(
    not shutil.which("asr-train", path=PATH), reason="the commands are not installed"
)


def copy(root, *folders):
    """Copy folders of the checkout."""
    for folder in folders:
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / folder, root / folder, ignore=ignored)
    return root


def write_program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def bash(folder, *words, **environment):
    """Run a script with what it needs of the checkout; its status, stdout and stderr."""
    paths = {"PATH": PATH, "VIRTUAL_ENV": sys.prefix, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", *map(str, words)],
        cwd=folder,
        env=os.environ | paths | environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, done.stdout, done.stderr
