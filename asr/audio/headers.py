"""Read the headers of many sound files at once."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from asr.audio import archive
from asr.audio.load import AudioInfo, info, verify
from asr.errors import UserError
from asr.logging import progress_bar

THREADS = 8  # opening a file waits more for the disk than for the processor
ASKED = 1000  # files queued at once; queuing a million takes a gigabyte
TOGETHER = 16  # files that a thread reads before it is given others


def read_headers(
    paths: Sequence[str | os.PathLike], progress: bool = False, whole: bool = False
) -> list[AudioInfo | UserError | None]:
    """Read each file's header, in order; return faults instead of raising them, so that all can be counted.

    A recording in an archive is described by its manifest: the result is None if the archive has
    its bytes.

    whole:     also decode the files, to find damage within
    progress:  show a bar on stderr
    """
    found: list[AudioInfo | UserError | None] = []
    settings = {} if progress else {"disable": True}
    bar = progress_bar(total=len(paths), desc="sound files", unit="", mininterval=0.5, **settings)
    with bar, ThreadPoolExecutor(THREADS) as pool:
        for first in range(0, len(paths), ASKED):
            asked = paths[first : first + ASKED]
            parts = [asked[n : n + TOGETHER] for n in range(0, len(asked), TOGETHER)]
            for some in pool.map(partial(_some, whole=whole), parts):
                found += some
                bar.update(len(some))
    return found


def _some(paths: Sequence[str | os.PathLike], whole: bool) -> list[AudioInfo | UserError | None]:
    return [header(path, whole) for path in paths]


def header(path: str | os.PathLike, whole: bool = False) -> AudioInfo | UserError | None:
    """Read one header, and the rest of the file if `whole`; or check the size of an archive."""
    try:
        within = archive.place(path)
        if within is None:
            return (verify if whole else info)(path)
        archive.check(within)
        return None
    except UserError as error:
        return error
