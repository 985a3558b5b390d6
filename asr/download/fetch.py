"""Fetch one file from the first of several servers that has it; continue interrupted downloads.

Beside an unfinished file `x` lies `x.json`: its URL, its length, and the server's identifier of its
content (ETag or date). If that is missing, or a server disagrees, the file is started over. So
contents are never mixed, unless servers that can't be compared report the same length; then the
final check finds it.
"""

import http.client
import json
import os
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tqdm import tqdm

from asr import __version__
from asr.download.disk import readable, unwritten
from asr.errors import UserError
from asr.files import write_text
from asr.logging import logger, plain, progress_bar

BLOCK = 1 << 18
SILENCE = 60  # seconds without a byte until the connection counts as broken
PATIENCE = (3, 12)  # tries without progress: at a server that has not answered yet, at one that has
LONGEST_WAIT = 60  # seconds between two tries, which grow as 1, 2, 4, ...
# bytes that count as progress; a server could break the connection after each byte, forever
PROGRESS = 1 << 16
SLOWEST = (600, 600_000)  # seconds, and the bytes expected in them; anything slower takes days


class DownloadError(Exception):
    """This server can't give the file."""


class Cut(DownloadError):
    """The connection broke, or the server is too busy: worth another try."""


class Unreached(Cut):
    """The server doesn't answer at all."""


@dataclass(frozen=True)
class Content:
    """A server's description of a file: URL, length in bytes (None if unknown), ETag or date, if any."""

    url: str
    total: int | None
    validator: str


def fetch(
    urls: Sequence[str], path: Path, most: int, check: Callable[[Path], None], instead: str
) -> None:
    """Fetch a file from the first URL that has all of it.

    path:     the file; an unfinished one from an earlier call is continued
    most:     maximum size in bytes; a server that announces or sends more has another file
    check:    raises DownloadError if the content of the complete file is wrong
    instead:  for the message: what else the user can do
    raises    UserError with every server's reason, or if the disk is full
    """
    failures = {}
    for url in urls:
        try:
            return download(url, path, most, check)
        except DownloadError as failure:
            failures[url] = failure
            logger.warning(f"{url}: {failure}")
    reasons = "; ".join(f"{urlsplit(url).netloc}: {failure}" for url, failure in failures.items())
    if all(isinstance(failure, Unreached) for failure in failures.values()):
        raise UserError(
            f"{path.name}: no server answers; is there a network? ({reasons}); {instead}"
        )
    raise UserError(
        f"{path.name}: no server has all of it ({reasons}); try again later, or {instead}"
    )


def download(url: str, path: Path, most: int, check: Callable[[Path], None]) -> None:
    """Download a file from one server and check it. If a continued file fails, download it once more from scratch.

    raises   DownloadError; a wrong file is removed
    """
    continued = path.exists()
    retry(url, path, most)
    try:
        check(path)
    except DownloadError:
        remove(path)
        if not continued:
            raise
        download(url, path, most, check)


def remove(path: Path) -> None:
    """Remove an unfinished file and its description."""
    path.unlink(missing_ok=True)
    beside(path).unlink(missing_ok=True)


def retry(url: str, path: Path, most: int) -> None:
    """Connect again and again, with ever longer waits, until the file is complete.

    raises   DownloadError if the server refuses, or after several tries in a row without progress
    """
    reached, content, idle, patience = length(path), recall(path), 0, PATIENCE[0]
    while True:
        try:
            return connect(url, path, most)
        except Cut:
            if (
                recall(path) != content
            ):  # started, or started over; that is no progress, since it could go on forever
                reached, content, patience = length(path), recall(path), PATIENCE[1]
            elif length(path) >= reached + PROGRESS:
                reached, idle = length(path), 0
            idle += 1
            if idle >= patience:
                raise
        time.sleep(min(2 ** (idle - 1), LONGEST_WAIT))


def connect(url: str, path: Path, most: int) -> None:
    """Read the rest of a file in one connection, or all of it if the part at hand is of other content.

    raises   DownloadError, Cut; UserError if the file can't be written
    """
    have, known = length(path), recall(path)
    if known is None:
        have = 0
    elif have == known.total:
        return
    with request(url, path, have, known) as answer:
        offered = describe(url, answer, have)
        if answer.status == 206 and not have:
            raise DownloadError("sends a part, but the whole file was requested")
        if answer.status == 206 and not (known and fits(offered, known)):
            remove(path)
            raise Cut("the file has changed there; starting over")
        if offered.total is not None and offered.total > most:
            raise DownloadError(
                f"has another file there, of {readable(offered.total)}; expected at most {readable(most)}"
            )
        start = have if answer.status == 206 else 0
        if not start:
            # before the new description is written, so that old bytes are never taken for new ones
            remove(path)
        write_text(beside(path), json.dumps(asdict(offered)) + "\n")
        copy(answer, path, start, offered.total, most)


