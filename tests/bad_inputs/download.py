"""asr-download: names, folders, servers, archives. No other server is reached than `$mirror`, on this machine."""

import gzip
import json
import os
import tarfile

from bad_inputs.case import case
from bad_inputs.material import http, tar_gz
from bad_inputs.tables import rows

YESNO = "asr-download yesno out --mirror $mirror"
AN4 = "asr-download an4 out --mirror $mirror"
KEPT = (
    "out/.download/an4_sphere.tar.gz*",
    "out/.download/.lock",
)  # what was fetched, which the message names
WORK = "out/.download/*"  # what is under way may wait there to be gone on with


def raw(*pieces):
    """A server that answers with these bytes, whatever HTTP has to say of them."""

    def answer(connection, request):
        for piece in pieces:
            connection.sendall(piece)

    return answer


def archive(*members, **how):
    """Give an4's archive at the mirror."""
    return lambda r: r.mirror(http(tar_gz(*members, **how)))


def member(name, kind=tarfile.REGTYPE, **facts):
    """A member of an archive."""
    info = tarfile.TarInfo(name)
    info.type = kind
    for key, value in facts.items():
        setattr(info, key, value)
    return info


def huge_sparse():
    """A tar with a file that says it is 2^62 bytes long and holds none."""
    info = member("an4/etc/an4_train.fileids")
    info.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.realsize": str(1 << 62),
    }
    info.pax_headers |= {"GNU.sparse.name": "an4/etc/an4_train.fileids"}
    content = b"0\n".ljust(512, b"\0")
    info.size = len(content)
    return tar_gz((info, content))


