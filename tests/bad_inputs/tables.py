"""Read a table of bad inputs: YAML, a list of sections of rows, `cause: {what is given, and what a user should get}`.

`all` of a section holds for each of its rows. Beside the keys of a `Case` and of `PROCESS` a row may have

    run     the command line; after that of `all`
    copy    things of `READY` to copy: name → thing
    files   to write: name → content, `!bytes` in Latin-1, `!made` a name of material.MADE
    edit    a file → [a piece of it, what to write there]
    shell   commands of a shell in the room; `$model` and the like are paths
    then    a check of the command's module
    listed  what *failed.tsv must name
"""

import os
import subprocess
from pathlib import Path

import yaml

from bad_inputs.case import PROCESS, Case, Room, both, named
from bad_inputs.material import MADE


class Loader(yaml.SafeLoader):
    pass


Loader.add_constructor("!bytes", lambda _, node: node.value.encode("latin-1"))
Loader.add_constructor("!made", lambda _, node: MADE[node.value])


def rows(command: str, checks: dict) -> list[Case]:
    """The cases of COMMAND.yaml; `checks` holds those that it names."""
    text = Path(__file__).with_name(f"{command}.yaml").read_text(encoding="utf-8")
    return [
        made(name, joined(section.get("all", {}), row), checks)
        for section in yaml.load(text, Loader)
        for name, row in section["rows"].items()
    ]


def joined(all_: dict, row: dict) -> dict:
    """A row with what holds for all."""
    result = all_ | row
    for key in all_.keys() & row.keys():
        if key in ("run", "shell"):
            result[key] = f"{all_[key]}{' ' if key == 'run' else chr(10)}{row[key]}"
        elif key == "says":
            result[key] = all_[key] + row[key]
        elif key in ("copy", "files", "edit"):
            result[key] = all_[key] | row[key]
    return result


def made(name: str, row: dict, checks: dict) -> Case:
    def given(room: Room) -> None:
        for path, what in row.get("copy", {}).items():
            room.copy(what, path)
        for path, content in row.get("files", {}).items():
            room.write(path, content)
        for path, (old, new) in row.get("edit", {}).items():
            room.edit(path, old, new)
        if "shell" in row:
            env = os.environ | {key: str(value) for key, value in room.ready.items()}
            subprocess.run(["bash", "-euc", row["shell"]], cwd=room.path, env=env, check=True)

    then = [checks[row["then"]]] if "then" in row else []
    then += [named("*failed.tsv", row["listed"])] if "listed" in row else []
    more = {key: tuple(row[key]) for key in ("leaves", "changes") if key in row}
    status = row.get("status", 2)
    return Case(
        name,
        row["run"],
        tuple(tuple(fact) if isinstance(fact, list) else str(fact) for fact in row.get("says", [])),
        given,
        tuple(status) if isinstance(status, list) else status,
        then=both(*then) if then else None,
        how={key: row[key] for key in row.keys() & PROCESS},
        **more,
    )