def request(url: str, path: Path, have: int, known: Content | None) -> http.client.HTTPResponse:
    """Request everything after the first `have` bytes if the content is still the known one, else the whole file."""
    headers = {"User-Agent": f"asr-toolkit/{__version__}", "Accept-Encoding": "identity"}
    if have and known:
        headers["Range"] = f"bytes={have}-"
        if known.url == url and known.validator:
            headers["If-Range"] = known.validator
    try:
        return opener().open(urllib.request.Request(url, headers=headers), timeout=SILENCE)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and have:
            remove(path)
            raise Cut("the file has changed there; starting over") from None
        kind = Cut if error.code >= 500 or error.code in (408, 429) else DownloadError
        circle = (
            ", a redirect that leads nowhere" if error.code in (301, 302, 303, 307, 308) else ""
        )
        raise kind(plain(f"{error.code} {error.reason}"[:150] + circle)) from None
    except (OSError, http.client.HTTPException) as error:
        untrusted = isinstance(getattr(error, "reason", None), ssl.SSLCertVerificationError)
        raise (DownloadError if untrusted else Unreached)(reason(error)) from None
    except ValueError as error:
        raise DownloadError(plain(str(error))) from None


class Redirects(urllib.request.HTTPRedirectHandler):
    """Follow at most ten redirects, over http or https, but never from https to http."""

    def redirect_request(self, request, answer, code, message, headers, url):
        """Make the request for a redirect."""
        schemes = (
            ("https:",) if request.full_url.lower().startswith("https:") else ("https:", "http:")
        )
        if not url.lower().startswith(schemes):
            raise DownloadError(plain(f"redirects from {request.type} to {url}"))
        return super().redirect_request(request, answer, code, message, headers, url)


def opener() -> urllib.request.OpenerDirector:
    """Make an opener for http and https only: no files and no ftp, wherever a server redirects to."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        Redirects(),
    ):
        opener.add_handler(handler)
    return opener


def describe(url: str, answer: http.client.HTTPResponse, have: int) -> Content:
    """Read from the headers of an answer which content it belongs to."""
    etag = answer.headers.get("ETag", "")
    validator = (
        etag if etag and not etag.startswith("W/") else answer.headers.get("Last-Modified", "")
    )
    if answer.status != 206:
        total = answer.headers.get("Content-Length", "")
        return Content(url, int(total) if re.fullmatch("[0-9]{1,18}", total) else None, validator)
    span = re.fullmatch(
        r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18})", answer.headers.get("Content-Range", "")
    )
    if not span or int(span[1]) != have:
        sent = ascii(answer.headers.get("Content-Range", ""))[:80]
        raise DownloadError(f"sends {sent}, but the bytes from {have} on were requested")
    return Content(url, int(span[2]), validator)


def fits(offered: Content, known: Content) -> bool:
    """Tell whether a part continues the one at hand: same length, and same version as far as that is known."""
    return offered.total == known.total and (
        offered.url != known.url or offered.validator == known.validator
    )


def copy(
    answer: http.client.HTTPResponse, path: Path, start: int, total: int | None, most: int
) -> None:
    """Write the body of an answer after the first `start` bytes of a file.

    raises   Cut if it ends before `total`; DownloadError if it has more than `most` bytes, and then the
             file is removed; UserError if the file can't be written
    """
    have, (seconds, least) = start, SLOWEST
    begun, then = time.monotonic(), start
    try:
        with (
            open(path, "ab" if start else "wb", opener=no_link) as file,
            bar(path.name, start, total) as progress,
        ):
            while block := receive(answer):
                if have + len(block) > most:
                    remove(path)
                    raise DownloadError(
                        f"sends another file, which doesn't end; expected at most {readable(most)}"
                    )
                file.write(block)
                have += len(block)
                progress.update(len(block))
                if time.monotonic() - begun > seconds:
                    if have - then < least:
                        raise DownloadError(
                            f"is too slow: {readable(have - then)} in {seconds} seconds"
                        )
                    begun, then = time.monotonic(), have
    except OSError as error:
        raise unwritten(
            error, path, f"{readable(have)} of {readable(total)} are here and stay"
        ) from None
    if total is not None and have != total:
        raise Cut(f"the connection broke after {readable(have)} of {readable(total)}")


def no_link(path: str, flags: int) -> int:
    """Open a file without following links, which somebody else could have put there."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def receive(answer: http.client.HTTPResponse) -> bytes:
    """Read the next bytes; none at the end."""
    try:
        return answer.read1(BLOCK)
    except (OSError, http.client.HTTPException) as error:
        raise Cut(f"the connection broke ({reason(error)})") from None


def bar(name: str, start: int, total: int | None) -> tqdm:
    """Make a progress bar that counts bytes."""
    return progress_bar(desc=name, initial=start, total=total, unit="B", unit_scale=True)


def reason(error: Exception) -> str:
    """Describe in a few words why a connection failed."""
    error = getattr(error, "reason", error)
    return plain(getattr(error, "strerror", None) or str(error) or type(error).__name__)


def length(path: Path) -> int:
    """Return the size of a file in bytes, 0 if it is missing."""
    return path.stat().st_size if path.exists() else 0


def beside(path: Path) -> Path:
    """Return the path of the description of an unfinished file."""
    return path.with_name(f"{path.name}.json")


def recall(path: Path) -> Content | None:
    """Read the description of an unfinished file; None if it is unknown."""
    try:
        known = Content(**json.loads(beside(path).read_text()))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    sound = (
        isinstance(known.url, str)
        and isinstance(known.validator, str)
        and isinstance(known.total, int | None)
    )
    return known if sound else None
