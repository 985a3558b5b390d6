"""A model folder by its name: a folder of this machine, or a published one, downloaded to the hub's cache.

Only the files of a model folder are taken, by their names and within limits, all of one commit.
Nothing of a repository is run.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

from asr import imports
from asr.errors import UserError, reason, shorten
from asr.hub.cache import cached, check_place, check_room, names_of_model, remember
from asr.hub.client import COMMIT, is_unreachable, refusing, sizes_of
from asr.logging import logger
from asr.model_files import CONFIG, KINDS, WEIGHTS, kind_of

NAME = re.compile(
    r"(?P<repository>[\w][\w.-]*/[\w][\w.-]*)(@(?P<revision>(?!.*\.\.)[\w][\w./-]*))?", re.ASCII
)
ADDRESS = "file://"
SMALL = 64 << 20  # bytes of a file that is none of weights


def find_model(name: str | os.PathLike[str]) -> str:
    """Return the path of a model folder; download a published one, unless the cache has it.

    name     a folder, its file:// address, or `owner/name` on the Hugging Face Hub, which may end
             in `@revision`: a branch, a tag or a commit. A folder of the name, or one named `owner`,
             comes first
    returns  the path; of a published model, that of the commit in the cache
    raises   UserError if the hub doesn't give it, the repository holds no model of this toolkit, or
             an address names no folder of this machine, or one whose files lead out of it
    """
    name = os.fspath(name)
    if name.startswith(ADDRESS):
        return str(check_place(_folder_of(name)))
    match = NAME.fullmatch(name)
    if not match or os.path.exists(name) or os.path.exists(os.path.dirname(name)):
        return name
    return str(_find_published(match["repository"], match["revision"]))


def _folder_of(address: str) -> Path:
    """Return the folder that a file:// address names."""
    path = unquote(address.removeprefix(ADDRESS))
    if not path.startswith("/") or "\0" in path:
        raise UserError(
            f"{address}: expected file:///DIR, an absolute path without a host; write a relative one without file://"
        )
    return Path(path)


def _find_published(repository: str, revision: str | None) -> Path:
    """Find a model in the cache, or download it; log which commit it is."""
    given = f"{repository}@{revision}" if revision else repository
    offline = _is_offline(given)
    with refusing(given):
        pinned = re.fullmatch(COMMIT, revision or "")
        if folder := cached(repository, revision) if offline or pinned else None:
            logger.info(f"{repository}@{folder.name}: from the cache")
        elif offline:
            raise UserError(
                f"{given}: no such folder here, and the cache of the Hugging Face Hub doesn't have all of it; "
                "to download it, unset HF_HUB_OFFLINE"
            )
        else:
            folder = _download(given, repository, revision)
        check_place(folder)
    logger.info(f"{given} is a {KINDS.get(kind_of(folder) or '', 'model of an unknown kind')}")
    return folder


def _is_offline(given: str) -> bool:
    """Tell whether the person has switched the hub off.

    raises   UserError if its client isn't installed
    """
    try:
        return imports.huggingface_hub("huggingface_hub.constants").is_offline_mode()
    except UserError as error:
        raise UserError(
            f"{given}: no such folder here, and the Hugging Face Hub wasn't asked: {error}"
        ) from None


def _download(given: str, repository: str, revision: str | None) -> Path:
    """Download a model; where the hub can't be reached, find the last commit downloaded under this name."""
    hub = imports.huggingface_hub("huggingface_hub")
    try:
        about = hub.HfApi().model_info(repository, revision=revision, files_metadata=True)
    except Exception as error:
        if is_unreachable(error) and (folder := cached(repository, revision)):
            logger.warning(
                f"{repository}@{folder.name}: from the cache, and there may be a newer commit, for the Hugging Face "
                f"Hub can't be reached ({reason(error)})"
            )
            return folder
        raise
    wanted = check_files(given, sizes_of(about))
    check_room(repository, about, wanted)
    logger.info(f"{repository}@{about.sha}: {_in_words(wanted)}")
    folder = Path(hub.snapshot_download(repository, revision=about.sha, allow_patterns=[*wanted]))
    remember(folder, revision)
    return folder


def check_files(name: str, sizes: Mapping[str, int]) -> dict[str, int]:
    """Choose the files of a model among those of a repository.

    sizes    bytes by name
    raises   UserError if it isn't a model folder, or a file is larger than such files are
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
    return wanted


def _in_words(sizes: Mapping[str, int]) -> str:
    return f"a model folder of {len(sizes)} files, {sum(sizes.values()) / 1e6:.1f} MB"
