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
from pathlib import Path

import pytest
from bad_inputs import decode, download, info, ngram, prepare, score, tokenizer, train
from bad_inputs.case import Case, Done, Room, case
from forks import Forks
from tones import CONFIG, write_corpus

SECONDS = float(os.environ.get("BAD_INPUT_SECONDS", 60))  # then it counts as a hang
TABLES = {
    "asr-" + m.__name__.split(".")[-1]: m
    for m in (download, prepare, tokenizer, ngram, train, decode, score, info)
}
CASES = [each for table in TABLES.values() for each in table.CASES]
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
def forks(tmp_path_factory):
    made = Forks(tmp_path_factory.mktemp("home"))
    yield made
    made.close()


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
    names |= {
        "wav": "corpus/train000.wav",
        "train": "data/train.jsonl.gz",
        "dev": "data/dev.jsonl.gz",
    }
    return {name: root / names.get(name, name) for name in (*names, "model", "tokenizer", "lm")}


@pytest.fixture
def room(ready, tmp_path):
    made = Room(tmp_path, ready)
    yield made
    made.close()
    for path in sorted(tmp_path.rglob("*")):  # so that it can be removed
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)


@pytest.mark.parametrize("each", CASES, ids=lambda each: f"{first(each)}: {each.name}")
def test_bad_input(each, forks, room):
    assert not faults(each, forks, room)


def faults(each: Case, forks: Forks, room: Room) -> list[str]:
    """Run a case; say all that isn't as it should be."""
    if each.given:
        each.given(room)
    roots = [room.path, room.ready["text"].parent]
    before = [state(root) for root in roots]
    how = {("cwd_in" if name == "cwd" else name): value for name, value in each.how.items()}
    done = forks.run(arguments(each, room), room.path, SECONDS, **how)
    after = [state(root) for root in roots]
    found = [*misbehavior(each, done), *losses(each, before, after)]
    if each.then and done.status is not None:
        try:
            each.then(room, Done(done.status, done.out, done.err))
        except (AssertionError, OSError, ValueError, ZeroDivisionError) as error:
            found.append(f"wrong result: {type(error).__name__} {str(error)[:300]}")
    if found:
        found.append(f"it said: {shown(done.err)}")
    return found


def arguments(each: Case, room: Room) -> list[str]:
    """The case's arguments, with the paths of what is ready for their names, longest first."""
    words = (
        shlex.split(each.line) if isinstance(each.line, str) else list(map(os.fsdecode, each.line))
    )
    for name in sorted(room.ready, key=len, reverse=True):
        words = [word.replace(f"${name}", str(room.ready[name])) for word in words]
    return words


def first(each: Case) -> str:
    """The command's name."""
    return each.line.split()[0] if isinstance(each.line, str) else os.fsdecode(each.line[0])


def misbehavior(each: Case, done) -> list[str]:
    """What is wrong with the status and the words."""
    allowed = each.status if isinstance(each.status, tuple) else (each.status,)
    if done.status is None:
        return [f"no end within {SECONDS:g} s, expected {' or '.join(map(str, allowed))}"]
    found = []
    if "Traceback (most recent call last)" in done.err or "Exception ignored" in done.err:
        found.append(f"traceback: {done.err.strip().splitlines()[-1][:200]}")
    if done.status not in allowed:
        found.append(f"status {done.status}, expected {' or '.join(map(str, allowed))}")
    if "\x1b" in done.err:
        found.append("a command of a terminal in the message")
    if done.status in (2, 3):
        said = done.err + done.out  # --check reports on stdout
        missing = [fact for fact in each.says if not any(x in said for x in alternatives(fact))]
        found += [f"not said: {' or '.join(map(repr, alternatives(fact)))}" for fact in missing]
    return found


def alternatives(fact: str | tuple) -> tuple:
    return fact if isinstance(fact, tuple) else (fact,)


def losses(each: Case, before: list[dict], after: list[dict]) -> list[str]:
    """What has happened to files that isn't allowed."""
    found = []
    for n, (old, new) in enumerate(zip(before, after, strict=True)):
        for name in old:
            if new.get(name) != old[name] and not (n == 0 and allowed(name, each.changes)):
                found.append(f"{'lost' if name not in new else 'changed'}: {name}")
        for name in new.keys() - old.keys():
            if ".partial-" in name or n == 1 or not allowed(name, each.leaves):
                found.append(f"left behind: {name}")
    return found


def allowed(name: str, patterns: tuple) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def state(root: Path) -> dict[str, str]:
    """All that a folder holds but folders, by name: kind, permissions and content."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            content = (
                os.readlink(path)
                if stat.S_ISLNK(mode)
                else digest(path)
                if stat.S_ISREG(mode)
                else ""
            )
            found[os.path.relpath(path, root)] = f"{mode:o} {content}"
    return found


def digest(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except PermissionError:
        return "closed"


def shown(text: str) -> str:
    """The end of what was said."""
    return ascii(text.strip()[-600:])


def test_the_tables_are_as_many_as_promised():
    """Two hundred, at least fifteen for each command, no name twice."""
    for command, table in TABLES.items():
        names = [each.name for each in table.CASES]
        assert len(set(names)) == len(names) >= 15, command
        assert {first(each) for each in table.CASES} == {command}
    assert len(CASES) >= 200


@pytest.mark.parametrize(
    "fault, expected",
    [
        ("traceback", "traceback: ValueError: x.txt"),
        ("overwriting", "changed: x.txt"),
        ("removing", "lost: x.txt"),
        ("leaving", "left behind: .partial-12-out"),
        ("hanging", "no end within"),
        ("eating", "traceback: MemoryError"),
        ("succeeding", "status 0, expected 2"),
        ("opening", "traceback: PermissionError"),
        ("filling", "traceback: OSError: [Errno 27] File too large"),
    ],
)
def test_a_planted_fault_is_found(fault, expected, forks, room, monkeypatch):
    monkeypatch.setattr("test_bad_inputs.SECONDS", 2.0 if fault == "hanging" else 60.0)
    given = lambda r: [r.write("x.txt", "mine"), r.write("closed.txt").chmod(0)]  # noqa: E731
    how = {"user": True, "file_bytes": 100, "leaves": ("out",)}
    found = faults(
        case(fault, f"planted-{fault}", "x.txt", "choose", given=given, **how), forks, room
    )
    assert any(each.startswith(expected) for each in found), found


def test_what_behaves_is_not_blamed(forks, room):
    given = lambda r: r.write("x.txt", "mine")  # noqa: E731
    assert faults(case("good", "planted-good", "x.txt", given=given), forks, room) == []
    assert "not said: 'y.txt'" in faults(case("silent", "planted-good", "y.txt"), forks, room)
