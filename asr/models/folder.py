"""A model's folder: `config.yaml` (the full experiment), `model.safetensors` (all weights) and the tokenizer's files;
`versions.json` says what it was made with and from.

Loading one runs no code of its maker.
"""

import json
from pathlib import Path
from typing import TypeVar

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from asr.config import Settings, check
from asr.errors import UserError, shorten
from asr.files import make_folder, replacing, write_text
from asr.text.tokenizer import Tokenizer
from asr.tree import read_tree

CONFIG, WEIGHTS, VERSIONS = "config.yaml", "model.safetensors", "versions.json"
KINDS = {"hybrid": "recogniser", "lm": "language model"}  # `model.kind` and what people call it

T = TypeVar("T", bound=Settings)


def describe(folder: str | Path, config: str, tokenizer: Tokenizer) -> None:
    """Write all of a model folder but the weights; `config` is the YAML text of the full experiment."""
    folder = make_folder(folder)
    write_text(folder / CONFIG, config)
    tokenizer.save(folder)


def read_settings(folder: str | Path, cls: type[T], kind: str) -> T:
    """Read what identifies a model: those settings of its folder that `cls` has.

    kind     of model that is expected, as in model.kind
    raises   UserError if there's no such folder, its settings are missing or damaged, or the model is of another kind
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder}: no such model folder; asr-train makes one")
    if not (folder / CONFIG).exists():
        below = next(iter(sorted(folder.glob(f"*/{CONFIG}"))), None)
        hint = f"is {folder} a model folder of asr-train whose training has begun?"
        raise UserError(f"{folder / CONFIG}: missing; {f'did you mean {below.parent}?' if below else hint}")
    tree, source = read_tree(folder / CONFIG)
    got = tree["model"].get("kind") if isinstance(tree.get("model"), dict) else None
    if got in set(KINDS) - {kind}:
        raise UserError(f"{folder}: holds a {KINDS[got]} (model.kind: {got}), expected a {KINDS[kind]} ({kind})")
    return check(cls, {name: tree[name] for name in cls.model_fields if name in tree}, source)


def longest_heard(folder: str | Path) -> float | None:
    """Seconds of the longest recording that the model was trained on; None if its folder doesn't say."""
    try:
        return float(json.loads((Path(folder) / VERSIONS).read_text(encoding="utf-8"))["longest_seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def save_weights(module: nn.Module, path: Path) -> None:
    """Write a module's weights as safetensors, shared tensors once.

    raises   UserError if the file can't be written, or the disk is full
    """
    seen, weights = set(), {}
    for name, tensor in module.state_dict().items():
        if tensor.data_ptr() not in seen:
            weights[name] = tensor.contiguous()
            seen.add(tensor.data_ptr())
    with replacing(path) as temporary:
        try:
            save_file(weights, temporary)
        except SafetensorError as error:
            if "I/O error" not in str(error):  # the system's, in words
                raise
            raise UserError(f"{path}: can't be written ({error}); choose another output, or mend that") from None


def load_weights(module: nn.Module, path: Path) -> None:
    """Read a module's weights from safetensors.

    raises   UserError if the file is missing, damaged, or of another model; names what differs
    """
    try:
        weights = load_file(path)
    except FileNotFoundError:
        raise UserError(f"{path}: missing; a model folder needs it, copy the folder again") from None
    except Exception as error:  # noqa: BLE001 - safetensors raises its own and the system's errors
        raise UserError(f"{path}: damaged ({error}); copy the model folder again") from None
    expected = {name: tensor.shape for name, tensor in module.state_dict().items()}
    wrong = [n for n, w in weights.items() if n not in expected or w.shape != expected[n]]
    shared = {tensor.data_ptr() for name, tensor in module.state_dict().items() if name in weights}
    wrong += [n for n, t in module.state_dict().items() if n not in weights and t.data_ptr() not in shared]
    if wrong:
        raise UserError(f"{path}: doesn't fit the model that {CONFIG} describes: {shorten(wrong)}")
    module.load_state_dict(weights, strict=False)
