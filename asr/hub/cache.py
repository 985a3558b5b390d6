"""The cache of the hub's client: which models it has, and where.

Its layout is huggingface_hub's. In models--OWNER--NAME, snapshots/COMMIT has links to blobs/DIGEST, and refs/REVISION
names the commit that a branch or a tag was when it was downloaded.
"""

import os
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from asr import imports
from asr.download.disk import free, readable
from asr.errors import UserError
from asr.files import write_text
from asr.logging import logger
from asr.model_files import BOUNDARIES, CALIBRATION, CONFIG, SOURCE, VERSIONS, WEIGHTS
from asr.text.tokenizer import names_of_files

SNAPSHOT = r"/models--([^/]+?)--([^/]+)/snapshots/([0-9a-f]{40})"


def names_of_model() -> list[str]:
    """Name the files that a model folder may consist of."""
    tokenizer = names_of_files()
    source = [f"{SOURCE}/{name}" for name in tokenizer]
    return [CONFIG, WEIGHTS, VERSIONS, BOUNDARIES, CALIBRATION, *tokenizer, *source]


def published_name(folder: str | os.PathLike[str]) -> str | None:
    """Name the model whose folder in a cache this is, `owner/name@commit`; None of any other folder.

    >>> published_name(f"/home/me/hub/models--me--x/snapshots/{'0' * 40}")
    'me/x@0000000000000000000000000000000000000000'
    >>> published_name("exp/mini/model")
    """
    found = re.search(f"{SNAPSHOT}$", os.path.realpath(folder))
    return f"{found[1]}/{found[2]}@{found[3]}" if found else None


def check_own(folder: str | os.PathLike[str], argument: str) -> None:
    """Refuse to write to a published model: its folder in the cache belongs to all programs, and stands for a commit.

    argument  what would write
    raises    UserError that has the command for a copy
    """
    if name := published_name(folder):
        copy = name.partition("@")[0].partition("/")[2]
        raise UserError(
            f"{name}: a published model isn't changed; copy it first, with cp -rL {shlex.quote(str(folder))} {copy}, "
            f"and give {copy} as the `model`",
            argument=argument,
        )


def cached(repository: str, revision: str | None) -> Path | None:
    """Find a model in the cache; None unless all of it is there."""
    hub = imports.huggingface_hub("huggingface_hub")
    try:
        found = hub.snapshot_download(
            repository, revision=revision, allow_patterns=names_of_model(), local_files_only=True
        )
    except hub.errors.LocalEntryNotFoundError:
        return None
    folder = Path(found)
    return folder if all((folder / name).exists() for name in (CONFIG, WEIGHTS)) else None


def remember(folder: Path, revision: str | None) -> None:
    """Record which commit a branch or a tag is, as the client does, so that it is found offline.

    folder   the snapshot, which is complete
    """
    path = folder.parents[1] / "refs" / (revision or "main")
    try:
        if revision != folder.name and not (path.is_file() and path.read_text() == folder.name):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, folder.name)
    except (OSError, UserError) as error:  # the model itself is there
        logger.warning(f"{path}: can't be written ({error}), so the model isn't found offline")


def check_place(folder: Path) -> Path:
    """Refuse a folder whose files lead out of it; in the cache, out of the repository's part of it.

    raises   UserError that names the first such file
    """
    root, fix = folder, "put the file itself there"
    if published_name(folder):
        root = folder.parents[1]
        fix = f"remove {root}, and run the same command again"
    real = os.path.realpath(root)
    for name in names_of_model():
        if not Path(os.path.realpath(folder / name)).is_relative_to(real):
            raise UserError(f"{folder / name}: links out of {root}; never read; {fix}")
    return folder


def check_room(repository: str, about: Any, sizes: Mapping[str, int]) -> None:
    """Check the free space for those files of a model that aren't in the cache.

    about    what the hub says of the repository
    sizes    bytes by name
    raises   UserError if there is less than they need
    """
    cache = Path(imports.huggingface_hub("huggingface_hub.constants").HF_HUB_CACHE)
    here = _names_here(cache / f"models--{repository.replace('/', '--')}", about)
    needed = sum(size for name, size in sizes.items() if name not in here)
    if needed > (room := free(cache)):
        raise UserError(
            f"{cache}: {repository} needs {readable(needed)} of disk space, but {readable(room)} are free; free "
            f"{readable(needed - room)} more, or set HF_HOME to a folder of a larger disk"
        )


def _names_here(storage: Path, about: Any) -> Iterable[str]:
    """Name the files of a commit whose content is in a repository's part of the cache."""
    return {
        file.rfilename
        for file in about.siblings
        if (storage / "snapshots" / about.sha / file.rfilename).exists()
        or (digest := file.lfs.sha256 if file.lfs else file.blob_id)
        and (storage / "blobs" / digest).exists()
    }
