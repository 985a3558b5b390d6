"""Prove that one file arrives to the byte, whatever its servers do, and that only the rest of it is asked for again.

The servers are of this machine and misbehave as told (servers.py); what they were asked for and sent is counted. The
content is random bytes.
"""

import random

import pytest
from servers import Reply

from asr.download import fetch
from asr.errors import UserError

CONTENT = random.Random(1).randbytes(1_000_000)
OTHER = random.Random(2).randbytes(1_000_000)


def get(url, path, most=2_000_000):
    """Bring a file whose content isn't checked."""
    fetch.fetch([url], path, most, lambda _: None, "ask a friend")
    return path.read_bytes()


def test_a_cut_connection_goes_on_with_the_rest_only(server, waits, tmp_path):
    cut = [Reply(CONTENT, cut=400_000), Reply(CONTENT, cut=100_000), Reply(CONTENT, status=503)]
    server.serve("x", *cut, Reply(CONTENT))
    assert get(f"{server.url}/x", tmp_path / "x") == CONTENT
    assert [r.range for r in server.requests] == [
        None,
        "bytes=400000-",
        "bytes=500000-",
        "bytes=500000-",
    ]
    assert [r.if_range for r in server.requests] == [None, '"1"', '"1"', '"1"']
    assert [r.sent for r in server.requests] == [400_000, 100_000, 0, 500_000]
    assert waits == [1, 1, 2]  # after progress the waits begin anew


def test_a_server_without_ranges_begins_again(server, waits, tmp_path):
    server.serve("x", Reply(CONTENT, cut=400_000, ranges=False), Reply(CONTENT, ranges=False))
    assert get(f"{server.url}/x", tmp_path / "x") == CONTENT
    assert [r.sent for r in server.requests] == [400_000, 1_000_000]


def test_a_server_that_never_gets_further_is_given_up(server, waits, tmp_path):
    """Each connection sends the same first half, which is no progress."""
    server.serve("x", Reply(CONTENT, cut=400_000, ranges=False))
    with pytest.raises(UserError) as caught:
        get(f"{server.url}/x", tmp_path / "x")
    why = "the connection broke after 400 kB of 1.00 MB"
    where = server.url.removeprefix("http://")
    assert (
        str(caught.value)
        == f"x: no server has all of it ({where}: {why}); try again later, or ask a friend"
    )
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60] and len(server.requests) == 12


def test_a_server_of_which_each_answer_is_another_file_is_given_up(server, waits, tmp_path):
    server.serve("x", *(Reply(CONTENT, cut=400_000, etag=f'"{n}"') for n in range(20)))
    with pytest.raises(UserError, match="the connection broke after 400 kB of 1.00 MB"):
        get(f"{server.url}/x", tmp_path / "x")
    assert len(server.requests) == 12


@pytest.mark.parametrize(
    "before, after, asked",
    [
        ({}, {"etag": '"2"'}, 2),  # If-Range: the whole comes at once
        ({"etag": "", "modified": "Mon"}, {"etag": "", "modified": "Tue"}, 2),
        ({}, {"etag": '"2"', "deaf": True}, 3),  # a part of another version is not taken
        (
            {"etag": 'W/"1"', "modified": "Mon"},
            {"etag": 'W/"1"', "modified": "Tue", "deaf": True},
            3,
        ),
        ({"etag": ""}, {"etag": "", "data": OTHER[:900_000]}, 3),  # the length alone tells
        (
            {"etag": "", "cut": 950_000},
            {"etag": "", "data": OTHER[:900_000]},
            3,
        ),  # 416: shorter than what is here
    ],
)
def test_a_changed_file_is_begun_again(server, waits, tmp_path, before, after, asked):
    now = Reply(**{"data": OTHER} | after)
    server.serve("x", Reply(CONTENT, **{"cut": 400_000} | before), now)
    assert get(f"{server.url}/x", tmp_path / "x") == now.data
    assert len(server.requests) == asked


def test_a_file_of_which_nothing_is_known_is_begun_again(server, waits, tmp_path):
    (tmp_path / "x").write_bytes(b"from somewhere")
    for known in (None, "damaged"):
        if known:
            (tmp_path / "x.json").write_text(known)
        server.serve("x", Reply(CONTENT))
        assert get(f"{server.url}/x", tmp_path / "x") == CONTENT
        assert [r.range for r in server.requests] == [None]


