"""Lists of SHA-256 digests, in the format of sha256sum, for corpora whose archives have no published digest."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path

from asr.download.fetch import Failure
from asr.errors import shorten

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
    raises   Failure if any other listed file is altered or missing
    """
    read = {name for name in listed if name.count("/") > 1}
    altered = sorted(name for name in read & found.keys() if found[name] != listed[name])
    absent = sorted(read - found.keys())
    if altered or absent:
        faults = [f"SHA-256 differs from the published one: {shorten(altered)}"] * bool(altered)
        faults += [f"missing: {shorten(absent)}"] * bool(absent)
        raise Failure("; ".join(faults))
    return sorted(name for name, digest in found.items() if listed.get(name) != digest)


def retain(listed: Mapping[str, str], folder: Path) -> list[str]:
    """Check the files of an unpacked corpus, remove those that aren't in the list, and return their names.

    raises   Failure if a listed file is altered or missing
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
