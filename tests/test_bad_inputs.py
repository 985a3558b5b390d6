"""Whatever is given to the commands, they say what is wrong in a line, lose nothing, and never pass over it silently.

The bad inputs, and what a user should get, stand in tables, a file a command, in bad_inputs/. They were written before
the code that meets them; what is expected comes from what a user needs, not from what the code does. Each runs in a
process of its own (forks.py), in a folder of its own. The checker is shown to find planted faults.
"""

import fnmatch
import hashlib
import os
import shlex
import stat
import subprocess
from pathlib import Path

import pytest
from bad_inputs import PROCESS, made, table, wrong_results
from forks import Forks
from partly import partly
from tones import CONFIG, write_corpus

SECONDS = float(os.environ.get("BAD_INPUT_SECONDS", 60))  # then it counts as a hang
COMMANDS = ("download", "prepare", "tokenizer", "ngram", "train", "decode", "score", "info", "plot")
TABLES = {f"asr-{name}": table(name) for name in COMMANDS}
ROWS = [row for rows in TABLES.values() for row in rows]
LM = """
out: {root}/lm
seed: 3
tokenizer: {root}/tokenizer
data: {{train: {root}/text.txt, dev: {root}/text.txt, batch_tokens: 200}}
model: {{kind: lm, d_model: 16, layers: 1, heads: 2, ff: 32, dropout: 0.0}}
optimizer: {{kind: adamw, lr: 4e-3}}
schedule: {{kind: cosine, warmup: 2}}
training: {{epochs: 1, average: 1, device: cpu, processes: 1}}
"""


@pytest.fixture(scope="session")
def ready(forks, tmp_path_factory):
    """What is good, made once by the commands themselves: name → path."""
    root = tmp_path_factory.mktemp("ready")
    write_corpus(root / "corpus", {"train": 12, "dev": 4})
    (root / "text.txt").write_text("LOW MID HIGH\nMID HIGH LOW LOW\nHIGH\nLOW LOW\n")
    (root / "x.yaml").write_text(CONFIG.format(root=root))
    (root / "lm.yaml").write_text(LM.format(root=root))
    for line in (
        "asr-prepare tsv corpus data",
        "asr-tokenizer data/train.jsonl.gz tokenizer --kind characters",
        "asr-train --config x.yaml training.epochs=1 training.processes=1",
        "asr-train --config lm.yaml",
        "asr-ngram text.txt tokenizer lm.arpa --order 2",
    ):
        done = forks.run(shlex.split(line), root)
        assert done.status == 0, (line, done.err)
    names = {"config": "x.yaml", "lmconfig": "lm.yaml", "text": "text.txt", "arpa": "lm.arpa"}
    names |= {f"{split}": f"data/{split}.jsonl.gz" for split in ("train", "dev")}
    names |= {name: name for name in ("model", "tokenizer", "lm")}
    return {name: root / path for name, path in names.items()} | {
        "wav": root / "corpus/train000.wav"
    }


@pytest.fixture
def room(tmp_path):
    yield tmp_path
    subprocess.run(["chmod", "-R", "u+rwX", tmp_path], check=True)  # so that it can be removed


@pytest.mark.parametrize("row", partly(ROWS, 6), ids=lambda row: f"{first(row)}: {row['name']}")
def test_bad_input(row, forks, ready, room):
    assert not faults(row, forks, ready, room)


def first(row: dict) -> str:
    """The command's name."""
    return row["run"].split()[0]


def faults(row: dict, forks: Forks, ready: dict[str, Path], room: Path) -> list[str]:
    """Run a row; say all that isn't as it should be."""
    roots = [room, ready["text"].parent]
    with made(row, room, ready) as names:
        words = shlex.split(row["run"])
        for name in sorted(names, key=len, reverse=True):
            words = [word.replace(f"${name}", names[name]) for word in words]
        before = [state(root) for root in roots]
        how = {key: row[key] for key in row.keys() & PROCESS}
        done = forks.run(words, room, SECONDS, **how)
        after = [state(root) for root in roots]
    found = [*misbehavior(row, done), *losses(row, before, after)]
    if done.status is not None:
        found += wrong_results(row, done, room, names)
    return [*found, f"it said: {ascii(done.err.strip()[-600:])}"] if found else []


