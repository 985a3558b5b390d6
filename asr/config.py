"""Typed settings from one complete YAML file and key.path=value overrides; knows no speech.

A settings tree is made of classes that inherit `Settings`. A selectable part is a union of such
classes, told apart by a `kind: Literal[...]` field: `Annotated[A | B,
Field(discriminator="kind")]`. Where the kind of a part decides about the whole tree, `by_part`
declares the tree. Every mistake ends in a UserError of one line: file, key path, what was got, what
was expected and the nearest right name.
"""

import json
import re
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, cast

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from asr.errors import UserError, did_you_mean
from asr.yaml_tree import COMMAND_LINE, Origins, brief, read_tree, write

T = TypeVar("T", bound="Settings")
MISSING, MAPPING = "missing; a complete experiment states it", "a mapping of settings (key: value)"


class Settings(BaseModel):
    """Base of all settings: frozen, strict in its types, unknown keys refused."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, validate_default=True
    )


@dataclass(frozen=True)
class _Part:
    """The part of a tree that tells whole trees apart."""

    name: str


def by_part(name: str, *trees: type[Settings]) -> Any:
    """Annotation of a whole tree: the settings classes to choose from by the `kind` of the part `name`."""
    return Annotated[Union[trees], _Part(name)]  # noqa: UP007


def load(cls: type[T], path: str | Path, overrides: Sequence[str] = ()) -> T:
    """Read a YAML file, apply `key.path=value` overrides and check the whole tree.

    raises   UserError, one line: file, key path, got, expected, nearest right name
    """
    tree, source = read_tree(path, overrides)
    return check(cls, tree, source)


def check(cls: type[T], tree: dict, source: Origins) -> T:
    """Turn a plain tree into typed settings; UserError at the first mistake, naming where it stands."""
    whole = _whole(cls, tree, source)
    if path := _impossible(tree):
        value = _at(tree, path)
        expected = (
            "a number of 64 bits"
            if isinstance(value, int)
            else "a text without NUL or halves of characters"
        )
        raise UserError(
            f"{source.of(path)}: {_place(path)}: got {brief(value)}, expected {expected}"
        )
    try:
        return cast(T, whole.model_validate(tree))
    except ValidationError as error:
        raise UserError(_explain(whole, tree, source, error.errors())) from None


def dump(settings: Settings) -> str:
    """Write settings as YAML text that `load` reads back to an equal tree."""
    return write(settings.model_dump(mode="json"))


def schema(cls: type[Settings]) -> str:
    """JSON schema of a settings tree, for editors that complete and check YAML."""
    return json.dumps(TypeAdapter(cls).json_schema(), indent=1) + "\n"


def _whole(cls: Any, tree: dict, source: Origins) -> type[Settings]:
    """The class of a whole tree; of those to choose from the one whose part has the tree's kind."""
    if isinstance(cls, type):
        return cls
    part, members = cls.__metadata__[0].name, _members(cls)
    trees = {
        kind: member for member in members for kind in _kinds(member.model_fields[part].annotation)
    }
    kind = _get(tree.get(part), "kind")
    if isinstance(kind, str) and kind in trees:
        return trees[kind]
    known = list(dict.fromkeys(name for member in members for name in member.model_fields))
    stray = [key for key in tree if key not in known]
    if part not in tree:
        path, what = ([stray[0]], _no_such(stray[0], known)) if stray else ([part], MISSING)
    elif not isinstance(tree[part], dict):
        path, what = [part], f"got {brief(tree[part])}, expected: {MAPPING}"
    else:
        path, what = [part, "kind"], _wrong_kind(kind, list(trees))
    raise UserError(f"{source.of(path)}: {_place(path)}: {what}")


def _explain(cls: type[Settings], tree: dict, source: Origins, found: Sequence[Any]) -> str:
    """Tell the first mistake, with all types that the value may be of, and how many more there are."""
    # a misspelled key is missing, too
    errors = sorted(found, key=lambda error: error["type"] != "extra_forbidden")
    places = [tuple(_key_path(tree, error["loc"], error["type"] == "missing")) for error in errors]
    first = [error for error, place in zip(errors, places, strict=True) if place == places[0]]
    path, what = _mistake(cls, tree, list(places[0]), first)
    others = len(set(places)) - 1
    more = f" (and {others} more mistake{'s' if others > 1 else ''})" if others else ""
    return f"{source.of(path)}: {_place(path)}: {what}{more}"


def _place(path: Sequence) -> str:
    place = ".".join(map(str, path)) or "the whole tree"
    return place if len(place) <= 200 else f"{place[:200]} ..."


