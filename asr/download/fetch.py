"""One file from the first of several servers that has it whole; what was cut off goes on where it stopped.

Beside the file under way, `x`, stands `x.json`: from where it comes, how long it will be, and the server's word for
its content (ETag or date). Without it, or where a server tells otherwise, the file is begun again: two contents are
never joined, unless servers that can't be compared give the same length, and then the final check finds it.
"""

import http.client
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tqdm import tqdm

from asr import __version__
from asr.download.disk import full, readable
from asr.errors import UserError
from asr.files import write_text
from asr.say import say

BLOCK = 1 << 18
SILENCE = 60  # seconds without a byte, then the connection counts as cut
PATIENCE = (3, 12)  # tries without getting further: at a server that has not answered yet, at one that has
LONGEST_WAIT = 60  # seconds between two tries: 1, 2, 4, ...


class Failure(Exception):
    """This server can't give the file."""


class Cut(Failure):
    """A connection broke, or a server is too busy: worth another try."""


class Unreached(Cut):
    """No answer at all."""


@dataclass(frozen=True)
class Content:
    """What a server says of a file: its URL, length in bytes (None: it doesn't say), and ETag or date, if any."""

    url: str
    total: int | None
    validator: str


def fetch(urls: Sequence[str], path: Path, check: Callable[[Path], None], instead: str) -> None:
    """Bring a file from the first URL that gives it whole.

    path:     the file; what an earlier call has left there is gone on with
    check:    raises Failure where the whole file's content is wrong
    instead:  for the message: what else the person can do
    raises    UserError with every server's reason, or where the disk is full
    """
    failures = {}
    for url in urls:
        try:
            return obtain(url, path, check)
        except Failure as failure:
            failures[url] = failure
            say(f"{url}: {failure}")
    reasons = "; ".join(f"{urlsplit(url).netloc}: {failure}" for url, failure in failures.items())
    if all(isinstance(failure, Unreached) for failure in failures.values()):
        raise UserError(f"{path.name}: no server answers, is there a network? ({reasons}); {instead}")
    raise UserError(f"{path.name}: no server has it whole ({reasons}); try again later, or {instead}")


def obtain(url: str, path: Path, check: Callable[[Path], None]) -> None:
    """Bring a whole file from one server and check it; what was begun earlier gets the blame first.

    raises   Failure; a wrong file is removed
    """
    continued = path.exists()
    insist(url, path)
    try:
        check(path)
    except Failure:
        remove(path)
        if not continued:
            raise
        obtain(url, path, check)


def remove(path: Path) -> None:
    """Remove a file under way, and what is known of it."""
    path.unlink(missing_ok=True)
    beside(path).unlink(missing_ok=True)


def insist(url: str, path: Path) -> None:
    """Connect again, with ever longer waits, until the file is whole.

    raises   Failure where the server refuses, or where several tries in a row get no further
    """
    most, content, idle, patience = length(path), recall(path), 0, PATIENCE[0]
    while True:
        try:
            return connect(url, path)
        except Cut:
            if recall(path) != content:  # begun, or begun again, which is no progress: it could go on for ever
                most, content, patience = length(path), recall(path), PATIENCE[1]
            elif length(path) > most:
                most, idle = length(path), 0
            idle += 1
            if idle >= patience:
                raise
        time.sleep(min(2 ** (idle - 1), LONGEST_WAIT))


def connect(url: str, path: Path) -> None:
    """Read the rest of a file in one connection, or all of it where there is no beginning of the same content.

    raises   Failure, Cut; UserError where the file can't be written
    """
    have, known = length(path), recall(path)
    if known is None:
        have = 0
    elif have == known.total:
        return
    with ask(url, path, have, known) as answer:
        told = describe(url, answer, have)
        if answer.status == 206 and not fits(told, known):
            remove(path)
            raise Cut("the file has changed there; it is begun again")
        start = have if answer.status == 206 else 0
        if not start:
            remove(path)  # before it is said what comes: no moment may take old bytes for the new content's
        write_text(beside(path), json.dumps(asdict(told)) + "\n")
        copy(answer, path, start, told.total)


def ask(url: str, path: Path, have: int, known: Content | None) -> http.client.HTTPResponse:
    """Request what lies beyond the first `have` bytes, if it is of the known content; otherwise the whole."""
    headers = {"User-Agent": f"asr-toolkit/{__version__}", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
        if known.url == url and known.validator:
            headers["If-Range"] = known.validator
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=SILENCE)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and have:
            remove(path)
            raise Cut("the file has changed there; it is begun again") from None
        kind = Cut if error.code >= 500 or error.code in (408, 429) else Failure
        raise kind(f"{error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        raise Unreached(reason(error)) from None
    except ValueError as error:
        raise Failure(str(error)) from None


def describe(url: str, answer: http.client.HTTPResponse, have: int) -> Content:
    """Read from an answer's headers which content it is (a part) of."""
    etag = answer.headers.get("ETag", "")
    validator = etag if etag and not etag.startswith("W/") else answer.headers.get("Last-Modified", "")
    if answer.status != 206:
        total = answer.headers.get("Content-Length", "")
        return Content(url, int(total) if total.isdecimal() else None, validator)
    span = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", answer.headers.get("Content-Range", ""))
    if not span or int(span[1]) != have:
        raise Failure(f"sends {answer.headers.get('Content-Range')!r} where the bytes from {have} on were asked for")
    return Content(url, int(span[2]), validator)


def fits(told: Content, known: Content) -> bool:
    """Whether a part may be put behind what is here: of the same length, and of the same version if one can say so."""
    return told.total == known.total and (told.url != known.url or told.validator == known.validator)


def copy(answer: http.client.HTTPResponse, path: Path, start: int, total: int | None) -> None:
    """Write an answer's body behind the first `start` bytes of a file.

    raises   Cut if it ends before `total`; UserError if the disk is full
    """
    have = start
    try:
        with open(path, "ab" if start else "wb") as file, bar(path.name, start, total) as progress:
            while block := receive(answer):
                file.write(block)
                have += len(block)
                progress.update(len(block))
    except OSError as error:
        raise full(error, path, f"{readable(have)} of {readable(total)} are here, and stay") from None
    if total is not None and have != total:
        raise Cut(f"the connection was cut after {readable(have)} of {readable(total)}")


def receive(answer: http.client.HTTPResponse) -> bytes:
    """Read what has come; nothing at the end."""
    try:
        return answer.read1(BLOCK)
    except (OSError, http.client.HTTPException) as error:
        raise Cut(f"the connection was cut ({reason(error)})") from None


def bar(name: str, start: int, total: int | None) -> tqdm:
    """Make a bar of bytes."""
    return tqdm(desc=name, initial=start, total=total, unit="B", unit_scale=True, disable=None, leave=False)


def reason(error: Exception) -> str:
    """Say in a few words why a connection failed."""
    error = getattr(error, "reason", error)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def length(path: Path) -> int:
    """Bytes of a file, 0 if it is absent."""
    return path.stat().st_size if path.exists() else 0


def beside(path: Path) -> Path:
    """Where it stands what a file under way is of."""
    return path.with_name(f"{path.name}.json")


def recall(path: Path) -> Content | None:
    """Read what a file under way is of; None where that isn't known."""
    try:
        return Content(**json.loads(beside(path).read_text()))
    except (OSError, ValueError, TypeError):
        return None
