"""Check that a fetched file is the published one, and unpacked files against a list of their digests.

The lists are in the format of sha256sum; they are for corpora whose archives have no published digest.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path

from tqdm import tqdm

from asr.download.archives import Damaged, Refused, members_of
from asr.download.fetch import DownloadError
from asr.download.sources import CorpusPart
from asr.errors import shorten
from asr.logging import bars_hidden

READ = 1 << 20


def read_list(name: str) -> dict[str, str]:
    """Read a list of this package: path within the corpus folder → SHA-256."""
    lines = files("asr.download").joinpath(name).read_text(encoding="utf-8").splitlines()
    return {path: digest for digest, path in (line.split("  ", 1) for line in lines)}


def sha256(blocks: Iterable[bytes]) -> str:
    """Compute the SHA-256 of blocks of bytes."""
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(block)
    return digest.hexdigest()


def compare(listed: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Compare files with a list, and return the names of those that aren't in it.

    Documents at the top of the corpus folder, such as README or LICENSE, can be missing or
    different.
    raises   DownloadError if any other listed file is altered or missing
    """
    read = {name for name in listed if name.count("/") > 1}
    altered = sorted(name for name in read & found.keys() if found[name] != listed[name])
    absent = sorted(read - found.keys())
    if altered or absent:
        faults = [f"SHA-256 differs from the published one: {shorten(altered)}"] * bool(altered)
        faults += [f"missing: {shorten(absent)}"] * bool(absent)
        raise DownloadError("; ".join(faults))
    return sorted(name for name, digest in found.items() if listed.get(name) != digest)


def retain(listed: Mapping[str, str], folder: Path) -> list[str]:
    """Check the files of an unpacked corpus, remove those that aren't in the list, and return their names.

    raises   DownloadError if a listed file is altered or missing
    """
    found = {
        str(path.relative_to(folder)): sha256(blocks(path))
        for path in folder.rglob("*")
        if path.is_file()
    }
    strange = compare(listed, found)
    for name in strange:
        (folder / name).unlink()
    return strange


def blocks(path: Path) -> Iterator[bytes]:
    """Read a file block by block."""
    with open(path, "rb") as file:
        while block := file.read(READ):
            yield block


BLOCK = 1 << 20


def check(path: Path, part: CorpusPart) -> None:
    """Compare a file with its published checksum, or, if there is none, the files within it with theirs.

    raises   DownloadError, OSError
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
        raise DownloadError(f"not the archive: {error}") from None
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
        raise DownloadError(f"its {algorithm} is {digest.hexdigest()}, expected {expected}")
