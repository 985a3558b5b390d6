"""A YAML file and key.path=value overrides → one plain tree that remembers where each value came from.

YAML's traps are closed: a repeated key is an error, 5e-4 is a number, and what YAML 1.1 and 1.2
read differently (yes, 010, 1:30) is an error. Size and depth are bounded; there are no aliases,
which make a graph of a tree.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import yaml

from asr.errors import UserError

COMMAND_LINE = "command line"
# of a text, of its nesting, of a number
MOST_CHARACTERS, MOST_DEPTH, MOST_DIGITS = (
    200_000,
    32,
    100,
)
TAG, AMBIGUOUS = "tag:yaml.org,2002:", "!ambiguous"
KINDS = [  # of plain scalars: tag, pattern, first characters; all others are text
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(0|[1-9][\d_]*)|0x[\da-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\d[\d_]*\.?\d*[eE][-+]?\d+|\d[\d_]*\.\d*|\.\d+([eE][-+]?\d+)?|\.(inf|Inf|INF))|\.(nan|NaN|NAN)",
        list("-+0123456789."),
    ),
    ("merge", r"<<", ["<"]),
]
TRUTHS = r"yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF"  # to YAML 1.1, texts to 1.2
NUMBERS = r"[-+]?0[\d_]+|[-+]?0[box][\da-fA-F_]+|[-+]?\d[\d_]*(:[0-5]?\d)+(\.[\d_]*)?"  # base 8, 2, 16 and 60
NUMBERS += r"|\d{4}-\d\d?-\d\d?([Tt \t].*)?"  # dates


class Origins:
    """Where the values of a tree came from: the file, or for overridden keys the command line."""

    def __init__(self, path: str | Path, overridden: Sequence[tuple[str, ...]] = ()):
        self.path, self.overridden = str(path), list(overridden)

    def of(self, key_path: Sequence) -> str:
        """Name the origin of the value at a key path."""
        keys = tuple(map(str, key_path))
        return COMMAND_LINE if any(keys[: len(o)] == o for o in self.overridden) else self.path


class _Loader(yaml.SafeLoader):
    """SafeLoader of a plain tree: no repeated keys, no aliases, bounded depth, scalars as KINDS has them."""

    yaml_implicit_resolvers: ClassVar[dict] = {}
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node:
        event = self.peek_event()
        line, tag = event.start_mark.line + 1, getattr(event, "tag", None)
        if isinstance(event, yaml.AliasEvent):
            raise UserError(
                f"{self.name}:{line}: got an alias (*), expected the value itself; write it out"
            )
        if tag in self.yaml_constructors and tag is not None:
            name = tag.replace(TAG, "!!")
            raise UserError(
                f"{self.name}:{line}: got the tag {name}, expected a value without one; leave it out"
            )
        if self.depth >= MOST_DEPTH:
            raise UserError(
                f"{self.name}:{line}: nested deeper than {MOST_DEPTH} levels, as no setting is"
            )
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        seen = set()
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == f"{TAG}merge":
                raise UserError(
                    f"{self.name}:{line}: got the key <<, by which YAML 1.1 merges; write the settings out"
                )
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, (list, dict)):
                raise UserError(f"{self.name}:{line}: got the key {brief(key)}, expected a name")
            if key in seen:
                raise UserError(
                    f"{self.name}:{line}: key {brief(key)} stands here a second time; keep one of the two"
                )
            seen.add(key)
            self.check(value_node, f" {key}:")
        return super().construct_mapping(node, deep)

    def check(self, node: yaml.Node, key: str = "") -> None:
        """Refuse a scalar that versions of YAML read differently, and an endless number; key: it is the value of."""
        where, long = f"{self.name}:{node.start_mark.line + 1}:{key}", len(node.value) > MOST_DIGITS
        if node.tag == AMBIGUOUS:
            truth = re.fullmatch(TRUTHS, node.value)
            fix = "true or false" if truth else "a number in decimal digits"
            what = f"got {node.value[:80]}, which versions of YAML read differently"
            raise UserError(f"{where} {what}; write {fix}, or put a text in quotes")
        if node.tag == f"{TAG}int" and long:
            raise UserError(
                f"{where} got a number of {len(node.value)} digits, expected {MOST_DIGITS} at most"
            )

    def number(self, node: yaml.ScalarNode) -> int:
        """Read an integer, or say what keeps it from being one."""
        self.check(node)
        return int(node.value, 16 if node.value.startswith("0x") else 10)

    yaml_constructors = {
        **yaml.SafeLoader.yaml_constructors,
        f"{TAG}int": number,
        AMBIGUOUS: number,
    }


class _Dumper(yaml.SafeDumper):
    """SafeDumper that quotes a text which the loader wouldn't read as one, beside those that YAML 1.1 wouldn't."""


for _side in (_Loader, _Dumper):
    for _tag, _pattern, _first in KINDS:
        _side.add_implicit_resolver(f"{TAG}{_tag}", re.compile(f"^(?:{_pattern})$"), _first)
    _side.add_implicit_resolver(
        AMBIGUOUS, re.compile(f"^(?:{TRUTHS}|{NUMBERS})$"), list("yYnNoO-+0123456789")
    )


def brief(value: Any) -> str:
    """Show a value in a message, a long one cut.

    >>> brief("x" * 1000)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx ..."
    """
    shown = repr(value)
    return shown if len(shown) <= 120 else f"{shown[:52]} ..."


def write(tree: Any) -> str:
    """Write a plain tree as YAML text that `parse` reads back to an equal one."""
    return yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def parse(text: str, name: str) -> Any:
    """Parse YAML text; `name` stands in the messages.

    raises   UserError with name and line
    """
    if len(text) > MOST_CHARACTERS:
        raise UserError(f"{name}: larger than {MOST_CHARACTERS // 1000} kB; is it a configuration?")
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


def read_tree(path: str | Path, overrides: Sequence[str] = ()) -> tuple[dict, Origins]:
    """Read a YAML file into a plain tree and apply `key.path=value` overrides.

    raises   UserError if the file is missing, unreadable or no mapping, or an override is malformed
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MOST_CHARACTERS + 1)
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: not UTF-8 text (byte {error.start}); is this a YAML file?"
        ) from None
    except OSError as error:
        raise UserError(f"{path}: can't read this configuration file ({error.strerror})") from None
    except ValueError as error:  # a NUL in the path
        raise UserError(f"{path!r}: no path of a configuration file ({error})") from None
    tree = parse(text, str(path))
    if not isinstance(tree, dict):
        raise UserError(
            f"{path}: got {type(tree).__name__}, expected a mapping of settings (key: value)"
        )
    keys = [override(tree, text) for text in overrides]
    return tree, Origins(path, keys)


def override(tree: dict, assignment: str) -> tuple[str, ...]:
    """Set one value of a tree in place from `key.path=value`, the value read as YAML.

    returns  the path of what is new: the value's, or that of the first mapping made for it
    """
    key_path, equals, text = assignment.partition("=")
    keys = tuple(key_path.split("."))
    if not equals or not all(keys):
        raise UserError(
            f"{COMMAND_LINE}: got {brief(assignment)}, expected key.path=value, as in optimizer.lr=1e-3"
        )
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
