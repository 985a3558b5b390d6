"""Check that a fetched file is the published one."""

import hashlib
from pathlib import Path

from tqdm import tqdm

from asr.download.fetch import Failure
from asr.download.listed import compare, read_list, sha256
from asr.download.members import Damaged, Refused
from asr.download.sources import Part
from asr.download.unpack import members_of
from asr.logging import bars_hidden

BLOCK = 1 << 20


def check(path: Path, part: Part) -> None:
    """Compare a file with its published checksum, or, if there is none, the files within it with theirs.

    raises   Failure, OSError
    """
    if part.digest:
        check_digest(path, *part.digest.split(":"))
        return
    try:
        with members_of(path, part.budget(), "checking") as members:
            found = {
                str(member.path): sha256(member.content)
                for member in members
                if not member.is_folder
            }
    except (Refused, Damaged) as error:
        raise Failure(f"not the archive: {error}") from None
    compare(read_list(part.files), found)


def check_digest(path: Path, algorithm: str, expected: str) -> None:
    """Compare the checksum of a file with the expected one."""
    digest, size = hashlib.new(algorithm, usedforsecurity=False), path.stat().st_size
    with (
        open(path, "rb") as file,
        tqdm.wrapattr(
            file,
            "read",
            total=size,
            desc=f"checking {path.name}",
            disable=bars_hidden(),
            leave=False,
        ) as read,
    ):
        while block := read.read(BLOCK):
            digest.update(block)
    if digest.hexdigest() != expected:
        raise Failure(f"its {algorithm} is {digest.hexdigest()}, expected {expected}")