def test_old_bytes_are_gone_before_a_new_beginning_is_noted(server, waits, tmp_path, monkeypatch):
    """Stopped between the two, nothing could tell them from the new file's."""
    copies, copy = [], fetch.copy

    def stopped(answer, path, start, total, most):
        copies.append(start)
        if len(copies) == 2:
            raise KeyboardInterrupt
        copy(answer, path, start, total, most)

    server.serve("x", Reply(CONTENT, cut=400_000), Reply(OTHER, etag='"2"'))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(fetch, "copy", stopped)
        get(f"{server.url}/x", tmp_path / "x")
    assert get(f"{server.url}/x", tmp_path / "x") == OTHER
    assert [r.range for r in server.requests] == [None, "bytes=400000-", None]


def test_what_is_whole_is_not_asked_for_again(server, waits, tmp_path):
    server.serve("x", Reply(CONTENT))
    get(f"{server.url}/x", tmp_path / "x")
    assert get(f"{server.url}/x", tmp_path / "x") == CONTENT and len(server.requests) == 1


def matches(data):
    def check(path):
        if path.read_bytes() != data:
            raise fetch.DownloadError("wrong")

    return check


def test_the_next_server_goes_on_with_what_the_first_gave(server, second, waits, tmp_path):
    server.serve("x", Reply(CONTENT, cut=400_000), Reply(status=404))
    second.serve("x", Reply(CONTENT, etag='"its own"'))
    fetch.fetch(
        [f"{server.url}/x", f"{second.url}/x"], tmp_path / "x", 2_000_000, matches(CONTENT), ""
    )
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert [(r.range, r.if_range) for r in second.requests] == [("bytes=400000-", None)]


def test_a_bad_beginning_is_not_held_against_the_next_server(server, second, waits, tmp_path):
    server.serve("x", Reply(OTHER, cut=400_000), Reply(status=404))
    second.serve("x", Reply(CONTENT))
    fetch.fetch(
        [f"{server.url}/x", f"{second.url}/x"], tmp_path / "x", 2_000_000, matches(CONTENT), ""
    )
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert [r.range for r in second.requests] == ["bytes=400000-", None]


def test_a_redirect_is_followed_with_its_range(server, second, waits, tmp_path):
    server.serve("x", Reply(leads=f"{second.url}/x"))
    second.serve("x", Reply(CONTENT, cut=10), Reply(CONTENT))
    assert get(f"{server.url}/x", tmp_path / "x") == CONTENT
    assert [r.range for r in second.requests] == [None, "bytes=10-"]


# --- servers that mean harm


def refusal(url, path, most=2_000_000):
    """What is said of a file that can't be had, in one line."""
    with pytest.raises(UserError) as caught:
        get(url, path, most)
    line = str(caught.value)
    assert line.isprintable() and len(line) < 700
    return line


