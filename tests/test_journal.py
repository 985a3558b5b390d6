"""A journal gives back what was finished, whatever happened to the process or the file. The answers are constructed."""

import os
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


def test_finished_results_come_back(tmp_path):
    path = beside(tmp_path / "o.txt")
    fill(path, 3)
    fill(path, 5)
    found, audio, seconds = results(path)
    assert found == {f"key {n}": {"id": f"u{n}", "text": "é 漢 \ud800" * n} for n in range(5)}
    assert (audio, seconds) == (7.5, 1.25) and path.name == ".o.txt.journal"


def test_without_a_path_it_is_memory_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Journal(None, WORK) as journal:
        journal.add("a", {"text": "x"}, 1.0, 1.0)
        assert "a" in journal and journal.get("a") == {"text": "x"} and "b" not in journal
        journal.forget("a")
        assert "a" not in journal
    assert not list(tmp_path.iterdir())


def test_other_work_begins_anew_and_says_so(tmp_path, capsys):
    fill(tmp_path / "j", 3)
    assert results(tmp_path / "j", {**WORK, "beam": 20})[0] == {}
    assert "other options; it is kept as j.before" in capsys.readouterr().err
    (tmp_path / "j.before").replace(tmp_path / "j")
    assert len(results(tmp_path / "j")[0]) == 3


def test_a_damaged_first_line_costs_no_file(tmp_path, capsys):
    fill(tmp_path / "j", 3)
    content = (tmp_path / "j").read_bytes()
    (tmp_path / "j").write_bytes(content.replace(b'"beam": 10', b'"beam": 11', 1))
    assert (
        results(tmp_path / "j")[0] == {}
        and "is damaged; it is kept as j.before" in capsys.readouterr().err
    )
    assert (tmp_path / "j.before").read_bytes().count(b"\n") == 4


def test_seconds_are_those_of_the_keys_that_are_asked_for(tmp_path):
    fill(tmp_path / "j", 5)
    with Journal(tmp_path / "j", WORK) as journal:
        assert journal.seconds(["key 1", "key 3", "key 77"]) == (3.0, 0.5)


def test_cut_anywhere_all_whole_lines_come_back_and_it_goes_on(tmp_path):
    fill(tmp_path / "whole", 4)
    content, expected = (tmp_path / "whole").read_bytes(), results(tmp_path / "whole")[0]
    for size in {*range(0, len(content), 7), len(content) - 1}:
        path = tmp_path / "cut"
        path.write_bytes(content[:size])
        found = results(path)[0] if size else {}
        assert found == {key: expected[key] for key in list(expected)[: len(found)]}
        lines = content[:size].count(b"\n")
        assert len(found) == max(0, lines - 1), size
        path.write_bytes(content[:size])
        fill(path, 4)
        assert results(path)[0] == expected


def test_a_changed_byte_costs_the_line_it_stands_in(tmp_path, capsys):
    fill(tmp_path / "whole", 4)
    content, draw = (tmp_path / "whole").read_bytes(), random.Random(0)
    expected, begin = results(tmp_path / "whole")[0], content.index(b"\n") + 1
    for _ in range(60):
        place = draw.randrange(begin, len(content))
        damaged = bytearray(content)
        damaged[place] ^= 1 << draw.randrange(8)
        (tmp_path / "x").write_bytes(damaged)
        found = results(tmp_path / "x")[0]
        assert all(expected[key] == result for key, result in found.items())
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
    command = [sys.executable, "-c", script, str(tmp_path / "j")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with (
            pytest.raises(UserError, match="another process is at this work"),
            Journal(tmp_path / "j", {}),
        ):
            pass
        other.communicate(b"\n")


def test_a_full_disk_is_told_with_what_is_kept_and_it_goes_on(tmp_path):
    script = (
        "import sys, resource, signal; from asr.journal import Journal; from asr.errors import UserError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))\n"
        "with Journal(sys.argv[1], {'a': 1}) as journal:\n"
        "    for n in range(100): journal.add(f'key {n}', {'text': 'x' * 100}, 1.0, 1.0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "j"], capture_output=True, text=True
    )
    assert "UserError" in done.stderr and "finished results are kept there" in done.stderr
    found = results(tmp_path / "j", {"a": 1}, 100)[0]
    assert 10 < len(found) < 100 and str(len(found)) in done.stderr
    assert os.path.getsize(tmp_path / "j") < 4000  # the half line is gone
