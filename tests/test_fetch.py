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


def get(url, path):
    """Bring a file whose content isn't checked."""
    fetch.fetch([url], path, lambda _: None, "ask a friend")
    return path.read_bytes()


def test_a_cut_connection_goes_on_with_the_rest_only(server, waits, tmp_path):
    server.serve("x", Reply(CONTENT, cut=400_000), Reply(CONTENT, cut=1), Reply(CONTENT, status=503), Reply(CONTENT))
    assert get(f"{server.url}/x", tmp_path / "x") == CONTENT
    assert [r.range for r in server.requests] == [None, "bytes=400000-", "bytes=400001-", "bytes=400001-"]
    assert [r.if_range for r in server.requests] == [None, '"1"', '"1"', '"1"']
    assert [r.sent for r in server.requests] == [400_000, 1, 0, 599_999]
    assert waits == [1, 1, 2]  # a new byte is progress, and the waits begin anew


def test_a_server_without_ranges_begins_again(server, waits, tmp_path):
    server.serve("x", Reply(CONTENT, cut=400_000, ranges=False), Reply(CONTENT, ranges=False))
    assert get(f"{server.url}/x", tmp_path / "x") == CONTENT
    assert [r.sent for r in server.requests] == [400_000, 1_000_000]


def test_a_server_that_never_gets_further_is_given_up(server, waits, tmp_path):
    """Each connection sends the same first half, which is no progress."""
    server.serve("x", Reply(CONTENT, cut=400_000, ranges=False))
    with pytest.raises(UserError) as caught:
        get(f"{server.url}/x", tmp_path / "x")
    why = "the connection was cut after 400 kB of 1.00 MB"
    where = server.url.removeprefix("http://")
    assert str(caught.value) == f"x: no server has it whole ({where}: {why}); try again later, or ask a friend"
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60] and len(server.requests) == 12


def test_a_server_of_which_each_answer_is_another_file_is_given_up(server, waits, tmp_path):
    server.serve("x", *(Reply(CONTENT, cut=400_000, etag=f'"{n}"') for n in range(20)))
    with pytest.raises(UserError, match="the connection was cut after 400 kB of 1.00 MB"):
        get(f"{server.url}/x", tmp_path / "x")
    assert len(server.requests) == 12


@pytest.mark.parametrize(
    "before, after, asked",
    [
        ({}, {"etag": '"2"'}, 2),  # If-Range: the whole comes at once
        ({"etag": "", "modified": "Mon"}, {"etag": "", "modified": "Tue"}, 2),
        ({}, {"etag": '"2"', "deaf": True}, 3),  # a part of another version is not taken
        ({"etag": 'W/"1"', "modified": "Mon"}, {"etag": 'W/"1"', "modified": "Tue", "deaf": True}, 3),
        ({"etag": ""}, {"etag": "", "data": OTHER[:900_000]}, 3),  # the length alone tells
        ({"etag": "", "cut": 950_000}, {"etag": "", "data": OTHER[:900_000]}, 3),  # 416: shorter than what is here
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

    def stopped(answer, path, start, total):
        copies.append(start)
        if len(copies) == 2:
            raise KeyboardInterrupt
        copy(answer, path, start, total)

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
            raise fetch.Failure("wrong")

    return check


def test_the_next_server_goes_on_with_what_the_first_gave(server, second, waits, tmp_path):
    server.serve("x", Reply(CONTENT, cut=400_000), Reply(status=404))
    second.serve("x", Reply(CONTENT, etag='"its own"'))
    fetch.fetch([f"{server.url}/x", f"{second.url}/x"], tmp_path / "x", matches(CONTENT), "")
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert [(r.range, r.if_range) for r in second.requests] == [("bytes=400000-", None)]


def test_a_bad_beginning_is_not_held_against_the_next_server(server, second, waits, tmp_path):
    server.serve("x", Reply(OTHER, cut=400_000), Reply(status=404))
    second.serve("x", Reply(CONTENT))
    fetch.fetch([f"{server.url}/x", f"{second.url}/x"], tmp_path / "x", matches(CONTENT), "")
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert [r.range for r in second.requests] == ["bytes=400000-", None]


def test_a_redirect_is_followed_with_its_range(server, second, waits, tmp_path, monkeypatch):
    def redirect(handler):
        handler.send_response(302)
        handler.send_header("Location", f"{second.url}/x")
        handler.end_headers()

    monkeypatch.setattr(server, "RequestHandlerClass", type("R", (server.RequestHandlerClass,), {"do_GET": redirect}))
    second.serve("x", Reply(CONTENT, cut=10), Reply(CONTENT))
    assert get(f"{server.url}/x", tmp_path / "x") == CONTENT
    assert [r.range for r in second.requests] == [None, "bytes=10-"]
