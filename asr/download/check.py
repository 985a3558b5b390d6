"""Whether a file that was fetched is the one that was published."""

import gzip
import hashlib
import zlib
from pathlib import Path
from typing import IO

from tqdm import tqdm

from asr.download.fetch import Failure

BLOCK = 1 << 20


def check(path: Path, digest: str) -> None:
    """See that a file has its published checksum, or, where none is published, that it is a whole gzip file.

    digest:  "sha256:..." or "md5:...", or ""
    raises   Failure
    """
    size = path.stat().st_size
    with (
        open(path, "rb") as file,
        tqdm.wrapattr(file, "read", total=size, desc=f"checking {path.name}", disable=None, leave=False) as read,
    ):
        if digest:
            compare(read, *digest.split(":"))
        else:
            read_through(read)


def compare(file: IO[bytes], algorithm: str, expected: str) -> None:
    """Compute an open file's checksum."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    while block := file.read(BLOCK):
        digest.update(block)
    if digest.hexdigest() != expected:
        raise Failure(f"its {algorithm} is {digest.hexdigest()}, expected {expected}")


def read_through(file: IO[bytes]) -> None:
    """Read an open gzip file to its end, where its own checksum stands."""
    try:
        with gzip.open(file) as content:
            while content.read(BLOCK):
                pass
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise Failure(f"not a whole gzip file ({error})") from None
