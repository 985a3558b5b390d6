"""The headers of many sound files at once."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from asr.audio import AudioInfo, info
from asr.errors import UserError

THREADS = 8  # opening a file waits for the disk more than for the processor


def read_headers(paths: Sequence[str], progress: bool = False) -> list[AudioInfo | UserError]:
    """Read each file's header, in order; a fault is handed back, for all to be counted.

    progress:  show a bar on stderr
    """
    from tqdm import tqdm

    with ThreadPoolExecutor(THREADS) as pool:
        found = pool.map(header, paths)
        return list(
            tqdm(
                found,
                "sound files",
                len(paths),
                unit="",
                disable=None if progress else True,
                leave=False,
                mininterval=0.5,
            )
        )


def header(path: str) -> AudioInfo | UserError:
    """Read one header."""
    try:
        return info(path)
    except UserError as error:
        return error