def left(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_that_is_said_to_be_larger_is_not_begun(server, waits, tmp_path):
    server.serve("x", Reply(CONTENT))
    assert "another file there, of 1.00 MB; expected at most 900 kB" in refusal(
        f"{server.url}/x", tmp_path / "x", 900_000
    )
    assert len(server.requests) == 1 and left(tmp_path) == []


@pytest.mark.parametrize("claims", ["", "9" * 5000, "-1", "x"])
def test_a_body_without_an_end_is_left(server, waits, tmp_path, claims):
    """A length that is absent, or none, bounds nothing; the known size does."""
    server.serve("x", Reply(CONTENT * 20, claims=claims))
    assert "which doesn't end" in refusal(f"{server.url}/x", tmp_path / "x", 900_000)
    assert left(tmp_path) == [] and len(server.requests) == 1


def test_the_file_of_the_next_server_is_taken_after_one_without_an_end(
    server, second, waits, tmp_path
):
    server.serve("x", Reply(CONTENT * 20, claims=""))
    second.serve("x", Reply(CONTENT))
    fetch.fetch(
        [f"{server.url}/x", f"{second.url}/x"], tmp_path / "x", 1_500_000, matches(CONTENT), ""
    )
    assert (tmp_path / "x").read_bytes() == CONTENT


def test_a_server_that_cuts_after_each_byte_is_given_up(server, waits, tmp_path):
    server.serve("x", Reply(CONTENT, cut=1000))
    assert "the connection broke" in refusal(f"{server.url}/x", tmp_path / "x")
    assert len(server.requests) == 12


def test_a_server_that_trickles_is_given_up_and_what_came_is_kept(
    server, waits, tmp_path, monkeypatch
):
    """Each look at the clock is 100 s after the last."""
    clock = iter(range(0, 10**9, 100))
    monkeypatch.setattr(fetch.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(fetch, "BLOCK", 1000)
    server.serve("x", Reply(CONTENT))
    assert "is too slow" in refusal(f"{server.url}/x", tmp_path / "x")
    assert 0 < (tmp_path / "x").stat().st_size < 100_000 and len(server.requests) == 1
    monkeypatch.setattr(fetch, "SLOWEST", (600, 0))
    assert get(f"{server.url}/x", tmp_path / "x") == CONTENT and server.requests[-1].range


@pytest.mark.parametrize(
    "where", ["file:///etc/passwd", "ftp://127.0.0.1/x", "data:,x", "gopher://127.0.0.1/x"]
)
def test_a_redirect_leads_to_http_or_https_only(server, waits, tmp_path, where):
    server.serve("x", Reply(leads=where))
    assert where in refusal(f"{server.url}/x", tmp_path / "x")
    assert left(tmp_path) == [] and len(server.requests) == 1


def test_a_redirect_does_not_leave_https(server):
    """As a server of https would be asked; the handler alone, since a certificate of this machine is none."""
    request = fetch.urllib.request.Request("https://mirror.org/x")
    with pytest.raises(fetch.DownloadError, match="redirects from https to http://mirror.org/x"):
        fetch.Redirects().redirect_request(request, None, 302, "Found", {}, "http://mirror.org/x")
    there = fetch.Redirects().redirect_request(
        request, None, 302, "Found", {}, "HTTPS://other.org/x"
    )
    assert there.full_url == "HTTPS://other.org/x"


def test_what_opens_urls_opens_nothing_else(tmp_path):
    (tmp_path / "secret").write_text("s")
    for url in ((tmp_path / "secret").as_uri(), "ftp://127.0.0.1:9/x", "data:,x"):
        with pytest.raises(OSError, match="unknown url type"):
            fetch.opener().open(url, timeout=1)


def test_a_circle_of_redirects_is_left(server, waits, tmp_path):
    server.serve("x", Reply(leads=f"{server.url}/x"))
    assert "302" in refusal(f"{server.url}/x", tmp_path / "x")
    assert len(server.requests) < 12


def test_a_servers_words_do_not_reach_the_terminal_as_they_are(server, waits, tmp_path, capsys):
    server.serve("x", Reply(status=404, phrase="\x1b]0;evil\x07" + "a" * 5000))
    assert "404" in refusal(f"{server.url}/x", tmp_path / "x")
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "headers", [[("X", "a" * 70_000)], [(f"X{n}", "a" * 60_000) for n in range(150)]]
)
def test_headers_without_measure_are_left(server, waits, tmp_path, headers):
    server.serve("x", Reply(CONTENT, headers=tuple(headers)))
    refusal(f"{server.url}/x", tmp_path / "x")
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    "span", ["bytes 400000-999999/*", "bytes 0-5/6", "bytes 400000-1/" + "9" * 5000, "\xb2"]
)
def test_a_part_that_is_not_the_one_asked_for_is_left(server, waits, tmp_path, span):
    server.serve("x", Reply(CONTENT, cut=400_000), Reply(CONTENT, span=span))
    refusal(f"{server.url}/x", tmp_path / "x")


def test_a_part_that_was_not_asked_for_is_left(server, waits, tmp_path):
    server.serve("x", Reply(CONTENT, status=206, span="bytes 0-2/1000000"))
    assert "sends a part" in refusal(f"{server.url}/x", tmp_path / "x")
    assert left(tmp_path) == []


def test_a_link_is_not_written_through(server, waits, tmp_path):
    """Laid by somebody else, where the file under way would be; what it leads to stays as it was."""
    (tmp_path / "mine").write_bytes(b"precious")
    (tmp_path / "x").symlink_to(tmp_path / "mine")
    (tmp_path / "x.json").write_text('{"url": "", "total": 1000000, "validator": ""}')
    server.serve("x", Reply(CONTENT))
    assert "symbolic links" in refusal(f"{server.url}/x", tmp_path / "x")
    assert (tmp_path / "mine").read_bytes() == b"precious"


def test_a_note_that_is_none_begins_the_file_again(server, waits, tmp_path):
    for note in (
        '{"url": 1, "total": "x", "validator": []}',
        "[]",
        '{"url": "", "total": null, "validator": {}}',
    ):
        (tmp_path / "x").write_bytes(b"half")
        (tmp_path / "x.json").write_text(note)
        server.serve("x", Reply(CONTENT))
        assert (
            get(f"{server.url}/x", tmp_path / "x") == CONTENT and server.requests[0].range is None
        )
