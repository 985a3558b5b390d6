"""Download a corpus archive and unpack it: python scripts/download.py URL FOLDER."""

import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from tqdm import tqdm


def main(url: str, folder: str) -> None:
    """Unpack the archive at `url` into `folder`; nothing is left behind where that fails."""
    out = Path(folder)
    if out.exists() and any(out.iterdir()):
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=out.parent) as partial:
            archive = Path(partial) / "archive"
            fetch(url, archive)
            with tarfile.open(archive) as tar:
                safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # older patch releases lack it
                tar.extractall(Path(partial) / "unpacked", **safe)
            (Path(partial) / "unpacked").rename(out)
    except (urllib.error.URLError, OSError, tarfile.TarError) as error:
        sys.exit(f"download: {url} can't be had here ({error}); fetch and unpack it elsewhere, and give its folder")


def fetch(url: str, path: Path) -> None:
    """Read a URL into a file, with a progress bar."""
    with urllib.request.urlopen(url, timeout=30) as answer, open(path, "wb") as file:
        total = int(answer.headers.get("Content-Length", 0)) or None
        with tqdm(total=total, unit="B", unit_scale=True, desc=url.rsplit("/", 1)[-1], disable=None) as bar:
            while block := answer.read(1 << 20):
                file.write(block)
                bar.update(len(block))


if __name__ == "__main__":
    main(*sys.argv[1:])