def misbehavior(row: dict, done) -> list[str]:
    """What is wrong with the status and the words."""
    expected = row.get("status", 2)
    expected = expected if isinstance(expected, list) else [expected]
    if done.status is None:
        return [f"no end within {SECONDS:g} s, expected {' or '.join(map(str, expected))}"]
    found, said = [], done.err + done.out  # --check reports on stdout
    if "Traceback (most recent call last)" in done.err or "Exception ignored" in done.err:
        found.append(f"traceback: {done.err.strip().splitlines()[-1][:200]}")
    if done.status not in expected:
        found.append(f"status {done.status}, expected {' or '.join(map(str, expected))}")
    if "\x1b" in said:
        found.append("a command of a terminal is said")
    for fact in row.get("says", []) if done.status in (2, 3) else []:
        some = list(map(str, fact)) if isinstance(fact, list) else [str(fact)]
        if not any(each in said for each in some):
            found.append(f"not said: {' or '.join(map(repr, some))}")
    return found


def losses(row: dict, before: list[dict], after: list[dict]) -> list[str]:
    """What has happened to files that isn't allowed."""
    found = []
    for n, (old, new) in enumerate(zip(before, after, strict=True)):
        for name in old:
            if new.get(name) != old[name] and not (n == 0 and matches(name, row, "changes")):
                found.append(f"{'lost' if name not in new else 'changed'}: {name}")
        for name in new.keys() - old.keys():
            if ".partial-" in name or n == 1 or not matches(name, row, "leaves"):
                found.append(f"left behind: {name}")
    return found


def matches(name: str, row: dict, patterns: str) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in row.get(patterns, []))


def state(root: Path) -> dict[str, str]:
    """All that a folder holds but folders, by name: kind, permissions and content."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            content = os.readlink(path) if stat.S_ISLNK(mode) else ""
            if stat.S_ISREG(mode):
                content = digest(path)
            found[os.path.relpath(path, root)] = f"{mode:o} {content}"
    return found


def digest(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except PermissionError:
        return "closed"


def test_the_tables_are_as_many_as_promised():
    """Two hundred, at least fifteen for each command, no name twice."""
    for command, rows in TABLES.items():
        names = [row["name"] for row in rows]
        assert len(set(names)) == len(names) >= 15, command
        assert {first(row) for row in rows} == {command}
    assert len(ROWS) >= 200


PLANTED = {
    "traceback": "traceback: ValueError: x.txt",
    "overwriting": "changed: x.txt",
    "removing": "lost: x.txt",
    "leaving": "left behind: .partial-12-out",
    "hanging": "no end within",
    "eating": "traceback: MemoryError",
    "succeeding": "status 0, expected 2",
    "opening": "traceback: PermissionError",
    "filling": "traceback: OSError: [Errno 27] File too large",
    "silent": "not said: 'y.txt'",
    "good": "",
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found_and_what_behaves_is_not_blamed(
    fault, forks, ready, room, monkeypatch
):
    monkeypatch.setattr("test_bad_inputs.SECONDS", 2.0 if fault == "hanging" else 60.0)
    row = {"run": f"planted-{fault}", "files": {"x.txt": "mine", "closed.txt": ""}}
    row |= {"says": ["y.txt" if fault == "silent" else "x.txt", "choose"], "leaves": ["out"]}
    row |= {"shell": "chmod 0 closed.txt", "user": True, "file_bytes": 100}
    found = faults(row, forks, ready, room)
    expected = PLANTED[fault]
    assert any(each.startswith(expected) for each in found) if expected else not found, found
