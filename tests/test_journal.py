"""A journal gives back what was finished, whatever happened to the process or the file. The answers are constructed."""

import random
import subprocess
import sys

import pytest

from asr.errors import UserError
from asr.journal import Journal, beside

WORK = {"model": "abc", "beam": 10}


def fill(path, count, work=WORK):
    with Journal(path, work) as journal:
        for n in range(len(journal), count):
            journal.add(f"key {n}", {"id": f"u{n}", "text": "é 漢 \ud800" * n}, 1.5, 0.25)


def results(path, work=WORK, count=20):
    with Journal(path, work) as journal:
        keys = [f"key {n}" for n in range(count)]
        return {key: journal.get(key) for key in keys if key in journal}, *journal.seconds(keys)


def test_finished_results_come_back_with_the_seconds_of_the_keys_that_are_asked_for(tmp_path):
    path = beside(tmp_path / "o.txt")
    fill(path, 3)
    fill(path, 5)
    found, audio, seconds = results(path)
    assert found == {f"key {n}": {"id": f"u{n}", "text": "é 漢 \ud800" * n} for n in range(5)}
    assert (audio, seconds) == (7.5, 1.25) and path.name == ".o.txt.journal"
    with Journal(path, WORK) as journal:
        assert journal.seconds(["key 1", "key 3", "key 77"]) == (3.0, 0.5)


def test_without_a_path_it_is_memory_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Journal(None, WORK) as journal:
        journal.add("a", {"text": "x"}, 1.0, 1.0)
        assert "a" in journal and journal.get("a") == {"text": "x"} and "b" not in journal
        journal.forget("a")
        assert "a" not in journal
    assert not list(tmp_path.iterdir())


def test_other_work_begins_anew_and_what_was_there_is_kept(tmp_path, capsys):
    """A first line that is damaged is that of other work, too."""
    path, before = tmp_path / "j", tmp_path / "j.before"
    fill(path, 3)
    content = path.read_bytes()
    assert results(path, WORK | {"beam": 20})[0] == {}
    assert "other options; it is kept as j.before" in capsys.readouterr().err
    assert before.read_bytes() == content
    path.write_bytes(content.replace(b'"beam": 10', b'"beam": 11', 1))
    assert results(path)[0] == {} and before.read_bytes().count(b"\n") == 4
    assert "is damaged; it is kept as j.before" in capsys.readouterr().err


def test_cut_anywhere_all_whole_lines_come_back_and_it_goes_on(tmp_path):
    path = tmp_path / "j"
    fill(path, 4)
    content, expected = path.read_bytes(), list(results(path)[0].items())
    for size in {*range(0, len(content), 7), len(content) - 1}:
        path.write_bytes(content[:size])
        lines = max(0, content[:size].count(b"\n") - 1)
        assert list(results(path)[0].items()) == expected[:lines], size
        path.write_bytes(content[:size])
        fill(path, 4)
        assert list(results(path)[0].items()) == expected


def test_a_changed_byte_costs_the_line_it_stands_in(tmp_path, capsys):
    path, draw = tmp_path / "j", random.Random(0)
    fill(path, 4)
    content, expected = path.read_bytes(), results(path)[0].items()
    for _ in range(60):
        damaged = bytearray(content)
        damaged[draw.randrange(content.index(b"\n") + 1, len(content))] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        found = results(path)[0].items()
        assert all(pair in expected for pair in found)
        assert len(found) >= 2  # the line, and the next where a line's end is lost
    assert "a damaged line is skipped" in capsys.readouterr().err


def test_a_stranger_s_file_is_not_emptied(tmp_path):
    (tmp_path / "j").write_text("somebody's letter, longer than a line's beginning\n")
    with pytest.raises(UserError, match="isn't a journal"), Journal(tmp_path / "j", WORK):
        pass
    assert (tmp_path / "j").read_text().startswith("somebody's letter")


def test_it_is_removed_where_nothing_is_finished_and_when_all_is(tmp_path):
    with Journal(tmp_path / "j", WORK):
        assert (tmp_path / "j").exists()
    assert not (tmp_path / "j").exists()
    with Journal(tmp_path / "j", WORK) as journal:
        journal.add("a", {}, 1.0, 1.0)
        journal.remove()
    assert not (tmp_path / "j").exists()


def test_a_second_process_is_kept_out(tmp_path):
    script = "import sys; from asr.journal import Journal\nwith Journal(sys.argv[1], {}): print(flush=True); input()"
    command, pipe = [sys.executable, "-c", script, tmp_path / "j"], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as other:
        other.stdout.readline()
        with pytest.raises(UserError, match="another process"), Journal(tmp_path / "j", {}):
            pass
        other.communicate(b"\n")


def test_a_full_disk_is_told_with_what_is_kept_and_it_goes_on(tmp_path):
    script = (
        "import sys, resource, signal; from asr.journal import Journal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))\n"
        "with Journal(sys.argv[1], {'a': 1}) as journal:\n"
        "    for n in range(100): journal.add(f'key {n}', {'text': 'x' * 100}, 1.0, 1.0)\n"
    )
    path = tmp_path / "j"
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True)
    found = results(path, {"a": 1}, 100)[0]
    assert 10 < len(found) < 100
    assert f"{len(found)} finished results are kept there" in done.stderr
    assert path.stat().st_size < 4000  # the half line is gone
