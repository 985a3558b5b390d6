"""Typed settings from one complete YAML file and key.path=value overrides; knows no speech.

A settings tree is made of classes that inherit `Settings`. Selectable parts are unions of such classes told apart by a
`kind: Literal[...]` field, declared with `OneOf`. Every mistake ends in a UserError of one line: file, key path, what
was got, what was expected and the nearest right name.
"""

import json
import re
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from asr.errors import UserError, did_you_mean
from asr.tree import COMMAND_LINE, Source, read_tree

T = TypeVar("T", bound="Settings")


class Settings(BaseModel):
    """Base of all settings: frozen, strict in its types, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, validate_default=True)


def one_of(*kinds: type[Settings]) -> Any:
    """Annotation of a selectable part: the settings classes to choose from by their `kind`."""
    return Annotated[Union[kinds], Field(discriminator="kind")] if len(kinds) > 1 else kinds[0]  # noqa: UP007


def load(cls: type[T], path: str | Path, overrides: Sequence[str] = ()) -> T:
    """Read a YAML file, apply `key.path=value` overrides and check the whole tree.

    raises   UserError, one line: file, key path, got, expected, nearest right name
    """
    tree, source = read_tree(path, overrides)
    return check(cls, tree, source)


def check(cls: type[T], tree: dict, source: Source) -> T:
    """Turn a plain tree into typed settings; UserError at the first mistake, naming where it stands."""
    try:
        return cls.model_validate(tree)
    except ValidationError as error:
        raise UserError(_explain(cls, tree, source, error.errors()[0], len(error.errors()) - 1)) from None


def dump(settings: Settings) -> str:
    """Write settings as YAML text that `load` reads back to an equal tree."""
    return yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=120)


def schema(cls: type[Settings]) -> str:
    """JSON schema of a settings tree, for editors that complete and check YAML."""
    return json.dumps(cls.model_json_schema(), indent=1) + "\n"


def _explain(cls: type[Settings], tree: dict, source: Source, error: dict, others: int) -> str:
    path = _key_path(tree, error["loc"])
    place = ".".join(map(str, path)) or "the whole tree"
    what = _mistake(cls, tree, path, error)
    more = f" (and {others} more mistake{'s' if others > 1 else ''})" if others else ""
    return f"{source.of(path)}: {place}: {what}{more}"


def _mistake(cls: type[Settings], tree: dict, path: list, error: dict) -> str:
    got = f"got {error['input']!r}"
    if error["type"] == "extra_forbidden":
        owner = _class_at(cls, tree, path[:-1])
        known = list(owner.model_fields) if owner else []
        return f"no such setting{did_you_mean(path[-1], known)}; known: {', '.join(known)}"
    if error["type"] == "missing":
        return "missing; a complete experiment states it"
    if error["type"].startswith("union_tag"):
        expected = error.get("ctx", {}).get("expected_tags", "a kind")
        tag = error.get("ctx", {}).get("tag")
        near = did_you_mean(tag, re.findall(r"\w+", expected))
        return f"got kind {tag!r}, expected one of {expected}{near}"
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    hint = ""
    if isinstance(error["input"], str) and re.fullmatch(r"[-+\d.]+([eE][-+]?\d+)?", error["input"]):
        hint = "; that is text: write the number without quotes"
    if error["type"] == "literal_error":
        hint = did_you_mean(error["input"], re.findall(r"'([^']*)'", error["ctx"]["expected"]))
    return f"{got}, expected: {_expected(error)}{hint}"


def _expected(error: dict) -> str:
    return re.sub(r"^Input should be (a )?(valid )?", "", error["msg"]).replace("dictionary or instance of", "mapping:")


def _key_path(tree: Any, loc: Sequence) -> list:
    """Drop from pydantic's location the tags of unions, which are no keys of the YAML."""
    path = []
    for n, key in enumerate(loc):
        last = n == len(loc) - 1
        if isinstance(tree, dict) and key not in tree and key == tree.get("kind") and not last:
            continue
        path.append(key)
        tree = _get(tree, key)
    return path


def _get(tree: Any, key: Any) -> Any:
    if isinstance(tree, dict):
        return tree.get(key)
    if isinstance(tree, list) and isinstance(key, int) and key < len(tree):
        return tree[key]
    return None


def _class_at(annotation: Any, tree: Any, path: Sequence) -> type[Settings] | None:
    """Find the settings class that stands at a key path."""
    annotation = _choose(annotation, tree)
    if not path or annotation is None:
        return annotation
    field = annotation.model_fields.get(path[0])
    if field is None:
        return None
    rest = path[1:]
    sub = _get(tree, path[0])
    if rest and isinstance(rest[0], int):
        return _class_at(typing.get_args(field.annotation)[0], _get(sub, rest[0]), rest[1:])
    return _class_at(field.annotation, sub, rest)


def _choose(annotation: Any, tree: Any) -> type[Settings] | None:
    """The settings class of an annotation; of a union the one whose kind the tree names."""
    if typing.get_origin(annotation) is Annotated:
        annotation = typing.get_args(annotation)[0]
    if typing.get_origin(annotation) in (Union, types.UnionType):
        members = [m for m in typing.get_args(annotation) if isinstance(m, type) and issubclass(m, Settings)]
        kind = _get(tree, "kind")
        named = [m for m in members if "kind" in m.model_fields and kind in typing.get_args(m.model_fields["kind"].annotation)]
        return (named or members or [None])[0]
    return annotation if isinstance(annotation, type) and issubclass(annotation, Settings) else None


__all__ = ["COMMAND_LINE", "Settings", "check", "dump", "load", "one_of", "schema"]