def _mistake(cls: type[Settings], tree: dict, path: list, errors: list[dict]) -> tuple[list, str]:
    """Say where the mistake stands, and what it is; errors are all those of one place."""
    error = errors[0]
    if error["type"] == "extra_forbidden":
        return path, _no_such(path[-1], _fields(cls, tree, path[:-1]))
    if error["type"] == "missing":
        return path, MISSING
    if error["type"].startswith("union_tag"):
        return [*path, "kind"], _wrong_kind(
            error["ctx"].get("tag"), _kinds(_annotation_at(cls, tree, path))
        )
    if (
        error["type"] == "value_error"
    ):  # a validator of ours; its message may begin with the field that it's about
        message = str(error["ctx"]["error"])
        name, _, rest = message.partition(": ")
        return ([*path, name], rest) if name in _fields(cls, tree, path) else (path, message)
    return path, _wrong_value(errors)


def _no_such(name: Any, known: list[str]) -> str:
    return f"no such setting{did_you_mean(name, known)}; known: {', '.join(known)}"


def _wrong_kind(kind: Any, kinds: list[str]) -> str:
    got = "missing" if kind is None else f"got {brief(kind)}"
    return f"{got}, expected one of {', '.join(map(repr, kinds))}{did_you_mean(kind, kinds)}"


def _wrong_value(errors: list[dict]) -> str:
    error, hint = errors[0], ""
    if isinstance(error["input"], str) and re.fullmatch(r"[-+\d.]+([eE][-+]?\d+)?", error["input"]):
        hint = "; that is text: write the number without quotes"
    if error["type"] == "literal_error":
        hint = did_you_mean(error["input"], re.findall(r"'([^']*)'", error["ctx"]["expected"]))
    expected = " or ".join(dict.fromkeys(map(_expected, errors)))
    return f"got {brief(error['input'])}, expected: {expected}{hint}"


def _expected(error: dict) -> str:
    if error["type"] in ("model_type", "model_attributes_type"):
        return MAPPING
    if error["type"] == "invalid_key":
        return "a name as key"
    if error["type"] == "bool_type":
        return "true or false"
    return re.sub(r"^Input should be (a )?(valid )?", "", error["msg"])


def _key_path(tree: Any, loc: Sequence, missing: bool) -> list:
    """Drop from pydantic's location the tags of unions, which are no keys of the YAML; nor is a `missing` last one.

    A value that may be of several types has their names for tags.
    """
    path = []
    for n, key in enumerate(loc):
        absent = missing and n == len(loc) - 1
        if not isinstance(tree, (dict, list)) or (
            isinstance(tree, list) and not isinstance(key, int)
        ):
            break
        if isinstance(tree, dict) and key not in tree and key == tree.get("kind") and not absent:
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


def _at(tree: Any, path: Sequence) -> Any:
    for key in path:
        tree = _get(tree, key)
    return tree


def _impossible(tree: Any, path: tuple = ()) -> tuple:
    """Key path of the first integer that arithmetic would overflow at, or text that no file can have for a name."""
    if isinstance(tree, int):
        return path if not -(2**63) <= tree < 2**63 else ()
    if isinstance(tree, str):
        # other surrogates stand for bytes of names
        return path if re.search("[\0\ud800-\udbff]", tree) else ()
    below = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    return next(filter(None, (_impossible(value, (*path, key)) for key, value in below)), ())


def _fields(cls: type[Settings], tree: dict, path: Sequence) -> list[str]:
    """Names of the settings that belong at a key path."""
    for key in path:
        cls, tree = _annotation_at(cls, tree, [key]), _get(tree, key)
    owner = _choose(cls, tree)
    return list(owner.model_fields) if owner else []


def _annotation_at(annotation: Any, tree: Any, path: Sequence) -> Any:
    """Find the type that is declared at a key path, None if none is."""
    for key in path:
        owner = _choose(annotation, tree)
        if isinstance(key, int):
            annotation = (typing.get_args(annotation) or [None])[0]  # of a list
        else:
            annotation = (
                owner.model_fields[key].annotation if owner and key in owner.model_fields else None
            )
        tree = _get(tree, key)
    return annotation


def _choose(annotation: Any, tree: Any) -> type[Settings] | None:
    """The settings class of an annotation; of a union the one whose kind the tree names."""
    members = _members(annotation)
    named = [m for m in members if _get(tree, "kind") in _kinds(m)]
    return next(iter(named or members), None)


def _members(annotation: Any) -> list[type[Settings]]:
    """The settings classes of an annotation: itself, or those of a union."""
    if typing.get_origin(annotation) is Annotated:
        return _members(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (Union, types.UnionType):
        return [member for choice in typing.get_args(annotation) for member in _members(choice)]
    return [annotation] if isinstance(annotation, type) and issubclass(annotation, Settings) else []


def _kinds(annotation: Any) -> list[str]:
    """The values of `kind:` that an annotation can be told by."""
    fields = [m.model_fields["kind"] for m in _members(annotation) if "kind" in m.model_fields]
    return [kind for field in fields for kind in typing.get_args(field.annotation)]


__all__ = ["COMMAND_LINE", "Settings", "by_part", "check", "dump", "load", "schema"]
