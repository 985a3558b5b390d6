"""A model's folder: `config.yaml` (the full experiment), `model.safetensors` (all weights) and the tokenizer's files;
`versions.json` says what it was made with and from.

Loading one runs no code of its maker. The weights' file holds digests of itself, of the settings
and of the tokenizer, so that one replacement of a file, which a training makes often, changes them
all.
"""

import hashlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

from torch import nn

from asr import model_files
from asr.config import Settings, check
from asr.errors import UserError, shorten
from asr.files import make_folder, read_bytes, write_text
from asr.logging import logger
from asr.memory import is_oom
from asr.model_files import CONFIG, KINDS, SOURCE, VERSIONS, WEIGHTS
from asr.models import weights
from asr.models.weights import Weights
from asr.text import tokenizer as tokenizers
from asr.text.tokenizer import Tokenizer
from asr.yaml_tree import read_tree

ACCEPT = "asr-info --accept"

SMALL = 1_000_000  # values that a module may have whatever its weights' file holds

T = TypeVar("T", bound=Settings)
M = TypeVar("M", bound=nn.Module)


def describe(folder: str | Path, config: str, tokenizer: Tokenizer) -> None:
    """Write all of a model folder but the weights; `config` is the YAML text of the full experiment."""
    folder = make_folder(folder)
    write_text(folder / CONFIG, config)
    tokenizer.save(folder)


def read_settings(folder: str | Path, cls: type[T], kind: str) -> T:
    """Read what identifies a model: those settings of its folder that `cls` has.

    kind     of model that is expected, as in model.kind
    raises   UserError if there's no such folder, its settings are missing or damaged, or the model
             is of another kind
    """
    folder = Path(folder)
    try:
        found, described = folder.is_dir(), (folder / CONFIG).exists()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"{folder}: can't be read ({reason}); fix that, or take another model"
        ) from None
    if not found:
        raise UserError(f"{folder}: no such model folder; asr-train makes one")
    if not described:
        below = next(iter(sorted(folder.glob(f"*/{CONFIG}"))), None)
        hint = f"is {folder} a model folder of asr-train whose training has begun?"
        raise UserError(
            f"{folder / CONFIG}: missing; {f'did you mean {below.parent}?' if below else hint}"
        )
    tree, source = read_tree(folder / CONFIG)
    got = tree["model"].get("kind") if isinstance(tree.get("model"), dict) else None
    if got in set(KINDS) - {kind}:
        raise UserError(
            f"{folder}: holds a {KINDS[got]} (model.kind: {got}), expected a {KINDS[kind]} ({kind})"
        )
    return check(cls, {name: tree[name] for name in cls.model_fields if name in tree}, source)


def heard(folder: str | Path, fact: str) -> float | None:
    """Look up what a model has heard in its training, by its name in versions.json; None where it isn't told."""
    try:
        return float(json.loads((Path(folder) / VERSIONS).read_text(encoding="utf-8"))[fact])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def save_weights(module: nn.Module, path: Path) -> None:
    """Write a module's weights as safetensors, bound to the settings and the tokenizer that stand beside them.

    raises   UserError if the file can't be written, or the disk is full
    """
    weights.write(Weights(weights.of(module), beside(path.parent)), path)


def load_weights(module: nn.Module, path: Path) -> None:
    """Read a module's weights from safetensors.

    raises   UserError if the file is missing, damaged, of another model (names what differs), or
             what stands beside it isn't what it was bound to
    """
    read = weights.read(path)
    shapes = {name: tuple(tensor.shape) for name, tensor in read.tensors.items()}
    if wrong := weights.misfits(module, shapes):
        raise weights.misfit(path, wrong, CONFIG)
    check_bound(path, read.bound)
    module.load_state_dict(read.tensors, strict=False)


def fill(make: Callable[[], M], folder: str | Path) -> M:
    """Make a module and give it the weights of a model folder, which have to be finite.

    raises   UserError as `load_weights`, or if the module would be far larger than the weights, or
             than the memory
    """
    path = Path(folder) / WEIGHTS
    stored = weights.count(path)
    try:
        with weights.Limit(2 * stored + SMALL, blank=True):
            module = make()
        load_weights(module, path)
    except weights.TooLarge:
        larger = f"which has far more than its {stored} values"
        raise UserError(
            f"{path}: doesn't fit the model of {CONFIG} and tokenizer, {larger}"
        ) from None
    except (RuntimeError, MemoryError) as error:
        if not is_oom(error):
            raise
        raise UserError(
            f"{path}: {stored} values don't fit in memory; use a machine with more"
        ) from None
    weights.check_finite(path, module.state_dict())
    return module


def beside(folder: Path) -> dict[str, str]:
    """Digests of what identifies a model beside its weights, as far as it is there and can be read."""
    digests, files = {}, tokenizers.names_of_files()
    for name, digest in {
        CONFIG: _digest_of_settings,
        **dict.fromkeys(files, _digest_of_file),
        **dict.fromkeys((f"{SOURCE}/{name}" for name in files), _digest_of_file),
    }.items():
        try:
            digests[name] = digest(folder / name)
        except UserError:
            continue
    return digests


def check_bound(path: Path, bound: dict[str, str] | None) -> None:
    """Refuse settings or a tokenizer that aren't those that the weights at `path` were saved with.

    bound    what the weights' file says of them; None if it says nothing, which is a warning, not
             an error
    """
    folder = path.parent
    if bound is None:
        if (folder / CONFIG).exists():
            _tell_unprotected(folder)
        return
    now = beside(folder)
    if changed := sorted(name for name, digest in bound.items() if now.get(name) != digest):
        raise UserError(
            f"{folder / changed[0]}: {shorten(changed)} changed since {path.name} was written; "
            f"copy the folder again, or if that was on purpose: {ACCEPT} {folder}"
        )


@cache
def _tell_unprotected(folder: Path) -> None:
    logger.warning(
        f"{folder}: holds no checksums, so damage would not be seen; {ACCEPT} {folder} adds them"
    )


def accept(folder: str | Path) -> list[str]:
    """Take the files of a model's or a tokenizer's folder as they are now: write their digests anew.

    returns  names of the files that were not what the digests said
    raises   UserError if the folder holds neither, a file is unreadable, or its weights are not
             finite
    """
    folder = make_folder(folder) if Path(folder).is_dir() else Path(folder)
    changed = tokenizers.accept(folder)
    if (source := Path(folder) / SOURCE / tokenizers.DESCRIPTION).exists():
        changed += [f"{SOURCE}/{name}" for name in tokenizers.accept(source.parent)]
    if not (folder / CONFIG).exists() and not (folder / WEIGHTS).exists():
        return changed
    read_tree(folder / CONFIG)
    path = folder / WEIGHTS
    tensors, bound, damaged = weights.read_anyway(path)
    weights.check_finite(path, tensors)
    now = beside(folder)
    changed += [WEIGHTS] * damaged + [name for name in now if now[name] != (bound or {}).get(name)]
    weights.write(Weights(tensors, now), path)
    return list(dict.fromkeys(changed))


def _digest_of_settings(path: Path) -> str:
    return model_files.digest(read_tree(path)[0])


def _digest_of_file(path: Path) -> str:
    return hashlib.sha256(read_bytes(path, "missing", tokenizers.MOST_BYTES)).hexdigest()