def endless(connection, request):
    """Send for ever, without a length."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    while True:
        connection.sendall(b"\x1f\x8b\x08\0" * 65536)


def silent(connection, request):
    """Say nothing, and keep the connection."""
    connection.recv(1)


def nowhere_to_go(r):
    r.mirror(http(status="302 Found", Location="/resources/1/waves_yesno.tar.gz"))


def no_secret(room, done):
    assert "hunter2" not in done.err


def once(room, done):
    assert done.err.count("waves_yesno.tar.gz") == 1


CASES = rows("download", globals()) + [
    case("the folder has a name of 5000 letters", f"asr-download yesno {'x' * 5000}", "too long"),
    case(
        "the working folder is a file",
        YESNO,
        ".download",
        given=lambda r: [r.mirror(silent), r.write("out/.download", "x")],
    ),
    case(
        "an archive of one's own is a broken link",
        "asr-download yesno out --mirror $mirror",
        "waves_yesno.tar.gz",
        given=lambda r: [
            r.mirror(http(status="404 Not Found")),
            r.link("out/waves_yesno.tar.gz", "gone.tar.gz"),
        ],
        hasty=True,
    ),
    case(
        "what is known of the file under way is nested deeply",
        YESNO,
        "127.0.0.1",
        hasty=True,
        leaves=(WORK,),
        changes=("out/.download/*",),
        given=lambda r: [
            r.mirror(http(status="404 Not Found")),
            r.write("out/.download/waves_yesno.tar.gz", b"\x1f\x8b"),
            r.write("out/.download/waves_yesno.tar.gz.json", "[" * 100_000),
        ],
    ),
    case(
        "what is known of the file under way has other types",
        YESNO,
        "127.0.0.1",
        hasty=True,
        leaves=(WORK,),
        changes=("out/.download/*",),
        given=lambda r: [
            r.mirror(http(status="404 Not Found")),
            r.write("out/.download/waves_yesno.tar.gz", b"\x1f\x8b"),
            r.write(
                "out/.download/waves_yesno.tar.gz.json",
                json.dumps({"url": ["x"], "total": {"a": 1}, "validator": 5}),
            ),
        ],
    ),
    case(
        "a mirror with a page to log in",
        YESNO,
        "127.0.0.1",
        given=lambda r: r.mirror(http(b"<html>Welcome to the hotel")),
        hasty=True,
    ),
    case(
        "a mirror that sends in circles",
        YESNO,
        "127.0.0.1",
        "redirect",
        given=nowhere_to_go,
        hasty=True,
    ),
    case(
        "a mirror that sends to a file of this machine",
        YESNO,
        "127.0.0.1",
        given=lambda r: r.mirror(http(status="302 Found", Location="file:///etc/passwd")),
        hasty=True,
    ),
    case(
        "a mirror whose length is no number",
        YESNO,
        "127.0.0.1",
        given=lambda r: r.mirror(http(b"abc", length="-5, many")),
        hasty=True,
    ),
    case(
        "a mirror that speaks no HTTP",
        YESNO,
        "127.0.0.1",
        given=lambda r: r.mirror(raw(b"SSH-2.0-OpenSSH_9.6\r\n\0\xff\n")),
        hasty=True,
    ),
    case(
        "a mirror with a header of 100 kB",
        YESNO,
        "127.0.0.1",
        given=lambda r: r.mirror(raw(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n")),
        hasty=True,
    ),
    case(
        "a mirror with a thousand headers",
        YESNO,
        "127.0.0.1",
        given=lambda r: r.mirror(raw(b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 1000 + b"\r\n")),
        hasty=True,
    ),
    case(
        "a mirror that sends a part of which nothing was asked",
        YESNO,
        "127.0.0.1",
        hasty=True,
        leaves=(WORK,),
        given=lambda r: r.mirror(
            http(b"abc", status="206 Partial Content", Content_Range="bytes 0-2/4700000")
        ),
    ),
    case(
        "a mirror that sends for ever",
        YESNO,
        "127.0.0.1",
        given=lambda r: r.mirror(endless),
        hasty=True,
    ),
    case(
        "a mirror that says nothing",
        YESNO,
        "127.0.0.1",
        given=lambda r: r.mirror(silent),
        hasty=True,
    ),
    case(
        "a mirror with broken chunks",
        YESNO,
        "127.0.0.1",
        hasty=True,
        leaves=(WORK,),
        given=lambda r: r.mirror(
            raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFFF\r\nabc")
        ),
    ),
    case(
        "an archive with a file and a folder of one name",
        AN4,
        "an4_sphere.tar.gz",
        leaves=KEPT,
        hasty=True,
        given=archive(("an4/wav", b"x"), ("an4/wav/a.sph", b"x")),
    ),
    case(
        "an archive with a name that isn't UTF-8",
        AN4,
        ("an4", "refused"),
        leaves=KEPT,
        hasty=True,
        given=archive((os.fsdecode(b"an4/\xff\xfe.sph"), b"x")),
    ),
    case(
        "an archive with a file of 2^62 bytes that holds none",
        AN4,
        ("an4_sphere", "large"),
        given=lambda r: r.mirror(http(huge_sparse())),
        leaves=KEPT,
        hasty=True,
    ),
    case(
        "an archive whose member has a size that is no number",
        AN4,
        "an4_sphere.tar.gz",
        leaves=KEPT,
        hasty=True,
        given=archive((member("an4/x", pax_headers={"size": "9" * 40}), b"")),
    ),
    case(
        "a tar that isn't packed",
        AN4,
        "gzip",
        given=lambda r: r.mirror(http(tar_gz(("an4/x", b"x"), kind="w"))),
        leaves=KEPT,
        hasty=True,
    ),
    case(
        "an archive with other bytes behind its end",
        AN4,
        ("an4_sphere", "gzip"),
        leaves=KEPT,
        hasty=True,
        given=lambda r: r.mirror(http(tar_gz(("an4/x", b"x")) + b"trailing garbage")),
    ),
    case(
        "an archive of nothing",
        AN4,
        "an4",
        given=lambda r: r.mirror(http(gzip.compress(b"\0" * 10240))),
        leaves=KEPT,
        hasty=True,
    ),
    case(
        "an archive whose folder is hidden by a member without rights",
        AN4,
        "an4",
        leaves=KEPT,
        hasty=True,
        user=True,
        given=archive((member("an4", tarfile.DIRTYPE, mode=0), b""), ("an4/etc/a", b"x")),
    ),
    case(
        "the disk is full while it is fetched",
        YESNO,
        "waves_yesno.tar.gz",
        "too large",
        file_bytes=100_000,
        leaves=(WORK,),
        hasty=True,
        given=lambda r: r.mirror(http(b"\x1f\x8b" * 2_000_000)),
    ),
]
