"""What a run is known by, and the files that it needs: from the plain tree of its settings, without PyTorch."""

import json
import operator
import os
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from asr.errors import UserError
from asr.hub import find_model
from asr.hub.cache import published_name
from asr.model_files import NOT_IN_STAMP
from asr.stamp import Stamp
from asr.text import tokenizer
from asr.yaml_tree import read_tree

RECORDS = "run.json", ".stamp.json"  # of a run's folder: what it began with, and ended with


def stamp_of(config: str | Path, overrides: Sequence[str] = ()) -> Stamp:
    """Make the stamp of a run: its settings and the content of what it reads.

    If the folder of a pretrained encoder's source is gone, its content is what the run recorded: the
    run's own folder has the encoder.
    """
    tree, _ = read_tree(config, overrides)
    inputs = [*_manifests(tree), *tokenizer.paths_of(str(tree.get("tokenizer")))]
    if source := tree.get("source_tokenizer"):
        inputs += tokenizer.paths_of(str(source))
    out = str(tree.get("out", "")) or "."
    recorded = _recorded(out, _source(tree))
    inputs += recorded or _files(_source(tree))
    if begun := tree.get("init_from"):
        inputs += [os.path.join(str(begun), "model.safetensors"), *tokenizer.paths_of(str(begun))]
    facts = {
        key: dict(value) if isinstance(value, dict) else value
        for key, value in tree.items()
        if key != "out"
    }
    for section, key in NOT_IN_STAMP:
        if isinstance(facts.get(section), dict):
            facts[section].pop(key, None)
    stamp = Stamp(out, "asr-train", {"settings": facts}, map(str, inputs))
    stamp.facts["inputs"] |= recorded
    return stamp


def check_files(config: str | Path, overrides: Sequence[str] = ()) -> None:
    """Check that the files which the settings name are there.

    raises   UserError that names the first that isn't
    """
    tree, _ = read_tree(config, overrides)
    for name in _manifests(tree):
        if isinstance(name, str) and not os.path.exists(name):
            made = (
                "manifest; asr-prepare makes it"
                if name.endswith((".jsonl", ".jsonl.gz"))
                else "text file"
            )
            raise UserError(f"{name}: no such {made}")
    for key, what in (
        ("tokenizer", "tokenizer here; asr-tokenizer makes one"),
        ("source_tokenizer", "tokenizer here; asr-tokenizer makes one"),
        ("init_from", "such model folder"),
    ):
        folder = tree.get(key)
        if isinstance(folder, str) and not os.path.exists(
            os.path.join(folder, tokenizer.DESCRIPTION)
        ):
            raise UserError(f"{folder}{'/tokenizer.json' * (key != 'init_from')}: no {what}")


def located(config: str | Path, overrides: Sequence[str] = ()) -> tuple[str, ...]:
    """Download the published models that a run begins with; add their folders to its overrides.

    A name without a revision stands for the commit with which the run began, if it did.

    raises   UserError if the hub doesn't give one
    """
    tree, _ = read_tree(config, overrides)
    begun = _begun(str(tree.get("out", "")) or ".")
    named = {key: tree.get(key) for key in ("init_from", "tokenizer", "source_tokenizer")}
    found = {
        key: find_model(_pinned(name, begun.get(key)))
        for key, name in named.items()
        if isinstance(name, str)
    }
    return (*overrides, *(f"{key}={path}" for key, path in found.items() if path != named[key]))


def _pinned(name: str, begun: Any) -> str:
    """Add the commit to the name of a published model, if a run has begun with its folder in the cache."""
    commit = published_name(begun) if isinstance(begun, str) else None
    is_local = os.path.exists(os.path.dirname(name))  # which `find_model` takes first
    return commit if commit and commit.partition("@")[0] == name and not is_local else name


def _source(tree: Mapping[str, Any]) -> str:
    """What model.encoder.source names; "" if there is none."""
    model = tree.get("model")
    encoder = model.get("encoder") if isinstance(model, dict) else None
    source = encoder.get("source") if isinstance(encoder, dict) else None
    return source if isinstance(source, str) else ""


def _files(source: str) -> list[str]:
    """List the files of a source that is a folder."""
    if not os.path.isdir(source):
        return []
    names = sorted(n for n in os.listdir(source) if n.endswith((".safetensors", "config.json")))
    return [os.path.join(source, name) for name in names]


def _recorded(out: str, source: str) -> dict[str, str]:
    """Digests of the files of a source whose folder is gone, as the run in `out` has recorded them."""
    if not source or os.path.isdir(source):
        return {}
    inputs = _record(out, "inputs")
    return {p: d for p, d in inputs.items() if p == os.path.join(source, os.path.basename(p))}


def _begun(out: str) -> dict[str, Any]:
    """Read the settings with which the run in `out` has begun; {} if there is none."""
    return _record(out, "arguments", "settings")


def _record(out: str, *keys: str) -> dict[str, Any]:
    """Read an object of what the run in `out` has recorded, by the keys that lead to it; {} if there is none."""
    for name in RECORDS:
        try:
            with open(os.path.join(out, name), encoding="utf-8") as file:
                found = reduce(operator.getitem, keys, json.load(file))
        except (OSError, ValueError, LookupError, TypeError):  # absent or damaged
            continue
        if isinstance(found, dict):
            return found
    return {}


def _manifests(tree: Mapping[str, Any]) -> list[Any]:
    """List what the settings of the data name: train, dev, and the recordings of augmentation."""
    found = tree.get("data")
    data = found if isinstance(found, dict) else {}
    augment = data.get("augment")
    effects = augment.values() if isinstance(augment, dict) else []
    drawn = [
        effect["manifest"]
        for effect in effects
        if isinstance(effect, dict) and "manifest" in effect
    ]
    sets = [data.get("train"), data.get("dev")]
    return [
        path for paths in sets for path in (paths if isinstance(paths, list) else [paths])
    ] + drawn
