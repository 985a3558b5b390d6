"""A YAML file and key.path=value overrides → one plain tree that remembers where each value came from.

Two traps of YAML 1.1 are closed: a repeated key is an error, and 5e-4 is a number.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from asr.errors import UserError

COMMAND_LINE = "command line"


class Source:
    """Where the values of a tree came from: the file, or for overridden keys the command line."""

    def __init__(self, path: str | Path, overridden: Sequence[tuple[str, ...]] = ()):
        self.path, self.overridden = str(path), list(overridden)

    def of(self, key_path: Sequence) -> str:
        """Name the origin of the value at a key path."""
        keys = tuple(map(str, key_path))
        return COMMAND_LINE if any(keys[: len(o)] == o for o in self.overridden) else self.path


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses repeated keys and reads YAML 1.2 floats."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        seen = set()
        for key_node, _ in node.value:
            key, line = self.construct_object(key_node, deep=True), key_node.start_mark.line + 1
            if isinstance(key, (list, dict)):
                raise UserError(f"{self.name}:{line}: got the key {key!r}, expected a name")
            if key in seen:
                raise UserError(f"{self.name}:{line}: key {key!r} stands here a second time; keep one of the two")
            seen.add(key)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """SafeDumper that quotes a text which looks like a YAML 1.2 float."""


for _side in (_Loader, _Dumper):
    _side.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?(\d[\d_]*\.?\d*([eE][-+]?\d+)|\d[\d_]*\.\d*|\.\d+([eE][-+]?\d+)?)$"),
        list("-+0123456789."),
    )


def write(tree: Any) -> str:
    """Write a plain tree as YAML text that `parse` reads back to an equal one."""
    return yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def parse(text: str, name: str) -> Any:
    """Parse YAML text; `name` stands in the messages.

    raises   UserError with name and line
    """
    loader = None
    try:
        loader = _Loader(text)
        loader.name = name
        return loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UserError(f"{name}{line}: not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise UserError(f"{name}: not valid YAML: {' '.join(str(error).split())}") from None
    finally:
        if loader is not None:
            loader.dispose()


def read_tree(path: str | Path, overrides: Sequence[str] = ()) -> tuple[dict, Source]:
    """Read a YAML file into a plain tree and apply `key.path=value` overrides.

    raises   UserError if the file is missing, unreadable or no mapping, or an override is malformed
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text (byte {error.start}); is this a YAML file?") from None
    except OSError as error:
        raise UserError(f"{path}: can't read this configuration file ({error.strerror})") from None
    tree = parse(text, str(path))
    if not isinstance(tree, dict):
        raise UserError(f"{path}: got {type(tree).__name__}, expected a mapping of settings (key: value)")
    keys = [override(tree, text) for text in overrides]
    return tree, Source(path, keys)


def override(tree: dict, assignment: str) -> tuple[str, ...]:
    """Set one value of a tree in place from `key.path=value`, the value read as YAML.

    returns  the path of what is new: the value's, or that of the first mapping made for it
    """
    key_path, equals, text = assignment.partition("=")
    keys = tuple(key_path.split("."))
    if not equals or not all(keys):
        raise UserError(f"{COMMAND_LINE}: got {assignment!r}, expected key.path=value, as in optimizer.lr=1e-3")
    node, new = tree, keys
    for n, key in enumerate(keys[:-1]):
        if node.get(key) is None:
            node[key], new = {}, min(new, keys[: n + 1], key=len)
        node = node[key]
        if not isinstance(node, dict):
            value, rest = ".".join(keys[: n + 1]), ".".join(keys[n + 1 :])
            raise UserError(f"{COMMAND_LINE}: {value} is a value, it has no {rest}")
    node[keys[-1]] = parse(text, f"{COMMAND_LINE}: {key_path}")
    return new
