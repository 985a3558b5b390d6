"""What is read of a pretrained model, of a folder or of the Hugging Face Hub's cache: descriptions and tensors.

Nothing of it is run: no pickles, no code of its maker, no file outside of its folder.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from torch import Tensor

from asr import imports
from asr.errors import UserError, shorten
from asr.files import read_bytes
from asr.model_files import read_header

DESCRIPTION, PREPROCESSOR = "config.json", "preprocessor_config.json"
PROCESSOR = "processor_config.json"  # of transformers 5, with the preprocessor's settings within
WITHIN = ("feature_extractor", "audio_processor")  # names under which it has them
DESCRIPTIONS = (DESCRIPTION, PREPROCESSOR, PROCESSOR)
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PART = r"model-\d+-of-\d+\.safetensors"
MOST_JSON = 8_000_000  # bytes; descriptions have thousands, an index a hundred thousand
HUB_NAME = r"[\w.-]+/[\w.-]+"
PICKLES = "pytorch_model*.bin"
SNAPSHOT = "models--.+/snapshots/[0-9a-f]{40}"  # a folder of the hub's cache; its files link to their contents


@dataclass(frozen=True)
class PretrainedSource:
    """The folder of a pretrained model.

    name     as the settings have it
    folder   where its files are
    root     folder that they may not leave: its own, or that of the hub's cache
    commit   of the hub
    """

    name: str
    folder: Path
    root: Path
    commit: str | None = None

    def description(self) -> dict[str, Any]:
        """Read config.json.

        raises   UserError if it is missing or damaged, or wants code to be run
        """
        tree = self._json(DESCRIPTION)
        if "auto_map" in tree:
            raise UserError(
                f"{self.folder / DESCRIPTION}: auto_map wants its maker's code to be run, which is never done; "
                "choose a model that transformers itself knows"
            )
        return tree

    def preprocessing(self) -> tuple[str, dict[str, Any] | None]:
        """Read the settings of the feature extractor, in transformers' order of files.

        returns  the name of their file, and the settings; None if no file has them
        raises   UserError if a file is damaged
        """
        processor = self._json(PROCESSOR) if (self.folder / PROCESSOR).exists() else {}
        for name in WITHIN:
            if name in processor:
                if not isinstance(tree := processor[name], dict):
                    raise UserError(
                        f"{self.folder / PROCESSOR}: {name}: got {tree!r:.80}, expected settings; fetch it again"
                    )
                return PROCESSOR, tree
        there = (self.folder / PREPROCESSOR).exists()
        return PREPROCESSOR, self._json(PREPROCESSOR) if there else None

    def tensors(self) -> dict[str, Tensor]:
        """Read the weights, finite floating-point numbers.

        raises   UserError if there are none as safetensors, or they are damaged
        """
        import safetensors.torch

        found: dict[str, Tensor] = {}
        for path in map(self._file, self.parts()):
            read_header(path)  # bounds what the library takes
            try:
                found |= safetensors.torch.load_file(path)
            except Exception as error:  # noqa: BLE001 - safetensors raises its own and others
                raise UserError(f"{path}: damaged ({error}); fetch it again") from None
        if wrong := [
            name for name, x in found.items() if x.is_floating_point() and not x.isfinite().all()
        ]:
            raise UserError(f"{self.folder}: has NaN or infinity in {shorten(wrong)}")
        return found

    def parts(self) -> list[str]:
        """Name the files of the weights."""
        if (self.folder / WEIGHTS).exists():
            return [WEIGHTS]
        if (self.folder / INDEX).exists():
            names = self._json(INDEX).get("weight_map")
            parts = sorted({*map(str, names.values())}) if isinstance(names, dict) else []
            if strange := [name for name in parts or [""] if not re.fullmatch(PART, name)]:
                raise UserError(
                    f"{self.folder / INDEX}: names the file {strange[0]!r}, expected model-N-of-M.safetensors"
                )
            return parts
        raise no_weights(str(self.folder), (path.name for path in self.folder.iterdir()))

    def _json(self, name: str) -> dict[str, Any]:
        path = self._file(name)
        content = read_bytes(path, f"missing; is {self.name} a model of transformers?", MOST_JSON)
        try:
            tree = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}: isn't JSON ({error}); fetch it again") from None
        if not isinstance(tree, dict):
            raise UserError(f"{path}: isn't a mapping of settings; fetch it again")
        return tree

    def _file(self, name: str) -> Path:
        """The path of a file, which isn't a link to somewhere else."""
        path = self.folder / name
        if not path.resolve().is_relative_to(self.root.resolve()):
            raise UserError(f"{path}: links to {path.resolve()}, out of its folder; never read")
        return path


def find(name: str, revision: str | None = None) -> PretrainedSource:
    """Find a folder, or what the hub's cache has under a name; nothing is downloaded.

    raises   UserError if it is in neither
    """
    if found := find_folder(name, revision) or find_cached(name, revision):
        return found
    raise UserError(
        f"model.encoder.source: {name}: no such folder here, and the cache of the Hugging Face Hub doesn't have "
        f"{revision or 'it'}; download it where there is a network, and give its folder"
    )


def find_folder(name: str, revision: str | None) -> PretrainedSource | None:
    """Find a folder; None for a name on the hub.

    raises   UserError if it is neither, or a folder is to have a revision
    """
    folder = Path(name)
    if folder.is_dir():
        if revision is not None:
            raise UserError(
                f"model.encoder.revision: got {revision}, expected none, because the source {name} is a folder here, "
                "which has one version; leave revision out"
            )
        return PretrainedSource(name, folder, _root(folder))
    if not re.fullmatch(HUB_NAME, name):
        raise UserError(
            f"model.encoder.source: {name}: no such folder, and no name on the Hugging Face Hub (owner/name)"
        )
    return None


def _root(folder: Path) -> Path:
    """The folder out of which no file of a model may link: itself, or in the hub's cache what has the contents, too."""
    place = folder.resolve()
    return place.parents[1] if re.fullmatch(SNAPSHOT, "/".join(place.parts[-3:])) else folder


def find_cached(name: str, revision: str | None) -> PretrainedSource | None:
    """Find a name in the hub's cache; None if that lacks it, or one of its descriptions."""
    hub = imports.transformers("huggingface_hub")
    try:
        found = hub.snapshot_download(
            name, revision=revision, allow_patterns=[*DESCRIPTIONS], local_files_only=True
        )
    except Exception:  # noqa: BLE001 - of the hub, of a cache that can't be read; the caller knows more
        return None
    folder = Path(found)
    return PretrainedSource(name, folder, folder.parents[1], folder.name)


def no_weights(where: str, names: Iterable[str]) -> UserError:
    """Make the error for a model without weights as safetensors; names: of the files that it has."""
    pickled = any(fnmatch(name, PICKLES) for name in names)
    return UserError(
        f"{where}/{WEIGHTS}: missing; the model has no weights as safetensors"
        f"{' but pickles, which can run code, and are never read' * pickled}. Convert "
        "them on a machine that may run them (transformers: save_pretrained), or look for a revision that has "
        "them, as refs/pr/N"
    )
