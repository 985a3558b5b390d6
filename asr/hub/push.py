"""Publish a model folder on the Hugging Face Hub: its files and its card, in one commit."""

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asr import imports
from asr.errors import UserError, reason, shorten
from asr.hub.cache import names_of_model
from asr.hub.card import CARD, About, is_unedited, write_card
from asr.hub.pull import NAME
from asr.hub.results import Result
from asr.logging import logger
from asr.model_files import CONFIG, WEIGHTS
from asr.models import weights
from asr.models.folder import check_bound
from asr.yaml_tree import read_tree

MOST_CARD = 1_000_000  # bytes of a published card that is read


@dataclass(frozen=True)
class Upload:
    """What would be published.

    files   path in the repository → path here
    card    text of README.md
    """

    files: Mapping[str, Path]
    card: str

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(path.stat().st_size for path in self.files.values())


def prepare(folder: Path, about: About, results: Sequence[Result]) -> Upload:
    """Check a model folder and write its card.

    raises   UserError if the folder holds no model, is damaged, or the name isn't `owner/name`
    """
    if not (match := NAME.fullmatch(about.name)) or match["revision"]:
        raise UserError(f"got {about.name!r}, expected owner/name of a repository", argument="name")
    card = write_card(folder, about, results)
    read = weights.read(folder / WEIGHTS)
    check_bound(folder / WEIGHTS, read.bound)
    files = {name: folder / name for name in names_of_model() if (folder / name).is_file()}
    if private := private_paths(read_tree(folder / CONFIG)[0]):
        logger.warning(
            f"config.yaml names places of this machine, which become public: {shorten(private)}"
        )
    return Upload(files, card)


def private_paths(tree: object) -> list[str]:
    """List the absolute paths among the settings, which tell names of people and machines."""
    if isinstance(tree, Mapping):
        tree = list(tree.values())
    if isinstance(tree, list):
        return [path for part in tree for path in private_paths(part)]
    return [tree] if isinstance(tree, str) and os.path.isabs(tree) else []


def push(name: str, upload: Upload, private: bool = False, message: str = "") -> str:
    """Publish, in one commit: a push that is cut off has published nothing, and may be repeated.

    Files of an earlier model that this one doesn't have are removed. A card that somebody has
    written or edited stays as it is.

    private  whether a new repository is; one that exists stays as it is
    returns  `owner/name@commit`
    raises   UserError if the hub refuses, or can't be reached
    """
    hub = imports.huggingface_hub("huggingface_hub")
    try:
        api = hub.HfApi(library_name="asr-toolkit")
        api.create_repo(name, private=private, exist_ok=True)
        about = api.model_info(name)
        commit = api.create_commit(
            name,
            _operations(hub, name, upload, about),
            commit_message=message or "Publish the model",
            parent_commit=about.sha,
        )
    except Exception as error:  # noqa: BLE001 - of the network, of HTTP, of the hub
        raise UserError(f"{name}: {_refusal(error)}") from None
    return f"{name}@{commit.oid}"


def _operations(hub: Any, name: str, upload: Upload, about: Any) -> list[Any]:
    """List what the commit does to the files that the repository has: about, the hub's description of it."""
    there = {file.rfilename for file in about.siblings}
    operations = [hub.CommitOperationAdd(path, str(file)) for path, file in upload.files.items()]
    if stale := sorted(there & {*names_of_model()} - upload.files.keys()):
        logger.info(f"{name}: removes {', '.join(stale)}, which this model doesn't have")
        operations += [hub.CommitOperationDelete(path) for path in stale]
    if CARD not in there or is_unedited(_published_card(hub, name, about.sha)):
        operations.append(hub.CommitOperationAdd(CARD, io.BytesIO(upload.card.encode())))
    else:
        logger.warning(
            f"{name}: its {CARD} was written or edited by hand, and stays as it is; a dry run prints the new one"
        )
    return operations


def _published_card(hub: Any, name: str, commit: str) -> str:
    """Read the card of a commit, no more of it than a card can have."""
    with open(hub.hf_hub_download(name, CARD, revision=commit), "rb") as file:
        return file.read(MOST_CARD).decode(errors="replace")


def _refusal(error: Exception) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        fix = "log in with hf auth login, or set HF_TOKEN to a token that may write"
        return f"the hub refuses ({reason(error)}); {fix}"
    if status == 412:
        return "somebody else has published at the same time; run the same command again"
    return f"not published, for the hub failed ({reason(error)}); run the same command again"
