"""A pretrained encoder's files on the Hugging Face Hub, downloaded to its cache: its descriptions, then its weights.

Only named files are taken, all of one commit, after their sizes were checked; no weights before the
descriptions were.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from asr import imports
from asr.download.disk import readable
from asr.errors import UserError, reason, shorten
from asr.hub.cache import check_room, remember
from asr.hub.client import COMMIT, is_unreachable, refusing, sizes_of
from asr.logging import logger
from asr.nn.encoders import pretrained_source as sources
from asr.nn.encoders.pretrained_source import (
    DESCRIPTION,
    DESCRIPTIONS,
    INDEX,
    MOST_JSON,
    WEIGHTS,
    PretrainedSource,
)

SETTING = "model.encoder.source"
FIX = "; download it where there is a network, and give its folder"


def find(name: str, revision: str | None) -> PretrainedSource:
    """Find a folder, or a name on the hub, whose descriptions are downloaded unless the cache has them.

    revision  a branch, a tag or a commit. The hub isn't asked for a commit that the cache has;
              without a network the cache's branch or tag is taken
    raises    UserError if there's no such folder, the hub doesn't give it, or it is no model with
              weights as safetensors
    """
    if folder := sources.find_folder(name, revision):
        return folder
    if re.fullmatch(COMMIT, revision or "") and (cached := sources.find_cached(name, revision)):
        return cached
    with refusing(f"{SETTING}: {name}", FIX):
        try:
            about = _listed(name, revision)
        except Exception as error:
            if is_unreachable(error) and (cached := sources.find_cached(name, revision)):
                logger.info(f"{name}@{cached.commit}: from the cache ({reason(error)})")
                return cached
            raise
        wanted = choose_descriptions(f"{name}@{about.sha}", sizes_of(about))
        source = _download(name, about.sha, wanted)
        remember(source.folder, revision)
        return source


def choose_descriptions(name: str, sizes: Mapping[str, int]) -> dict[str, int]:
    """Choose what is read before the weights, among the files of a repository.

    sizes    bytes by name
    raises   UserError if it isn't a model with weights as safetensors, or a file is too large
    """
    if DESCRIPTION not in sizes:
        raise UserError(
            f"{SETTING}: {name}: is no model of transformers: it has "
            f"{shorten(sorted(sizes)) or 'no files'}, expected {DESCRIPTION}; a model folder of this toolkit is one to "
            "begin with (init_from)"
        )
    if WEIGHTS not in sizes and INDEX not in sizes:
        raise sources.no_weights(f"{SETTING}: {name}", sizes)
    names = [*DESCRIPTIONS] if WEIGHTS in sizes else [*DESCRIPTIONS, INDEX]
    wanted = {file: sizes[file] for file in names if file in sizes}
    if large := [file for file, size in wanted.items() if size > MOST_JSON]:
        raise UserError(
            f"{SETTING}: {name}: {large[0]} has {wanted[large[0]]} bytes, expected {MOST_JSON} or less; "
            "choose another model"
        )
    return wanted


def download_weights(source: PretrainedSource, family: str) -> None:
    """Download the weights of a source of the hub, unless the cache has them; log first what they are.

    raises   UserError if the hub doesn't give them, or the disk has no room
    """
    commit = source.commit
    if commit is None or _has_weights(source):
        return
    known = f"{source.name}@{commit}"
    with refusing(f"{SETTING}: {source.name}", FIX):
        about = _listed(source.name, commit)
        sizes = sizes_of(about)
        if WEIGHTS not in sizes:  # a stopped download may not have come to the index
            _download(source.name, commit, choose_descriptions(known, sizes))
        missing = choose_weights(source, sizes)
        check_room(source.name, about, missing)
        logger.info(f"{known}: {family}; downloading {readable(sum(missing.values()))} of weights")
        _download(source.name, commit, missing)


def choose_weights(source: PretrainedSource, sizes: Mapping[str, int]) -> dict[str, int]:
    """Choose the files of the weights that the cache lacks: one file, or the parts that the index names.

    sizes    bytes by name, of the repository
    raises   UserError if the repository lacks one
    """
    names = [WEIGHTS] if WEIGHTS in sizes else source.parts()
    if absent := [name for name in names if name not in sizes]:
        raise UserError(
            f"{SETTING}: {source.name}@{source.commit}: has no {shorten(absent)}, expected what its {INDEX} "
            "names; choose another model"
        )
    return {name: sizes[name] for name in names if not (source.folder / name).exists()}


def _has_weights(source: PretrainedSource) -> bool:
    """Whether the cache has all files of the weights."""
    if not any((source.folder / name).exists() for name in (WEIGHTS, INDEX)):
        return False
    return all((source.folder / name).exists() for name in source.parts())


def _listed(name: str, revision: str | None) -> Any:
    """Ask the hub for the commit of a revision, and for its files with their sizes."""
    api = imports.transformers("huggingface_hub").HfApi()
    return api.model_info(name, revision=revision, files_metadata=True)


def _download(name: str, commit: str, wanted: Iterable[str]) -> PretrainedSource:
    """Download files to the cache."""
    hub = imports.transformers("huggingface_hub")
    folder = Path(hub.snapshot_download(name, revision=commit, allow_patterns=[*wanted]))
    return PretrainedSource(name, folder, folder.parents[1], commit)
