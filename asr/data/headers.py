"""The headers of many sound files at once."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from asr import archive
from asr.audio import AudioInfo, info
from asr.errors import UserError

THREADS = 8  # opening a file waits for the disk more than for the processor
ASKED = 1000  # files at once: to ask for a million takes a gigabyte


def read_headers(paths: Sequence[str], progress: bool = False) -> list[AudioInfo | UserError | None]:
    """Read each file's header, in order; a fault is handed back, for all to be counted.

    A recording in an archive is known by its manifest, which is written with it: None if the archive has its bytes.

    progress:  show a bar on stderr
    """
    from tqdm import tqdm

    found, disable = [], None if progress else True  # None: drawn on a terminal only
    bar = tqdm(total=len(paths), desc="sound files", unit="", disable=disable, leave=False, mininterval=0.5)
    with bar, ThreadPoolExecutor(THREADS) as pool:
        for first in range(0, len(paths), ASKED):
            for one in pool.map(header, paths[first : first + ASKED]):
                found.append(one)
                bar.update()
    return found


def header(path: str) -> AudioInfo | UserError | None:
    """Read one header, or look at the size of an archive."""
    try:
        within = archive.place(path)
        return info(path) if within is None else archive.check(within)
    except UserError as error:
        return error
