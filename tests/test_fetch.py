"""Prove that one file arrives to the byte, whatever its servers do, and that only the rest of it is asked for again.

The servers are of this machine and misbehave as told (servers.py); what they were asked for and sent is counted. The
content is random bytes.
"""

import random

import pytest
from servers import Reply

from asr.download import fetch
from asr.errors import UserError

each = pytest.mark.parametrize

CONTENT = random.Random(1).randbytes(1_000_000)
OTHER = random.Random(2).randbytes(1_000_000)
CUT = Reply(CONTENT, cut=400_000)


@pytest.fixture
def path(waits, tmp_path):
    """Where the file goes."""
    return tmp_path / "x"


def get(path, *servers, most=2_000_000, content=None):
    """Fetch a file, whose content is checked if it is given."""

    def check(path):
        if content and path.read_bytes() != content:
            raise fetch.DownloadError("wrong")

    fetch.fetch([f"{server.url}/x" for server in servers], path, most, check, "ask a friend")
    return path.read_bytes()


def refusal(path, server, left=(), **more):
    """What is said of a file that can't be had, in one line; what is left in its folder."""
    with pytest.raises(UserError) as caught:
        get(path, server, **more)
    line = str(caught.value)
    assert line.isprintable() and len(line) < 700
    assert sorted(path.name for path in path.parent.iterdir()) == list(left)
    return line


def ranges(server):
    """What was asked for."""
    return [request.range for request in server.requests]


def test_a_cut_connection_goes_on_with_the_rest_only(server, waits, path):
    server.serve("x", CUT, Reply(CONTENT, cut=100_000), Reply(status=503), Reply(CONTENT))
    assert get(path, server) == CONTENT
    assert [(r.range, r.if_range, r.sent) for r in server.requests] == [
        (None, None, 400_000),
        ("bytes=400000-", '"1"', 100_000),
        ("bytes=500000-", '"1"', 0),
        ("bytes=500000-", '"1"', 500_000),
    ]
    assert waits == [1, 1, 2]  # after progress the waits begin anew
    assert get(path, server) == CONTENT and len(server.requests) == 4  # it is whole


def test_a_server_without_ranges_begins_again(server, path):
    server.serve("x", Reply(CONTENT, cut=400_000, ranges=False), Reply(CONTENT, ranges=False))
    assert get(path, server) == CONTENT
    assert [r.sent for r in server.requests] == [400_000, 1_000_000]


@each(
    "replies",
    [
        [Reply(CONTENT, cut=400_000, ranges=False)],  # each time the same first part
        [Reply(CONTENT, cut=400_000, etag=f'"{n}"') for n in range(20)],  # each time another file
        [Reply(CONTENT, cut=1000)],  # it cuts after every few bytes
    ],
    ids=["same", "other", "little"],
)
def test_a_server_that_never_gets_further_is_given_up(server, waits, path, replies):
    server.serve("x", *replies)
    line = refusal(path, server, ["x", "x.json"])
    assert line.startswith(f"x: no server has all of it ({server.url[7:]}: the connection broke ")
    assert " of 1.00 MB); " in line and "ask a friend" in line
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60] and len(server.requests) == 12


WEAK = {"etag": 'W/"1"', "deaf": True}


@each(
    "before, after, asked",
    [
        ({}, {"etag": '"2"'}, 2),  # If-Range: the whole comes at once
        ({"etag": "", "modified": "Mon"}, {"etag": "", "modified": "Tue"}, 2),
        ({}, {"etag": '"2"', "deaf": True}, 3),  # a part of another version is not taken
        (WEAK | {"modified": "Mon"}, WEAK | {"modified": "Tue"}, 3),
        ({"etag": ""}, {"etag": "", "data": OTHER[:900_000]}, 3),  # the length alone tells
        ({"etag": "", "cut": 950_000}, {"etag": "", "data": OTHER[:900_000]}, 3),  # 416: shorter
    ],
)
def test_a_changed_file_is_begun_again(server, path, before, after, asked):
    now = Reply(**{"data": OTHER} | after)
    server.serve("x", Reply(CONTENT, **{"cut": 400_000} | before), now)
    assert get(path, server) == now.data and len(server.requests) == asked


NOTES = """
damaged
[]
{"url": 1, "total": 1000000, "validator": ""}
{"url": "", "total": "1000000", "validator": ""}
{"url": "", "total": 1000000, "validator": {}}
"""


@each("note", [None, *NOTES.strip().splitlines()])
def test_a_file_of_which_nothing_is_known_is_begun_again(server, path, note):
    path.write_bytes(b"from somewhere")
    if note:
        path.with_name("x.json").write_text(note)
    server.serve("x", Reply(CONTENT))
    assert get(path, server) == CONTENT and ranges(server) == [None]


