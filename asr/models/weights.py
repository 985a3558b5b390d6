"""A module's weights as safetensors, and in the file's metadata the SHA-256 of all that it holds.

Digests that others bind to the weights (`bound`: of a model folder's settings and tokenizer) stand
there, too, and change with the weights, for a file is replaced in one piece.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from asr.errors import UserError, shorten
from asr.files import replacing
from asr.model_files import DAMAGED, DIGEST, read_header

INITIALIZING = (Tensor.normal_, Tensor.uniform_, Tensor.zero_, Tensor.fill_)
FLOATS = ("F16", "BF16", "F32", "F64")


@dataclass(frozen=True)
class Weights:
    """What a file of weights holds: tensors by name, and what is bound to them; None in a file without digests."""

    tensors: dict[str, Tensor]
    bound: dict[str, str] | None


def of(module: nn.Module) -> dict[str, Tensor]:
    """A module's weights in the CPU's memory, shared tensors once, under their first name."""
    seen, weights = set(), {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            weights[name] = tensor.detach().cpu().contiguous()
            seen.add(id(tensor))
    return weights


def write(weights: Weights, path: Path) -> None:
    """Write a file of weights, with its digest.

    raises   UserError if the file can't be written, or the disk is full
    """
    bound = weights.bound or {}
    metadata = {**bound, DIGEST: digest(weights.tensors, bound)}
    with replacing(path) as temporary:
        try:
            save_file(weights.tensors, temporary, metadata)
        except SafetensorError as error:
            if "I/O error" not in str(error):  # the system's, in words
                raise
            raise UserError(
                f"{path}: can't be written ({error}); choose another output, or fix that"
            ) from None


def read(path: Path) -> Weights:
    """Read a file of weights.

    raises   UserError if it is missing, unreadable or damaged
    """
    tensors, bound, damaged = read_anyway(path)
    if damaged:
        raise UserError(f"{path}: damaged (it isn't what was written, by its SHA-256); {DAMAGED}")
    return Weights(tensors, bound)


def read_anyway(path: Path) -> tuple[dict[str, Tensor], dict[str, str] | None, bool]:
    """Read a file of weights, as far as it can be read: tensors, what is bound to them, whether the digest is wrong.

    raises   UserError if it is missing, unreadable, or not in safetensors' format
    """
    read_header(
        path
    )  # before safetensors does, whose limit to the header, 100 MB, may become gigabytes of memory
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it's no dict
            bound = dict(file.metadata() or {})
    except Exception as error:  # noqa: BLE001 - safetensors raises its own and others
        raise UserError(f"{path}: damaged ({error}); {DAMAGED}") from None
    written = bound.pop(DIGEST, None)
    if written is None:
        return tensors, None, False
    return tensors, bound, written != digest(tensors, bound)


def digest(tensors: Mapping[str, Tensor], bound: Mapping[str, str]) -> str:
    """SHA-256 of names, types, shapes and values, and of what is bound to them."""
    hashed = hashlib.sha256(json.dumps(sorted(bound.items())).encode())
    for name, tensor in sorted(tensors.items()):
        hashed.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        hashed.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return hashed.hexdigest()


def count(path: Path) -> int:
    """Number of values that a file of weights holds, by its header.

    raises   UserError if the file is missing, damaged, or holds integers
    """
    header = read_header(path)
    if strange := [name for name, kind in header.types.items() if kind not in FLOATS]:
        kinds = ", ".join(sorted({header.types[name] for name in strange}))
        raise UserError(
            f"{path}: holds numbers of type {kinds}, expected {', '.join(FLOATS)}: {shorten(strange)}"
        )
    return header.values


class TooLarge(Exception):
    """A module wants more values than there may be."""


class Limit(TorchFunctionMode):
    """Within it, modules may have `most` values in all; raises TooLarge before memory is taken for more.

    So a stranger's settings, or a slip of the hand, can't take all of a machine's memory.

    blank    parameters aren't initialized, for they get their values from a file
    dry      no memory is taken at all: what is made can only be looked at
    """

    def __init__(self, most: int, blank: bool = False, dry: bool = False):
        super().__init__()
        self.left, self.blank, self.dry = most, blank, dry

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in (torch.empty, torch.zeros, torch.ones):
            self.left -= prod(args[0] if args and not isinstance(args[0], int) else args)
            if self.left < 0:
                raise TooLarge
            kwargs = kwargs | {"device": "meta"} if self.dry else kwargs
        elif func in INITIALIZING or getattr(func, "__module__", "") == nn.init.__name__:
            tensor = args[0] if args else kwargs["tensor"]
            if tensor.is_meta or (self.blank and isinstance(tensor, nn.Parameter)):
                return tensor
        return func(*args, **kwargs)


def misfit(path: Path, wrong: Iterable[str], config: str) -> UserError:
    """The error of weights that are another model's."""
    return UserError(f"{path}: doesn't fit the model of {config} and tokenizer: {shorten(wrong)}")


def misfits(module: nn.Module, shapes: Mapping[str, tuple]) -> list[str]:
    """Names that the module doesn't have, has in another shape, or lacks; of a shared tensor's any one will do."""
    state = module.state_dict(keep_vars=True)
    wrong = [
        name
        for name, shape in shapes.items()
        if name not in state or tuple(state[name].shape) != shape
    ]
    shared = {id(tensor) for name, tensor in state.items() if name in shapes}
    return wrong + [
        name for name, tensor in state.items() if name not in shapes and id(tensor) not in shared
    ]


def check_finite(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Refuse weights with NaN or infinity, from which all text would be silently wrong."""
    for name, tensor in tensors.items():
        if (
            tensor.numel()
            and tensor.is_floating_point()
            and not all(map(torch.isfinite, torch.aminmax(tensor)))
        ):
            count = int((~torch.isfinite(tensor)).sum())
            raise UserError(
                f"{path}: {name} has {count} of {tensor.numel()} values that are not finite, expected none; "
                "the training has diverged or the file is damaged, take another model"
            )
