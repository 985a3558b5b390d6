"""The files of a model folder: their names, what the header of the weights says, and which settings identify it.

Nothing here needs PyTorch.
"""

import hashlib
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asr.errors import UserError
from asr.files import open_file

CONFIG, WEIGHTS, VERSIONS = "config.yaml", "model.safetensors", "versions.json"
BOUNDARIES = "boundaries.safetensors"  # of words, learned at the end of a training
CALIBRATION = "calibration.yaml"  # of confidences, if they were calibrated
# `model.kind` and what people call it
KINDS = {"hybrid": "recognizer", "lm": "language model", "translator": "translator"}
SOURCE = "source"  # folder, within a translator's, of the tokenizer of what it reads, if that is another one
FAR = 1.5  # times the longest recording of training; a longer recording is searched in pieces
DIGEST = "sha256"  # in the header's metadata: of all that the file holds
MOST_HEADER = 32 << 20  # bytes; a thousand tensors take a tenth of a megabyte
SIZES = {
    8: "F64 I64 U64 C64",
    4: "F32 I32 U32",
    2: "F16 BF16 I16 U16",
    1: "I8 U8 BOOL F8_E4M3 F8_E5M2",
}
BYTES = {kind: size for size, kinds in SIZES.items() for kind in kinds.split()}
# not trained
STATISTICS = (
    "frontend.cmvn.",
    ".running_mean",
    ".running_var",
    ".num_batches_tracked",
)
MISSING = "missing; a training writes it when it validates first, else copy the folder again"
DAMAGED = "copy the model folder again"


def kind_of(folder: str | Path) -> str | None:
    """The `model.kind` of a model folder; None if that can't be read."""
    from asr.yaml_tree import read_tree  # --help needs no YAML

    try:
        model = read_tree(Path(folder) / CONFIG)[0].get("model")
    except UserError:
        return None
    kind = model.get("kind") if isinstance(model, dict) else None
    return kind if isinstance(kind, str) else None


@dataclass(frozen=True)
class Header:
    """The header of a safetensors file: shapes and types of its tensors, by name, and its metadata."""

    shapes: dict[str, tuple[int, ...]]
    types: dict[str, str]
    metadata: dict[str, str]

    @property
    def values(self) -> int:
        """Number of values of all tensors."""
        return sum(map(math.prod, self.shapes.values()))

    @property
    def parameters(self) -> int:
        """Number of trained values."""
        trained = (
            shape
            for name, shape in self.shapes.items()
            if not any(part in name for part in STATISTICS)
        )
        return sum(map(math.prod, trained))


def read_header(path: Path) -> Header:
    """Read the header of a file of weights, and check that the file holds everything it promises.

    raises   UserError if it is missing, unreadable or damaged
    """
    with open_file(path, MISSING) as file:
        try:
            size, length = (
                os.fstat(file.fileno()).st_size - 8,
                int.from_bytes(file.read(8), "little"),
            )
            if not 2 <= length <= min(MOST_HEADER, size):
                raise UserError(
                    f"{path}: damaged (its header would have {length} bytes); {DAMAGED}"
                )
            header = json.loads(file.read(length), object_pairs_hook=_each_once)
        except OSError as error:
            raise UserError(f"{path}: can't be read ({error.strerror})") from None
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}: damaged ({error}); {DAMAGED}") from None
    return _checked(path, header, size - length)


def _checked(path: Path, header: object, size: int) -> Header:
    """Check a header against the number of bytes that follow it."""
    damaged = UserError(f"{path}: damaged (its header doesn't describe tensors); {DAMAGED}")
    if not isinstance(header, dict):
        raise damaged
    metadata, shapes, types, end = header.pop("__metadata__", {}), {}, {}, 0
    for name, entry in header.items():
        try:
            shapes[name], types[name] = tuple(entry["shape"]), entry["dtype"]
            begin, last = entry["data_offsets"]
            whole = all(type(n) is int and n >= 0 for n in (*shapes[name], begin, last))
            if not whole or last - begin != math.prod(shapes[name]) * BYTES[types[name]]:
                raise damaged
            end = max(end, last)
        except (KeyError, TypeError, ValueError):
            raise damaged from None
    if end > size:
        raise UserError(
            f"{path}: damaged (truncated: has {size} of {end} bytes of tensors); {DAMAGED}"
        )
    return Header(shapes, types, metadata if isinstance(metadata, dict) else {})


def _each_once(pairs: list[tuple]) -> dict:
    """Make a mapping; ValueError if a name comes twice, of which safetensors takes the last."""
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError(f"its header has a name twice, {max(names, key=names.count)}")
    return dict(pairs)


# settings that change how a run is computed, not what comes out
_OF_TRAINING = (
    "device processes shard activation_checkpointing compile keep save_minutes save_steps log_every"
)
NOT_IN_STAMP = [
    ("data", "workers"),
    ("data", "tokens"),
    *(("training", key) for key in _OF_TRAINING.split()),
]


def digest(tree: dict) -> str:
    """SHA-256 of an experiment's plain tree; order, comments and layout of its file don't matter, nor NOT_IN_STAMP and
    `out`, which a continued run may change.
    """
    facts = {
        section: {key: value for key, value in part.items() if (section, key) not in NOT_IN_STAMP}
        if isinstance(part, dict)
        else part
        for section, part in tree.items()
        if section != "out"
    }
    return hashlib.sha256(json.dumps(_canonical(facts)).encode()).hexdigest()


def _canonical(value: Any) -> Any:
    """The same for mappings of the same content, whatever their order."""
    if isinstance(value, dict):
        return {"mapping": sorted([repr(key), _canonical(below)] for key, below in value.items())}
    return [_canonical(below) for below in value] if isinstance(value, list) else value