def test_old_bytes_are_gone_before_a_new_beginning_is_noted(server, path, monkeypatch):
    """Stopped between the two, nothing could tell them from the new file's."""
    copy = fetch.copy

    def stopped(answer, path, start, *more):
        if answer.headers["ETag"] == '"2"':
            raise KeyboardInterrupt
        copy(answer, path, start, *more)

    server.serve("x", CUT, Reply(OTHER, etag='"2"'))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(fetch, "copy", stopped)
        get(path, server)
    assert get(path, server) == OTHER and ranges(server) == [None, "bytes=400000-", None]


@each("is_good", [True, False])
def test_the_next_server_goes_on_with_what_the_first_gave(server, second, path, is_good):
    """A bad beginning isn't held against it."""
    server.serve("x", Reply(CONTENT if is_good else OTHER, cut=400_000), Reply(status=404))
    second.serve("x", Reply(CONTENT, etag='"its own"'))
    assert get(path, server, second, content=CONTENT) == CONTENT
    assert ranges(second) == ["bytes=400000-", None][: 2 - is_good]
    assert not any(r.if_range for r in second.requests)


def test_a_redirect_is_followed_with_its_range(server, second, path):
    server.serve("x", Reply(leads=f"{second.url}/x"))
    second.serve("x", Reply(CONTENT, cut=10), Reply(CONTENT))
    assert get(path, server) == CONTENT and ranges(second) == [None, "bytes=10-"]


# --- servers that mean harm; more of them in bad_inputs/download.py


def test_a_file_that_is_said_to_be_larger_is_not_begun(server, path):
    server.serve("x", Reply(CONTENT))
    assert "of 1.00 MB; expected at most 900 kB" in refusal(path, server, most=900_000)
    assert len(server.requests) == 1


@each("claims", ["", "9" * 5000, "-1", "x"])
def test_a_body_without_an_end_is_left(server, second, path, claims):
    """A length that is absent, or none, bounds nothing; the known size does."""
    server.serve("x", Reply(CONTENT * 20, claims=claims))
    assert "which doesn't end" in refusal(path, server, most=1_500_000)
    assert len(server.requests) == 1
    second.serve("x", Reply(CONTENT))
    assert get(path, server, second, most=1_500_000) == CONTENT


def test_a_server_that_trickles_is_given_up_and_what_came_is_kept(server, path, monkeypatch):
    """Each look at the clock is 100 s after the last."""
    clock = iter(range(0, 10**9, 100))
    monkeypatch.setattr(fetch.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(fetch, "BLOCK", 1000)
    server.serve("x", Reply(CONTENT))
    assert "is too slow" in refusal(path, server, ["x", "x.json"])
    assert 0 < path.stat().st_size < 100_000 and len(server.requests) == 1
    monkeypatch.setattr(fetch, "SLOWEST", (600, 0))
    assert get(path, server) == CONTENT and server.requests[-1].range


@each("where", ["file:///etc/passwd", "ftp://127.0.0.1/x", "data:,x"])
def test_a_redirect_leads_to_http_or_https_only(server, path, where):
    server.serve("x", Reply(leads=where))
    assert where in refusal(path, server) and len(server.requests) == 1
    with pytest.raises(OSError, match="unknown url type"):
        fetch.opener().open(where, timeout=1)


def test_a_redirect_does_not_leave_https():
    """As a server of https would be asked; the handler alone, since a certificate of this machine is none."""
    request = fetch.urllib.request.Request("https://mirror.org/x")

    def redirect(url):
        return fetch.Redirects().redirect_request(request, None, 302, "Found", {}, url).full_url

    assert redirect("HTTPS://other.org/x") == "HTTPS://other.org/x"
    with pytest.raises(fetch.DownloadError, match="redirects from https to http://mirror.org/x"):
        redirect("http://mirror.org/x")


def test_a_servers_words_do_not_reach_the_terminal_as_they_are(server, path, capsys):
    server.serve("x", Reply(status=404, phrase="\x1b]0;evil\x07" + "a" * 5000))
    assert "404" in refusal(path, server) and "\x1b" not in capsys.readouterr().err


@each("span", ["bytes 400000-999999/*", "bytes 0-5/6", "bytes 400000-1/" + "9" * 5000, "\xb2"])
def test_a_part_that_is_not_the_one_asked_for_is_left(server, path, span):
    server.serve("x", CUT, Reply(CONTENT, span=span))
    assert "but the bytes from 400000 on" in refusal(path, server, ["x", "x.json"])


def test_a_link_is_not_written_through(server, path):
    """Laid by somebody else, where the file under way would be; what it leads to stays as it was."""
    mine = path.with_name("mine")
    mine.write_bytes(b"precious")
    path.symlink_to(mine)
    path.with_name("x.json").write_text('{"url": "", "total": 1000000, "validator": ""}')
    server.serve("x", Reply(CONTENT))
    assert "symbolic links" in refusal(path, server, ["mine", "x", "x.json"])
    assert mine.read_bytes() == b"precious"
