"""Bad inputs of every command: what is given, and what a user should get. tests/test_bad_inputs.py runs them.

COMMAND.yaml is a list of sections of rows, `cause: {what is given, and what a user should get}`; `all` of a section
holds for each of its rows. Of every row this holds without being said: no traceback, no hang, no command of a
terminal, every input and every file that was there is the same to the byte afterwards, and no new file stays but those
of `leaves`.

    run      the command line, after that of `all`, split as a shell does; `$model` and other things that are ready
             stand for their paths, `$long300` for 300 letters. The row's own folder is where it runs
    says     each must stand in what the command says; of a list one of them
    status   the exit status, or those that are right; 2 unless it is said
    leaves   patterns of new files that may stay
    changes  patterns of files that may be changed

What is given, made in this order:

    copy     things that are ready: name → thing
    files    to write: name → content, `!bytes` in Latin-1, `!made` a name of material.MADE
    lines    manifests to write: name → {of: which manifest, line or all: {dotted place: value}, or another line}
    cut      bytes to keep of a file, or to leave off its end
    replace  in a file: [a pattern, what to write there]
    mirror   the answer of a server, which is `$mirror`: material.answer
    given    a function of material.GIVEN
    shell    commands of a shell; `$model` and the like are paths

What a user should get, beside:

    prints   each must stand on stdout, unless it is refused
    never    what must not be said
    once     what must be said exactly once
    holds    of a file made of this name: what it holds, unless it is refused
    listed   what *failed.tsv must name
    ids      of a file: the ids of its lines, unless it is refused
    json     true: each line of stdout is JSON

And of the process: see `PROCESS`.
"""

import contextlib
import gzip
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import reduce
from operator import getitem
from pathlib import Path

import yaml

from bad_inputs.material import GIVEN, MADE, Mirror

PROCESS = {
    "stdin": "text to read there, from a pipe; else /dev/null",
    "stdout": "a file to write to, as /dev/full; None: closed",
    "stderr": "likewise",
    "cwd_in": "folder to run in; with a trailing !: removed before the command begins",
    "file_bytes": "no file may become larger, as on a full disk",
    "memory": "bytes that the command may take beyond what the imported libraries have",
    "user": "True: without root's right to read and write whatever the permissions say",
    "hasty": "True: waits for servers take no time, and their silence is noticed in a second",
    "env": "variables to set, or with None to unset; this and `real` take a process of its own",
    "real": "True: a process of its own, in which the libraries are imported anew",
}
KEYS = set(re.findall(r"^    (\w+)  ", __doc__, re.MULTILINE)) | PROCESS.keys()


class Loader(yaml.SafeLoader):
    pass


Loader.add_constructor("!bytes", lambda _, node: node.value.encode("latin-1"))
Loader.add_constructor("!made", lambda _, node: MADE[node.value])


def table(command: str) -> list[dict]:
    """The rows of COMMAND.yaml, each with its `name`."""
    text = Path(__file__).with_name(f"{command}.yaml").read_text(encoding="utf-8")
    return [
        joined(section.get("all", {}), row) | {"name": name}
        for section in yaml.load(text, Loader)
        for name, row in section["rows"].items()
    ]


def joined(all_: dict, row: dict) -> dict:
    """A row with what holds for all."""
    assert row.keys() | all_.keys() <= KEYS, (row.keys() | all_.keys()) - KEYS
    result = all_ | row
    for key in all_.keys() & row.keys():
        if key in ("run", "shell"):
            result[key] = f"{all_[key]}\n{row[key]}"
        elif key == "says":
            result[key] = all_[key] + row[key]
        elif isinstance(row[key], dict):
            result[key] = all_[key] | row[key]
    return result


@contextlib.contextmanager
def made(row: dict, folder: Path, ready: dict[str, Path]):
    """Make in a folder what is given; yield what `$name` stands for."""
    names = {name: str(path) for name, path in ready.items()}
    names |= {f"long{n}": "x" * n for n in (250, 300, 5000)}
    for name, what in row.get("copy", {}).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (shutil.copytree if ready[what].is_dir() else shutil.copyfile)(ready[what], folder / name)
    for name, content in row.get("files", {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    for name, changes in row.get("lines", {}).items():
        write = gzip.open if name.endswith(".gz") else open
        with write(folder / name, "wt") as file:
            file.writelines(f"{line}\n" for line in changed(ready[changes["of"]], changes))
    for name, size in row.get("cut", {}).items():
        (folder / name).write_bytes((folder / name).read_bytes()[:size])
    for name, (old, new) in row.get("replace", {}).items():
        text, count = re.subn(old, new, (folder / name).read_text(encoding="utf-8"))
        assert count, (name, old)
        (folder / name).write_text(text, encoding="utf-8")
    with Mirror(row.get("mirror")) as server:
        names["mirror"] = server.url
        if "given" in row:
            GIVEN[row["given"]](folder)
        if "shell" in row:
            subprocess.run(
                ["bash", "-euc", row["shell"]], cwd=folder, env=os.environ | names, check=True
            )
        yield names


def changed(manifest: Path, changes: dict) -> Iterator[str]:
    """The lines of a ready manifest with changes."""
    with gzip.open(manifest, "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    for n, line in enumerate(lines, 1):
        change = changes.get("all", changes.get(n, {}))
        if isinstance(change, str):
            yield change
            continue
        for place, value in change.items():
            *path, last = (int(step) if step.isdigit() else step for step in place.split("."))
            reduce(getitem, path, line)[last] = value
        yield json.dumps(line)


def wrong_results(row: dict, done, folder: Path, names: dict[str, str]) -> list[str]:
    """What isn't as it should be of what a command has made and printed."""
    found = [f"said: {fact}" for fact in [row.get("never")] if fact and fact in done.err + done.out]
    if done.status == 2:
        return found
    if "once" in row and done.err.count(row["once"]) != 1:
        found.append(f"not said once: {row['once']}")
    found += [f"not printed: {fact}" for fact in row.get("prints", []) if fact not in done.out]
    holds = row.get("holds", {}) | ({"*failed.tsv": row["listed"]} if "listed" in row else {})
    for pattern, fact in holds.items():
        if not any(fact in content_of(path) for path in folder.rglob(pattern)):
            found.append(f"{pattern} doesn't hold {fact!r}")
    for name, ids in row.get("ids", {}).items():
        text = "".join(map(content_of, folder.rglob(name)))
        got = [
            json.loads(x)["id"] if x.startswith("{") else x.split("\t")[0]
            for x in text.splitlines()
        ]
        if got != [names.get(each.removeprefix("$"), each) for each in ids]:
            found.append(f"{name} is of {got}")
    for line in done.out.splitlines() if row.get("json") else ():
        json.loads(line)
    return found


def content_of(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
