"""What is read of a pretrained model, of a folder or of the Hugging Face Hub: two descriptions and tensors.

Nothing of it is run: no pickles, no code of its maker, no file outside of its folder.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from asr import imports
from asr.errors import UserError, reason, shorten
from asr.files import read_bytes
from asr.model_files import read_header

DESCRIPTION, PREPROCESSOR = "config.json", "preprocessor_config.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PART = r"model-\d+-of-\d+\.safetensors"
MOST_JSON = 8_000_000  # bytes; descriptions have thousands, an index a hundred thousand
HUB_NAME = r"[\w.-]+/[\w.-]+"
PICKLES = "pytorch_model*.bin"


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

    def preprocessing(self) -> dict[str, Any] | None:
        """Read preprocessor_config.json; None if there's no such file."""
        return self._json(PREPROCESSOR) if (self.folder / PREPROCESSOR).exists() else None

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
        pickled = " but pickles, which can run code, and are never read" * any(
            self.folder.glob(PICKLES)
        )
        raise UserError(
            f"{self.folder / WEIGHTS}: missing; the model has no weights as safetensors{pickled}. Convert "
            "them on a machine that may run them (transformers: save_pretrained), or look for a revision that has "
            "them, as refs/pr/N"
        )

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
    """Find a folder, or what the hub has under a name; download what isn't in its cache.

    raises   UserError if there's no such folder, or the hub doesn't give it
    """
    folder = Path(name)
    if folder.is_dir():
        return PretrainedSource(name, folder, folder)
    if not re.fullmatch(HUB_NAME, name):
        raise UserError(
            f"model.encoder.source: {name}: no such folder, and no name on the Hugging Face Hub (owner/name)"
        )
    hub = imports.transformers("huggingface_hub")
    files = [DESCRIPTION, PREPROCESSOR, WEIGHTS, INDEX, "model-*-of-*.safetensors"]
    try:
        folder = Path(hub.snapshot_download(name, revision=revision, allow_patterns=files))
    except Exception as error:  # noqa: BLE001 - of the network, of HTTP, of the hub
        raise UserError(
            f"model.encoder.source: {name}: no such folder here, and the Hugging Face Hub doesn't give it "
            f"({reason(error)}); download it where there is a network, and give its folder"
        ) from None
    return PretrainedSource(name, folder, folder.parents[1], folder.name)
