"""A model folder by its name: a folder of this machine, or a published one, downloaded to the hub's cache.

Only the files of a model folder are taken, by their names and within limits, all of one commit.
Nothing of a repository is run.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from asr import imports
from asr.download.disk import Need
from asr.errors import UserError, reason, shorten
from asr.logging import logger
from asr.model_files import BOUNDARIES, CALIBRATION, CONFIG, SOURCE, VERSIONS, WEIGHTS
from asr.text.tokenizer import names_of_files

NAME = re.compile(
    r"(?P<repository>[\w][\w.-]*/[\w][\w.-]*)(@(?P<revision>[\w][\w./-]*))?", re.ASCII
)
CARD = "README.md"
COMMIT = "[0-9a-f]{40}"  # in full: the hub needn't be asked
SMALL = 64 << 20  # bytes of a file that is none of weights


def find_model(name: str | os.PathLike[str]) -> str:
    """Return the path of a model folder; download a published one, unless the cache has it.

    name     a folder, its file:// address, or `owner/name` on the Hugging Face Hub, which may end
             in `@revision`: a branch, a tag or a commit. A folder of the name, or one named `owner`,
             comes first
    returns  the path; of a published model, that of the commit in the cache
    raises   UserError if the hub doesn't give it, or the repository holds no model of this toolkit
    """
    name = os.fspath(name)
    if name.startswith("file://"):
        return unquote(urlsplit(name).path)
    match = NAME.fullmatch(name)
    if not match or os.path.exists(name) or os.path.exists(os.path.dirname(name)):
        return name
    return str(_download(match["repository"], match["revision"]))


def names_of_model() -> list[str]:
    """Name the files that a model folder may consist of."""
    tokenizer = names_of_files()
    source = [f"{SOURCE}/{name}" for name in tokenizer]
    return [CONFIG, WEIGHTS, VERSIONS, BOUNDARIES, CALIBRATION, *tokenizer, *source]


def _download(repository: str, revision: str | None) -> Path:
    """Find a model in the cache, or download it; say what it is."""
    hub = imports.huggingface_hub("huggingface_hub")
    offline = imports.huggingface_hub("huggingface_hub.constants").is_offline_mode()
    given = f"{repository}@{revision}" if revision else repository
    try:
        if offline or re.fullmatch(COMMIT, revision or ""):
            try:
                folder = _cached(repository, revision)
                logger.info(f"{repository}@{folder.name}: from the cache")
                return check_place(folder)
            except hub.errors.LocalEntryNotFoundError:
                if offline:
                    raise
        about = hub.HfApi().model_info(repository, revision=revision, files_metadata=True)
        wanted = check_files(given, {file.rfilename: file.size or 0 for file in about.siblings})
        logger.info(f"{repository}@{about.sha}: {_in_words(wanted)}")
        folder = hub.snapshot_download(repository, revision=about.sha, allow_patterns=[*wanted])
    except UserError:
        raise
    except Exception as error:  # noqa: BLE001 - of the network, of HTTP, of the hub
        raise UserError(
            f"{given}: no such folder here, and the Hugging Face Hub doesn't give it ({reason(error)})"
        ) from None
    return check_place(Path(folder))


def _cached(repository: str, revision: str | None) -> Path:
    """Find a model in the cache.

    raises   huggingface_hub's LocalEntryNotFoundError if it isn't there, or not whole
    """
    hub = imports.huggingface_hub("huggingface_hub")
    names = names_of_model()
    return Path(
        hub.snapshot_download(
            repository, revision=revision, allow_patterns=names, local_files_only=True
        )
    )


def check_files(name: str, sizes: Mapping[str, int]) -> dict[str, int]:
    """Choose the files of a model among those of a repository.

    sizes    bytes by name
    raises   UserError if it isn't a model folder, or a file is larger than such files are, or than
             the free space of the disk
    """
    wanted = {file: sizes[file] for file in names_of_model() if file in sizes}
    if missing := [file for file in (CONFIG, WEIGHTS) if file not in wanted]:
        raise UserError(
            f"{name}: is no model of this toolkit: it has {shorten(sorted(sizes)) or 'no files'}, but no {missing[0]}; "
            "a pretrained encoder of transformers is a source to train from (model.encoder.source)"
        )
    if large := [file for file, size in wanted.items() if size > SMALL and file != WEIGHTS]:
        raise UserError(
            f"{name}: {large[0]} has {wanted[large[0]]} bytes, expected at most {SMALL}; not downloaded"
        )
    needed = sum(wanted.values())
    Need(needed, needed).check(
        Path(imports.huggingface_hub("huggingface_hub.constants").HF_HUB_CACHE)
    )
    return wanted


def check_place(folder: Path) -> Path:
    """Refuse a download whose files lead out of the repository's part of the cache."""
    root = folder.parents[1].resolve()
    for name in names_of_model():
        if not (folder / name).resolve().is_relative_to(root):
            raise UserError(f"{folder / name}: links out of {root}; never read; remove {root}")
    return folder


def _in_words(sizes: Mapping[str, int]) -> str:
    return f"a model folder of {len(sizes)} files, {sum(sizes.values()) / 1e6:.1f} MB"
